"""A lost connection: the page stays, shows a banner and continues after reconnecting."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

GONE = "ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED_ENCODING|Failed to load resource"
SCRIPT = [
    {"event": {"type": "text", "text": "Before."}},
    {"call": "ls", "args": {"path": "."}, "returns": "a\nb"},
    {"hear": True},
    {"say": "After {steer}."},
]


def test_run_page_continues_after_a_server_restart(serve, visit):
    served = serve(explorer=SCRIPT)
    page = visit(served)
    page.monitor.allow(GONE)
    process = served.popen("run", "explorer", "Hold on", "--quiet")
    page.get_by_role("link", name=re.compile("explorer, running, Hold on")).click()
    expect(page.locator(".item.text")).to_have_text("Before.")
    run = page.url.rpartition("/")[2]
    served.stop()
    expect(page.get_by_text("No connection to Retinue since")).to_be_visible()
    expect(page.locator(".item.text")).to_have_text("Before.")
    served.run("steer", run, "the storm")
    answer, _ = process.communicate(timeout=20)
    assert answer.strip() == "After the storm."
    served.start()
    page.evaluate("document.querySelector('.banner button')?.click()")  # unless it has come back by itself
    expect(page.locator(".item.text").last).to_have_text("After the storm.")
    expect(page.get_by_text("No connection to Retinue since")).to_have_count(0)
    expect(page.locator(".item.text")).to_have_count(2)
    expect(page.locator("details.tool")).to_have_count(1)
    expect(page.locator(".titles .state")).to_have_text("Completed")


def test_activity_reconnects_and_shows_missed_runs(serve, visit):
    served = serve(tester=[{"say": "Tested."}])
    page = visit(served)
    page.monitor.allow(GONE)
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()
    served.stop()
    expect(page.get_by_text("No connection to Retinue since")).to_be_visible()
    assert served.run("run", "tester", "Meanwhile") == "Tested."
    served.start()
    expect(page.get_by_role("link", name="tester, completed, Meanwhile")).to_be_visible()
    expect(page.locator(".banner")).to_be_hidden()
    expect(page.locator(".row")).to_have_count(1)


def test_page_without_a_stream_reconnects(serve, visit):
    served = serve()
    page = visit(served)
    page.monitor.allow(GONE)
    page.get_by_label("State").select_option("Live")
    expect(page.get_by_text("No run matches.")).to_be_visible()
    served.stop()
    expect(page.get_by_text("No connection to Retinue since")).to_be_visible()
    page.get_by_role("link", name="System").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    served.start()
    expect(page.get_by_role("heading", name="Engines")).to_be_visible()
    expect(page.locator(".banner")).to_be_hidden()


def test_restarted_server_with_another_token_requires_a_sign_in(serve, visit):
    served = serve()
    page = visit(served)
    page.monitor.allow(f"{GONE}|401")
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()
    served.stop()
    expect(page.get_by_text("No connection to Retinue since")).to_be_visible()
    served.token_file.unlink()
    served.start()
    expect(page.get_by_text("You are signed out.")).to_be_visible()
    page.get_by_role("link", name="Sign in").click()
    page.get_by_label("Token").fill(served.token_file.read_text())
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()
