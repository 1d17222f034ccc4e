"""The page of a run: start, live updates, cancel, steer, continue."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.servers.dashboard.conftest import start_run, state_of
from tests.support.repositories import make_repository, write_files

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

READS = {"call": "read", "args": {"path": "notes.md", "limit": 20}, "returns": "# Notes\nThe word is XYZZY.\n"}
BEGINS = {"event": {"type": "tool_called", "call": "last", "name": "bash", "args": {"command": "make"}}}
ANSWER = {"say": "It is XYZZY."}


@pytest.fixture(scope="module")
def served(serve):
    served = serve(
        explorer=[READS, ANSWER],
        researcher=[
            READS,
            {"event": {"type": "text", "text": "First I look."}},
            {"hear": True},
            {"say": "Heard: {steer}"},
        ],
        reviewer=[READS, BEGINS, {"hang": True}],
        implementer=[{"say": "An answer to: {task}"}],
        tester=[{"say": "An answer to: {task}"}],
        lead=[{"spawn": {"agent": "tester", "task": "A part of it"}}, {"say": "Led."}],
        watcher=[
            {"wait": 0.3},
            {"call": "read", "args": {"path": "slow.md"}, "returns": "gone", "isError": True},
            {"wait": 0.2},
            {
                "event": {
                    "type": "message_ended",
                    "stopReason": "stop",
                    "model": "m-1",
                    "usage": {"input": 7000, "cost": 0.5},
                }
            },
            {"say": "Seen."},
        ],
        analyst=[{"say": "## Found\n\nIt is **here**:\n\n| a | b |\n|---|---|\n| `1` | 2 |\n\n- [x] done"}],
        isolated=[READS, {"hear": True}, {"say": "Done."}],
        writer=[
            {"hear": True},
            {"event": {"type": "thinking_delta", "text": "Let me "}},
            {"event": {"type": "text_delta", "text": "I am wri"}},
            {"event": {"type": "text_delta", "text": "ting "}},
            {"hear": True},
            {"say": "I am writing <b>this</b>."},
        ],
    )
    folder = served.project / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "analyst.md").write_text("---\nname: analyst\ndescription: Analyses\ntools: []\n---\nYou analyse.\n")
    (folder / "watcher.md").write_text("---\nname: watcher\ndescription: Watches\ntools: []\n---\nYou watch.\n")
    isolated = "---\nname: isolated\ndescription: Edits\ntools: []\nisolation: worktree\nsandbox: workspace\n---\nYou edit.\n"
    (folder / "isolated.md").write_text(isolated)
    (folder / "writer.md").write_text("---\nname: writer\ndescription: Writes\ntools: []\n---\nYou write.\n")
    mine = served.project.parent / ".config" / "retinue" / "agents"
    mine.mkdir(parents=True)
    (mine / "lead.md").write_text("---\nname: lead\ndescription: Leads\ndelegates: true\n---\nYou lead.\n")
    return served


@pytest.fixture
def page(served, visit):
    return visit(served)


def test_offline_run_is_started_from_the_form_and_shown_until_its_end(serve, visit):
    served = serve(engine="offline")
    (served.project / "bus.py").write_text("class Bus:\n    '''Carries events to watchers.'''\n")
    page = visit(served)
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()
    start_run(page, "explorer", "Where is the class Bus?")
    expect(state_of(page)).to_have_text("Completed")
    expect(page.locator(".transcript")).to_contain_text("bus.py")
    expect(page.locator(".item.ended")).to_contain_text("Completed in")
    page.get_by_role("link", name="Retinue, activity").click()
    expect(page.get_by_role("link", name=re.compile("explorer, completed, Where is the class Bus"))).to_be_visible()
    expect(page.locator(".row .engine")).to_have_text(re.compile("/project · offline"))


def test_tool_call_expands_to_arguments_and_result(page):
    start_run(page, "explorer", "Find the word")
    expect(state_of(page)).to_have_text("Completed")
    call = page.locator("details.tool")
    expect(call.locator("summary")).to_contain_text("notes.md")
    expect(call.locator(".inside")).to_have_count(0)
    call.locator("summary").click()
    expect(call.locator(".arguments")).to_contain_text("limit20", use_inner_text=False)
    expect(call.locator(".inside pre.output")).to_have_text("# Notes\nThe word is XYZZY.\n")


def test_answer_is_rendered_as_markdown_or_shown_raw(page):
    start_run(page, "analyst", "Analyse")
    answer = page.locator(".item.text")
    expect(answer.get_by_role("heading", name="Found")).to_be_visible()
    expect(answer.locator("strong")).to_have_text("here")
    expect(answer.locator("td code")).to_have_text("1")
    expect(answer.locator("li")).to_contain_text("☑ done")
    page.get_by_role("radio", name="Raw").check(force=True)
    expect(answer.locator("pre")).to_contain_text("## Found")
    page.reload()
    expect(answer.locator("pre")).to_contain_text("**here**")
    page.get_by_role("radio", name="Rendered").check(force=True)
    expect(answer.locator("strong")).to_have_text("here")


def test_streamed_text_is_shown_also_after_a_reload(page):
    start_run(page, "researcher", "Look")
    expect(page.locator(".item.text p")).to_have_text("First I look.")  # rendered, not as it is written
    before = page.locator(".transcript ol").inner_text()
    page.reload()
    expect(page.locator(".item.text p")).to_have_text("First I look.")
    assert page.locator(".transcript ol").inner_text() == before
    expect(state_of(page)).to_have_text("Running")


def test_partial_sentence_is_replaced_by_the_whole_one_also_after_a_reload(page):
    start_run(page, "writer", "Write")
    line = page.get_by_role("textbox", name=re.compile("Message to writer"))
    line.fill("begin")
    line.press("Enter")
    for _ in range(2):
        expect(page.locator(".item.now.text")).to_have_text("I am writing")
        expect(page.locator(".item.now.thinking summary")).to_contain_text("Thinking…Let me", use_inner_text=False)
        page.reload()
    line.fill("go on")
    line.press("Enter")
    expect(page.locator(".item.text")).to_have_text("I am writing <b>this</b>.")
    expect(page.locator(".item.now")).to_have_count(0)


def test_running_agent_is_steered(page):
    start_run(page, "researcher", "Wait for me")
    line = page.get_by_role("textbox", name="Message to researcher while it runs")
    line.fill("go left")
    line.press("Enter")
    expect(page.locator(".item.steered")).to_contain_text("go left")
    expect(page.locator(".item.text").last).to_have_text("Heard: go left")
    expect(state_of(page)).to_have_text("Completed")
    expect(page.locator(".item.text")).to_have_count(2)


def test_run_is_cancelled_only_after_confirmation(page):
    start_run(page, "reviewer", "Never end")
    expect(page.locator("details.tool .icon.running")).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    sure = page.get_by_role("dialog", name="Cancel this run?")
    sure.get_by_role("button", name="Keep it running").click()
    expect(sure).to_have_count(0)
    expect(state_of(page)).to_have_text("Running")
    page.get_by_role("button", name="Cancel", exact=True).click()
    sure.get_by_role("button", name="Cancel the run").click()
    expect(state_of(page)).to_have_text("Cancelled")
    expect(page.locator(".failure")).to_contain_text("Cancelled")
    expect(page.locator(".item.ended")).to_contain_text("Cancelled after")
    expect(page.locator("details.tool")).to_have_count(2)
    expect(page.locator("details.tool .icon.running")).to_have_count(0)
    expect(page.locator("details.tool").last).to_contain_text("no result")


def test_timed_out_run_shows_its_timeout(served, visit):
    with served.popen("run", "reviewer", "Take too long", "--timeout", "1", "--quiet") as process:
        process.communicate(timeout=60)
    page = visit(served)
    page.get_by_role("link", name="reviewer, timed out, Take too long").click()
    expect(state_of(page)).to_have_text("Timed out")
    expect(page.locator(".item.ended")).to_contain_text("Timed out after")
    failure = page.locator(".failure")
    expect(failure).to_contain_text("Resume the session, or retry with more time.")
    failure.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("textbox", name=re.compile("Resume reviewer"))).to_have_value(
        "Continue where you stopped."
    )
    failure.get_by_role("button", name="Edit and retry…").click()
    form = page.get_by_role("dialog", name="New run")
    expect(form.get_by_label("Task")).to_have_value("Take too long")
    expect(form.get_by_label("Agent")).to_have_value("reviewer")
    page.keyboard.press("Escape")
    failure.get_by_role("button", name="Retry with a timeout of 2s").click()
    expect(page.locator(".facts")).to_contain_text("/ 2s")
    expect(page.locator("main.run")).to_contain_text("Take too long")


def test_run_is_extended(page):
    start_run(page, "reviewer", "Take your time")
    expect(page.locator(".facts")).to_contain_text("/ 15m")
    page.get_by_role("button", name="Extend").click()
    more = page.get_by_role("dialog", name="More time")
    more.get_by_label("Minutes to add").fill("45")
    more.get_by_role("button", name="Extend").click()
    expect(page.locator(".facts")).to_contain_text("/ 1h")
    expect(page.locator(".item.extended")).to_contain_text("45m more")


def test_session_is_continued_with_a_new_prompt(page):
    start_run(page, "implementer", "First question")
    line = page.get_by_role("textbox", name=re.compile("Resume implementer"))
    line.fill("Second question")
    line.press("Enter")
    expect(page.locator(".item.text")).to_have_text("An answer to: Second question")
    expect(page.locator(".trail")).to_contain_text("run 2 of 2 in its session")
    page.get_by_role("link", name="Run 1 of this session").click()
    expect(page.locator(".item.text")).to_have_text("An answer to: First question")


def test_plan_is_started_from_the_form(page):
    page.get_by_role("button", name="New run", exact=True).first.click()
    form = page.get_by_role("dialog", name="New run")
    form.get_by_text("Chain").click()
    form.get_by_role("button", name="Add a step").click()
    expect(form.get_by_label("Agent").nth(2)).to_be_focused()
    form.get_by_role("button", name="Remove step 3").click()
    for index, (agent, task) in enumerate((("implementer", "Find it"), ("tester", "Judge {previous}"))):
        form.get_by_label("Agent").nth(index).select_option(agent)
        form.get_by_role("textbox", name="Task").nth(index).fill(task)
    form.get_by_role("button", name="Start 2").click()
    plan = page.get_by_role("group", name="2 runs, first: implementer")
    expect(plan.get_by_role("link", name="implementer, completed, Find it")).to_be_visible()
    expect(plan.get_by_role("link", name=re.compile("tester, completed, Judge"))).to_be_visible()


def test_form_allows_an_agent_to_delegate(page):
    page.get_by_role("button", name="New run", exact=True).first.click()
    form = page.get_by_role("dialog", name="New run")
    form.get_by_label("Agent").select_option("lead")
    form.get_by_label("Task").fill("Make a whole")
    expect(form.locator(".definition")).to_contain_text("delegates if Max depth is 2 or more")
    form.get_by_text("Options").click()
    form.get_by_label("Max depth").fill("2")
    form.get_by_label("Sandbox").select_option("workspace")
    form.get_by_role("button", name="Start").click()
    expect(page.get_by_role("link", name=re.compile("tester, completed, A part of it"))).to_be_visible()
    expect(page.locator(".item.text")).to_have_text("Led.")


def test_form_keeps_its_draft_after_it_was_closed(page):
    page.get_by_role("button", name="New run", exact=True).first.click()
    form = page.get_by_role("dialog", name="New run")
    form.get_by_label("Agent").select_option("explorer")
    form.get_by_label("Task").fill("A long and well considered question")
    page.keyboard.press("Escape")
    expect(form).to_have_count(0)
    page.get_by_role("link", name="Agents").click()
    page.get_by_role("button", name="New run", exact=True).first.click()
    expect(form.get_by_label("Task")).to_have_value("A long and well considered question")
    form.get_by_role("button", name="Start").click()
    line = page.get_by_role("textbox", name=re.compile("Resume explorer"))
    line.fill("And then")
    page.get_by_role("tab", name="Details").click()
    expect(line).to_be_hidden()
    page.get_by_role("tab", name="Transcript").click()
    expect(line).to_have_value("And then")
    page.get_by_role("button", name="New run", exact=True).first.click()
    expect(form.get_by_label("Task")).to_have_value("")


def test_refused_request_is_shown_in_the_form(page):
    page.monitor.allow("400")
    page.get_by_role("button", name="New run", exact=True).first.click()
    form = page.get_by_role("dialog", name="New run")
    form.get_by_label("Agent").select_option("explorer")
    form.get_by_label("Task").fill("Go")
    form.get_by_text("Options").click()
    form.get_by_label("Timeout, minutes").fill("99999999")
    form.get_by_role("button", name="Start").click()
    assert form.get_by_label("Timeout, minutes").evaluate("(field) => field.validity.rangeOverflow")
    form.get_by_label("Timeout, minutes").fill("10080")
    form.get_by_label("Model").fill("m" * 201)
    form.get_by_role("button", name="Start").click()
    expect(form.get_by_role("alert")).to_contain_text("model")
    expect(form.get_by_label("Task")).to_have_value("Go")


def test_answer_is_copied_and_transcript_downloaded(served, visit):
    page = visit(served, permissions=["clipboard-read", "clipboard-write"])
    start_run(page, "explorer", "Find the word")
    page.get_by_role("button", name="Copy result").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "It is XYZZY."
    page.locator(".menu summary").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Markdown").click()
    assert "It is XYZZY." in download.value.path().read_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="Web page (HTML)").click()
    file = served.project / "run.html"
    download.value.save_as(file)
    requests: list[str] = []
    mailed = page.context.new_page()
    mailed.on("request", lambda request: requests.append(request.url))
    mailed.goto(file.as_uri())
    expect(mailed.get_by_role("heading", name="explorer")).to_be_visible()
    expect(mailed.get_by_text("It is XYZZY.")).to_be_visible()
    mailed.get_by_text("Result of read").click()
    expect(mailed.get_by_text("# Notes")).to_be_visible()
    assert requests == [file.as_uri()]


def test_timeline_and_details_show_time_and_cost(page):
    start_run(page, "explorer", "Find the word")
    expect(state_of(page)).to_have_text("Completed")
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".lane")).to_have_count(1)
    page.get_by_role("tab", name="Timeline").press("ArrowRight")
    details = page.get_by_role("tabpanel")
    expect(page.get_by_role("tab", name="Details")).to_be_focused()
    for title in (
        "Time and cost",
        "Declared and actual",
        "Tools used",
        "Files touched (1)",
        "Location",
    ):
        expect(details.get_by_role("heading", name=title)).to_be_visible()
    expect(details).to_contain_text("notes.md")
    page.reload()
    expect(page.get_by_role("tab", name="Details")).to_have_attribute("aria-selected", "true")


def test_run_shows_its_sandbox_and_where_the_changes_of_its_worktree_are(served, page):
    make_repository(served.project, {"a.txt": "one\n"})
    start_run(page, "isolated", "Change a.txt")
    expect(page.locator("details.tool")).to_have_count(1)
    (worktree,) = Path(served.project.parent, "state", "worktrees").glob("*/*/")
    expect(state_of(page)).to_have_text("Running")
    expect(page.locator(".facts")).to_contain_text("Sandboxstrict")
    expect(page.locator(".facts")).to_contain_text("Worktreeyes")
    page.get_by_role("tab", name="Details").click()
    for text in (str(worktree), str(served.project)):
        expect(page.locator(".part-of").filter(has=page.get_by_role("heading", name="Worktree"))).to_contain_text(
            text
        )
    expect(page.get_by_role("row", name=re.compile("^Sandbox strict"))).to_be_visible()
    page.get_by_role("tab", name="Transcript").click()
    write_files(worktree, {"a.txt": "two\n"})
    line = page.get_by_role("textbox", name="Message to isolated while it runs")
    line.fill("go on")
    line.press("Enter")
    expect(state_of(page)).to_have_text("Completed")
    expect(page.locator(".facts")).to_contain_text("Worktree1 file changed, +1 −1")
    expect(page.locator(".facts")).to_contain_text("Sandbox")
    page.get_by_role("tab", name="Details").click()
    details = page.get_by_role("tabpanel")
    expect(details.get_by_role("heading", name="Worktree")).to_be_visible()
    for text in (f"retinue/isolated-{worktree.name}", str(worktree), f"retinue worktrees merge {worktree.name}"):
        expect(details).to_contain_text(text)


def test_timeline_shows_spans_with_cards_by_pointer_and_focus_and_zooms(page):
    start_run(page, "watcher", "Watch the store")
    expect(state_of(page)).to_have_text("Completed")
    page.get_by_role("tab", name="Timeline").click()
    lane = page.locator(".lane")
    expect(lane).to_contain_text("Watch the store")
    expect(lane.locator("path.model")).to_be_attached()
    expect(lane.locator("path.failed")).to_be_attached()
    card = page.get_by_role("tooltip")
    lane.hover()
    expect(card).to_contain_text("$0.50")
    page.mouse.move(0, 0)
    expect(card).to_have_count(0)
    lane.focus()
    expect(card).to_contain_text("Longest steps")
    expect(card).to_contain_text("m-1")
    before = page.locator(".axis .track i").all_text_contents()
    page.keyboard.press("+")
    expect(page.get_by_role("button", name="Fit")).to_be_enabled()
    assert page.locator(".axis .track i").all_text_contents() != before
    page.keyboard.press("0")
    expect(page.get_by_role("button", name="Fit")).to_be_disabled()
    box = lane.locator(".track").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 8, steps=4)
    page.mouse.up()
    expect(page.get_by_role("button", name="Fit")).to_be_enabled()
    expect(page.get_by_role("tab", name="Timeline")).to_have_attribute("aria-selected", "true")


def test_two_runs_are_compared_side_by_side(page):
    start_run(page, "implementer", "Compare me")
    expect(state_of(page)).to_have_text("Completed")
    start_run(page, "implementer", "Compare me too")
    expect(state_of(page)).to_have_text("Completed")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("dialog", name="Compare with").get_by_role(
        "button", name=re.compile(r"Compare me\b(?! too)")
    ).click()
    expect(page.get_by_role("heading", name="Compare two runs")).to_be_visible()
    expect(page.get_by_role("region", name="Answer of run A")).to_contain_text("An answer to: Compare me too")
    expect(page.get_by_role("region", name="Answer of run B")).to_contain_text("An answer to: Compare me")
    expect(page.get_by_role("row", name=re.compile("^Tool calls"))).to_contain_text("same")
    page.get_by_role("link", name="B: implementer").click()
    expect(page.locator("main.run")).to_contain_text("Compare me")


def test_wide_screen_shows_the_list_beside_the_run(served, visit):
    page = visit(served, viewport={"width": 2000, "height": 1000})
    start_run(page, "implementer", "Stay beside the list")
    runs = page.get_by_role("complementary", name="Runs")
    expect(runs.locator("[aria-current]")).to_contain_text("Stay beside the list")
    start_run(page, "tester", "Another beside it")
    runs.get_by_role("link", name=re.compile("Stay beside the list")).click()
    expect(page.locator("main.run h1")).to_have_text("implementer")
    page.set_viewport_size({"width": 2000, "height": 170})
    page.reload()
    expect(runs.locator("[aria-current]")).to_be_in_viewport()
    page.set_viewport_size({"width": 1200, "height": 800})
    expect(runs).to_have_count(0)
    expect(page.locator("main.run h1")).to_have_text("implementer")


def test_missing_run_shows_a_message(served, visit):
    page = visit(served, "/#/runs/0123456789abcdef0123456789abcdef")
    page.monitor.allow("404")
    expect(page.get_by_role("heading", name="There is no such run.")).to_be_visible()
    page.get_by_role("link", name="To the activity").click()
    expect(page.get_by_role("searchbox")).to_be_visible()
