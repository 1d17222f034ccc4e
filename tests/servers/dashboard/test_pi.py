"""Runs of the real pi with a scripted model, in the browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import expect
from tests.real.install import PI, node_and_npm, skip
from tests.real.pi_install import find_pi
from tests.real.programs import pi_program
from tests.servers.dashboard.conftest import start_run, state_of
from tests.support.model_server import ModelServer, script64

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(120)]

TOOLS = Path(__file__).parents[3] / ".tools"
READS = script64([{"text": "I look.", "tool": "read", "args": {"path": "a.txt"}}, {"text": "It is XYZZY."}])
AGAIN = script64([{"text": "Still XYZZY."}])
NEVER_ENDS = script64(
    [{"text": "I look.", "tool": "read", "args": {"path": "a.txt"}}, {"text": "Now I", "hang": True}]
)


@pytest.fixture
def served(serve, tmp_path):
    if not PI.is_in(TOOLS):
        skip("There is no real pi. `make test` installs it where a package registry can be reached.")
    node, _ = node_and_npm()
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(ModelServer()) as models:
        program = pi_program(find_pi(TOOLS, "pi-1.5", node, tmp_path), tmp_path / "home", models.url)
        served = serve(engine="pi", environ={**program.environ, "RETINUE_MODEL": program.model})
        (served.project / "a.txt").write_text("the secret word is XYZZY\n")
        yield served
        served.stop()


def test_run_on_real_pi_is_shown_and_continued(served, visit):
    page = visit(served)
    start_run(page, "explorer", f"Find the word. {READS}")
    expect(state_of(page)).to_have_text("Completed")
    call = page.locator("details.tool")
    call.locator("summary").click()
    expect(call.locator("pre.output")).to_contain_text("the secret word is XYZZY")
    expect(page.locator(".item.text").last).to_have_text("It is XYZZY.")
    expect(page.locator(".facts")).to_contain_text("local/scripted-1")
    page.get_by_role("tab", name="Details").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("a.txt")
    page.get_by_role("tab", name="Transcript").click()
    line = page.get_by_role("textbox", name="Resume explorer: a new prompt in this session")
    line.fill(f"Are you sure? {AGAIN}")
    line.press("Enter")
    expect(page.locator(".trail")).to_contain_text("run 2 of 2")
    expect(page.locator(".item.text")).to_have_text("Still XYZZY.")


def test_run_on_real_pi_is_shown_live_reloaded_and_cancelled(served, visit):
    page = visit(served)
    start_run(page, "explorer", f"Find the word. {NEVER_ENDS}")
    expect(page.locator(".item.text").first).to_have_text("I look.")
    call = page.locator("details.tool")
    expect(call).to_contain_text("a.txt")
    expect(state_of(page)).to_have_text("Running")
    page.reload()
    expect(page.locator(".item.text").first).to_have_text("I look.")
    expect(call).to_have_count(1)
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()
    expect(state_of(page)).to_have_text("Cancelled")
    expect(call).to_have_count(1)
    expect(page.get_by_role("textbox", name="Resume explorer: a new prompt in this session")).to_be_visible()
