"""Tests of `sessions` and `events`."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from typing import Any

import click
import pytest
from tests.cli.conftest import PROCESS_TIMEOUT, wait_for

from retinue.cli.commands.sessions import describe_state, index_sessions, render_list
from retinue.client import Retinue
from retinue.model.errors import ErrorCode, Failure
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.store import RunSummary, SessionState, SessionSummary
from retinue.testing.stores import record_run, run_spec

SCRIPTED = ("--engine", "scripted")
DEAD = "deadbeef" * 4


@pytest.fixture
def session(cli):
    """Return the id of a session with one answer."""
    script = [{"call": "ls", "args": {"path": "src"}, "returns": "a.py"}, {"say": "The answer\x1b[31m."}]
    return json.loads(cli("run", "explorer", "Where?", *SCRIPTED, "--json", script=script).stdout)["session"]


def test_sessions_list_starts_with_the_last_changed(cli, session):
    cli("run", "tester", "Tested?", *SCRIPTED)
    head, *rows = cli("sessions").stdout.splitlines()
    assert head.split() == ["SESSION", "CHANGED", "STATE", "AGENT", "TASK", "→", "ANSWER"]
    assert [row.split()[-8:][0] for row in rows] != []
    assert [next(word for word in row.split() if word in ("explorer", "tester")) for row in rows] == [
        "tester",
        "explorer",
    ]
    assert "Where? → The answer." in rows[1]


@pytest.mark.parametrize(
    ("choice", "agents"),
    [
        (["--agent", "tester"], ["tester"]),
        (["--state", "failed"], ["reviewer"]),
        (["--state", "error"], ["reviewer"]),
        (["--state", "completed"], ["tester", "explorer"]),
        (["--state", "cancelled"], []),
        (["--state", "timed-out"], []),
        (["--search", "WHERE"], ["explorer"]),
        (["--limit", "1"], ["reviewer"]),
        (["--limit", "1", "--all"], ["reviewer", "tester", "explorer"]),
        (["--search", "nothing like it"], []),
    ],
)
def test_sessions_list_filters_sessions(cli, session, choice, agents):
    cli("run", "tester", "Tested?", *SCRIPTED)
    cli("run", "reviewer", "Good?", *SCRIPTED, script=[{"fail": "400"}])
    found = json.loads(cli("sessions", "list", *choice, "--json").stdout)["sessions"]
    assert [one["agent"] for one in found] == agents
    assert cli("sessions", "list", *choice).exit_code == 0


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (None, "completed"),
        (ErrorCode.LOOP, "failed (loop)"),
        (ErrorCode.TIMEOUT, "timed out"),
        (ErrorCode.ABORTED, "cancelled"),
        (ErrorCode.INTERRUPTED, "interrupted"),
    ],
)
def test_state_of_a_session_is_shown_by_its_outcome(code, shown):
    failure = Failure(code, "…") if code else None
    state = SessionState.ERROR if failure else SessionState.COMPLETED
    latest = RunSummary(run=DEAD, state=state, started=1.0, failure=failure)
    one = SessionSummary(
        session=DEAD,
        name="a",
        agent="a",
        task="t",
        cwd="/",
        surface="single",
        engine="scripted",
        root=DEAD,
        created=1.0,
        updated=1.0,
        runs=1,
        latest=latest,
    )
    assert describe_state(one) == shown


def test_search_finds_tool_calls_and_shows_where(cli, session):
    cli("run", "tester", "Tested?", *SCRIPTED)
    for columns in ("40", "120"):
        found = cli("sessions", "list", "--search", "A.PY", COLUMNS=columns)
        assert "Where? → The answer.\n    tool output: a.py\n" in found.stdout
        assert found.stderr == ""
    (one,) = json.loads(cli("sessions", "list", "--search", "a.py", "--json").stdout)["sessions"]
    assert (one["session"], one["match"]) == (session, {"field": "tool_output", "snippet": "a.py"})
    assert "match" not in json.loads(cli("sessions", "list", "--json").stdout)["sessions"][0]


def test_search_without_a_full_text_index_finds_the_same_and_warns(cli, place, monkeypatch):
    monkeypatch.setenv("RETINUE_STATE", str(place / "state"))
    cli("run", "explorer", "Where?", *SCRIPTED, script=[{"call": "ls", "returns": "a.py"}, {"say": "Here."}])
    (place / "state" / "index.sqlite").mkdir()
    found = cli("sessions", "list", "--search", "a.py", "--json")
    assert len(json.loads(found.stdout)["sessions"]) == 1
    assert found.stderr.startswith("warning: no full-text index: ")
    assert cli("sessions", "list").stderr == ""


class TerminalText(io.StringIO):
    """Collects what a program writes to a terminal."""

    def isatty(self) -> bool:
        return True


async def test_progress_of_indexing_is_shown_on_a_terminal_and_removed(monkeypatch, tmp_path):
    monkeypatch.setattr("retinue.cli.commands.sessions.INDEX_STEP", 0.0)  # one session a step
    async with JsonlStore(tmp_path) as store:
        for _ in range(3):
            await record_run(store, run_spec(store.claim()))
    terminal = TerminalText()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    await index_sessions(Retinue(state=tmp_path))
    first, second = (f"\r\x1b[KIndexing {done} of 3 sessions…" for done in (1, 2))
    assert terminal.getvalue() == f"{first}{second}\r\x1b[K"


@pytest.mark.parametrize("text", ['"', "NEAR(a", "a* OR", "\u202e", "🎈🎈", "x" * 10_000, "--", "a\nb"])
def test_search_for_hostile_text_finds_nothing(cli, session, text):
    found = cli("sessions", "list", f"--search={text}")
    assert (found.exit_code, found.stdout, found.stderr) == (0, "", "No session matches the filter.\n")


def test_session_without_an_answer_is_listed_by_its_task():
    latest = RunSummary(run=DEAD, state=SessionState.RUNNING, started=100.0)
    facts: dict[str, Any] = {
        "name": "lead",
        "agent": "lead",
        "cwd": "/",
        "surface": "single",
        "engine": "pi",
        "root": "r",
        "runs": 1,
    }
    summary = SessionSummary(session=DEAD, task="Find it", created=100.0, updated=100.0, latest=latest, **facts)
    (_, line) = render_list([summary], 101.0)
    assert click.unstyle(line) == "deadbeef  1s ago   running  lead   Find it"


def test_usage_of_one_turn_is_singular(cli):
    session = json.loads(cli("run", "explorer", "Where?", *SCRIPTED, "--json", script=[{"say": "Here"}]).stdout)[
        "session"
    ]
    assert "\nusage         0 tokens, 1 turn\n" in cli("sessions", "show", session).stdout


def test_filter_without_matches_does_not_suggest_the_demo(cli, session):
    assert cli("sessions", "list", "--agent", "nobody").stderr == "No session matches the filter.\n"


def test_empty_list_suggests_the_demo(cli):
    assert cli("sessions").stderr == "There are no sessions yet. `retinue demo` creates some.\n"


def test_session_is_shown_by_any_form_of_its_id(cli, session):
    whole = cli("sessions", "show", session)
    assert whole.exit_code == 0
    assert "agent         explorer (scripted/scripted)" in whole.stdout
    assert "Task: Where?" in whole.stdout
    assert '→ ls: {"path":"src"}' in whole.stdout
    assert "The answer." in whole.stdout
    assert "\x1b" not in whole.stdout
    dashed = f"{session[:8]}-{session[8:12]}-{session[12:16]}-{session[16:20]}-{session[20:]}"
    for name in (session[:8], session[:16], session.upper(), dashed):
        assert cli("sessions", "show", name).stdout == whole.stdout


ASKS_TWO = {"mode": "parallel", "tasks": [{"agent": "mid", "task": "b"}, {"agent": "tester", "task": "c"}]}
WORK = [{"call": "ls", "args": {"path": "src"}}, {"say": "ok"}]
PLAY = {
    "agents": {
        "lead": [{"spawn": ASKS_TWO}, {"say": "led"}],
        "mid": [{"spawn": {"agent": "explorer", "task": "d"}}, {"say": "led"}],
    },
    "steps": WORK,
}


def test_session_is_written_as_one_html_file_named_by_agent_and_id(cli, place, session):
    done = cli("sessions", "show", session, "--html", "--json")
    file = place / f"explorer-{session[:8]}.html"
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"session": session, "file": file.name})
    assert done.stderr.startswith(f"Written to {file.name} (")
    page = file.read_text()
    assert page.startswith("<!doctype html>")
    assert cli("sessions", "show", session, "--html", "-").stdout == page
    assert [path for path in place.iterdir() if path.name.startswith(".explorer")] == []


def test_existing_html_file_is_replaced_only_with_force(cli, place, session):
    file = place / "report.html"
    file.write_text("mine")
    refused = cli("sessions", "show", session, "--html", "report.html")
    assert (refused.exit_code, file.read_text()) == (2, "mine")
    assert "report.html exists: pass --force to replace it, or name another file." in refused.stderr
    assert cli("sessions", "show", session, "--html", "report.html", "--force").exit_code == 0
    assert file.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_existing_html_file_is_asked_about_on_a_terminal(cli, place, session, monkeypatch, answer, code):
    monkeypatch.setattr("retinue.cli.html_export.is_interactive", lambda: True)
    file = place / "report.html"
    file.write_text("mine")
    done = cli("sessions", "show", session, "--html", "report.html", stdin=f"{answer}\n")
    assert (done.exit_code, file.read_text() == "mine") == (code, code == 1)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--force"], "--force is for --html."),
        (["--html", "-", "--json"], "both print on stdout"),
        (["--html", "x", "--events"], "--html takes neither --web nor --events nor --tail."),
        (["--html", "x", "--web"], "--html takes neither"),
        (["--html", "missing/x.html"], "missing/x.html cannot be written: No such file or directory."),
        (["--html", "."], "is a directory"),
        (["--no-browser"], "--no-browser is for --web"),
    ],
)
def test_impossible_html_export_is_refused_with_the_reason(cli, place, session, flags, reason):
    before = sorted(place.iterdir())
    done = cli("sessions", "show", session, *flags)
    assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr
    assert sorted(place.iterdir()) == before


@pytest.fixture
def tree(cli, place):
    """Return the id of a session with two child sessions, one of which has one more, beside an unrelated session."""
    agents = place / ".retinue" / "agents"
    agents.mkdir(parents=True)
    for name in ("lead", "mid"):
        header = f"---\nname: {name}\ndescription: Leads.\ntools: read, ls, subagent\n---\n"
        (agents / f"{name}.md").write_text(f"{header}Lead.\n")
    cli("run", "reviewer", "beside", *SCRIPTED, script=WORK)
    options = ("--max-depth", "3", "--project-agents", "allow", "--json")
    return json.loads(cli("run", "lead", "a", *SCRIPTED, *options, script=PLAY).stdout)["session"]


def shape(node):
    facts = ("agent", "task", "depth", "tools", "state")
    return {tuple(one[fact] for fact in facts): shape(one) for one in node["children"]}


def test_session_is_shown_with_its_child_sessions_at_any_depth(cli, tree):
    told = json.loads(cli("sessions", "show", tree, "--json").stdout)["tree"]
    assert (told["session"], told["agent"], told["engine"], told["parentRun"]) == (tree, "lead", "scripted", None)
    assert shape(told) == {
        ("mid", "b", 2, 1, "completed"): {("explorer", "d", 3, 1, "completed"): {}},
        ("tester", "c", 2, 1, "completed"): {},
    }
    for columns in ("80", "200"):
        shown = cli("sessions", "show", tree, COLUMNS=columns).stdout
        _, _, section = shown.partition("=== Child runs ===\n")
        head, *rows = section.partition("\n\n")[0].splitlines()
        assert head.split() == ["AGENT", "ENGINE", "STATE", "TIME", "TOOLS", "SESSION", "TASK"]
        assert [(row[:12].rstrip(), row.split()[-1]) for row in rows] == [
            ("lead", "a"),
            ("├ mid", "b"),
            ("│ └ explorer", "d"),
            ("└ tester", "c"),
        ]
        assert "\nusage below    0 tokens, 6 turns\n" in shown
        assert max(map(len, section.partition("\n\n")[0].splitlines())) <= int(columns)


def test_child_session_names_its_parent_and_shows_only_its_own_children(cli, tree):
    below = json.loads(cli("sessions", "show", tree, "--json").stdout)["tree"]["children"]
    mid, tester = sorted(below, key=lambda one: one["agent"])
    shown = cli("sessions", "show", mid["session"]).stdout
    assert f"asked by      lead ({tree[:8]})" in shown
    section = shown.partition("=== Child runs ===")[2].partition("\n\n")[0]
    assert re.findall(r"└ \w+|├ \w+", section) == ["└ explorer"]
    assert "Child runs" not in cli("sessions", "show", tester["session"]).stdout


def test_session_resumed_in_another_conversation_keeps_its_tree(cli, tree):
    options = (*SCRIPTED, "--project-agents", "allow", "--max-depth", "3")
    asks = {"agents": {"lead": [{"spawn": {"agent": "reviewer", "task": "e"}}, {"say": "ok"}]}, "steps": WORK}
    cli("sessions", "resume", tree, "again", *options, script=asks)
    cli("sessions", "resume", tree, "and again", *options, script=WORK)
    told = json.loads(cli("sessions", "show", tree, "--json").stdout)
    assert told["session"]["runs"] == 3
    assert [one["agent"] for one in told["tree"]["children"]] == ["mid", "tester", "reviewer"]


def test_child_session_stays_below_its_parent_when_it_is_resumed(cli, tree):
    def children(session):
        told = json.loads(cli("sessions", "show", session, "--json").stdout)["tree"]["children"]
        return [(one["agent"], one["session"], one["depth"]) for one in told]

    before = children(tree)
    mid = before[0][1]
    asks = {"agents": {"mid": [{"spawn": {"agent": "tester", "task": "f"}}, {"say": "ok"}]}, "steps": WORK}
    options = (*SCRIPTED, "--project-agents", "allow", "--max-depth", "3")
    done = cli("sessions", "resume", mid, "again", *options, script=asks)
    assert "mid           started" in done.stderr, "nobody stands above it here"
    assert children(tree) == before
    assert [(agent, depth) for agent, _, depth in children(mid)] == [("explorer", 3), ("tester", 3)]


def test_resumed_session_keeps_its_depth(cli, tree):
    deepest = json.loads(cli("sessions", "show", tree, "--json").stdout)["tree"]["children"][0]["children"][0]
    options = ("--session", deepest["session"], "--project-agents", "allow", "--max-depth", "3", "--json")
    again = cli("run", "lead", "again", *SCRIPTED, *options, script=WORK)
    assert json.loads(again.stdout)["actual"]["toolsRemoved"] == [{"tool": "subagent", "by": "depth"}]


def test_limited_list_of_trees_shows_each_tree_whole(cli, tree):
    def list_ids(*options: str) -> list[str]:
        return [line.split()[0] for line in cli("sessions", "list", "--tree", *options).stdout.splitlines()[1:]]

    every = list_ids()
    assert len(every) == 5
    assert list_ids("--limit", "1") == every[:4]
    assert list_ids("--limit", "2") == list_ids("--all") == every


def test_list_marks_child_sessions_and_draws_a_tree_on_request(cli, tree):
    rows = cli("sessions", "list").stdout.splitlines()[1:]
    assert [" ↳ " in row for row in rows] == ["explorer" in row or "tester" in row or " mid" in row for row in rows]
    drawn = cli("sessions", "list", "--tree").stdout.splitlines()[1:]
    assert [re.findall(r"completed  (\W*\w+)", row) for row in drawn] in (
        [["lead"], ["├ tester"], ["└ mid"], ["  └ explorer"], ["reviewer"]],
        [["lead"], ["├ mid"], ["│ └ explorer"], ["└ tester"], ["reviewer"]],
    )
    in_order = json.loads(cli("sessions", "list", "--tree", "--json").stdout)["sessions"]
    assert [one["session"][:8] for one in in_order] == [row.split()[0] for row in drawn]
    root = json.loads(cli("sessions", "show", tree, "--json").stdout)["session"]["root"]
    found = json.loads(cli("sessions", "list", "--root", root, "--json").stdout)["sessions"]
    assert sorted(one["agent"] for one in found) == ["explorer", "lead", "mid", "tester"]


def test_events_of_a_session_are_json_lines(cli, session):
    types = [json.loads(line)["type"] for line in cli("sessions", "show", session, "--events").stdout.splitlines()]
    assert types[:2] == ["run_queued", "run_started"]
    assert types[-1] == "run_ended"
    tail = cli("sessions", "show", session, "--events", "--tail", "2").stdout.splitlines()
    assert [json.loads(line)["type"] for line in tail] == types[-2:]
    assert json.loads(cli("sessions", "show", session, "--json").stdout)["transcript"][-1] == "[completed]"


def test_output_prints_only_the_answer(cli, session):
    assert cli("sessions", "output", session).stdout == "The answer.\n"
    failed = json.loads(cli("run", "explorer", "x", *SCRIPTED, "--json", script=[{"fail": "400"}]).stdout)["session"]
    none = cli("sessions", "output", failed)
    assert (none.exit_code, none.stdout) == (1, "")
    assert "No output captured from this session." in none.stderr


def test_output_prints_the_requested_lines(cli):
    script = [{"say": "one\ntwo\nthree"}]
    ran = json.loads(cli("run", "explorer", "x", *SCRIPTED, "--json", script=script).stdout)["session"]
    assert cli("sessions", "output", ran, "--start", "2").stdout == "two\nthree\n"
    assert cli("sessions", "output", ran, "--start", "2", "--lines", "1").stdout == "two\n"
    assert json.loads(cli("sessions", "output", ran, "--lines", "1", "--json").stdout)["text"] == "one"


def test_output_prints_a_blank_line_that_was_requested(cli):
    ran = json.loads(cli("run", "explorer", "x", *SCRIPTED, "--json", script=[{"say": "one\n\nthree"}]).stdout)[
        "session"
    ]
    done = cli("sessions", "output", ran, "--start", "2", "--lines", "1")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "\n", "")


def test_list_takes_a_limit_beyond_the_integers_of_the_index(cli, session):
    found = json.loads(cli("sessions", "list", "--limit", str(2**70), "--json").stdout)["sessions"]
    assert [each["session"] for each in found] == [session]


@pytest.mark.parametrize("command", [("events",), ("sessions", "list", "--agent")])
def test_name_with_undecodable_bytes_finds_nothing(cli, session, command):
    done = cli(*command, os.fsdecode(b"\xff\xfe"))
    assert done.exit_code in {0, 2}
    assert any(text in done.stderr for text in ("not found", "No session matches"))


def test_output_beyond_its_end_reports_the_number_of_lines(cli, session):
    beyond = cli("sessions", "output", session, "--start", "9")
    assert (beyond.exit_code, beyond.stdout) == (2, "")
    assert "--start is 9, but the output has 1 line." in beyond.stderr
    for bad in ("0", "-1", "x"):
        assert cli("sessions", "output", session, "--start", bad).exit_code == 2


def test_command_in_a_truncated_answer_prints_the_rest(cli):
    script = [{"say": "\n".join(str(number) for number in range(1, 6001))}]
    task = json.dumps({"agent": "explorer", "task": "x"})
    answer = json.loads(cli("call", "subagent", task, *SCRIPTED, script=script).stdout)
    second = answer["content"][0]["text"].split("\n")[1]
    command = second.removeprefix("[Read the remaining output with: retinue ").removesuffix("]").split()
    assert cli(*command).stdout.split() == [str(number) for number in range(5001, 6001)]


def test_show_prints_the_execution_report_of_the_last_run(cli):
    script = [{"call": "ls", "args": {"path": "src"}, "returns": "a.py"}, {"say": "The answer"}]
    done = json.loads(
        cli(
            "run", "explorer", "Where?", *SCRIPTED, "--model", "big", "--max-turns", "9", "--json", script=script
        ).stdout
    )
    shown = json.loads(cli("sessions", "show", done["session"], "--json").stdout)
    assert {**shown["report"], "masks": 0} == {**done["actual"], "masks": 0}
    told = cli("sessions", "show", done["session"]).stdout.partition("=== Last run: declared and actual ===\n")[2]
    facts = [line.split(maxsplit=1) for line in told.splitlines()]
    assert [fact for fact, _ in facts] == [
        "engine", "model", "tools", "tools", "limits", "attempts", "masked", "dropped",
    ]  # fmt: skip
    assert "model          big declared, big answered" in told
    assert "tools granted  read, grep, find, ls, lsp" in told
    assert "tools used     ls × 1" in told
    assert "turns 9" in told


def test_show_prints_why_another_model_was_tried(cli, place):
    agents = place / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "picky.md").write_text(
        "---\nname: picky\ntools: read\nmodel: big\nfallback_models: small\n---\nWork.\n"
    )
    script = {"runs": [[{"fail": "429 too many requests"}], [{"say": "ok"}]]}
    done = cli("run", "picky", "Where?", *SCRIPTED, "--json", script=script)
    shown = cli("sessions", "show", json.loads(done.stdout)["session"]).stdout
    assert "model          big declared, small answered\n" in shown
    assert "attempts       1 first with big: provider (rate_limit); 2 fallback with small: completed\n" in shown


def test_unreadable_session_does_not_hide_others(cli, scratch_home, session):
    cli("run", "tester", "Tested?", *SCRIPTED)
    folder = scratch_home / ".local" / "state" / "retinue"
    file = folder / "sessions" / session[:8] / "session.jsonl"
    file.unlink()
    file.mkdir()
    (folder / "index.sqlite").unlink(missing_ok=True)
    listed = cli("sessions")
    assert listed.exit_code == 0
    assert "Tested?" in listed.stdout
    assert "failed (storage)" in listed.stdout
    assert cli("sessions", "show", session[:8]).exit_code == 2


@pytest.mark.parametrize("when", ["-62000000000.0", "1e300", "0.0"])
def test_implausible_times_are_printed_as_a_dash(cli, scratch_home, session, when):
    folder = scratch_home / ".local" / "state" / "retinue"
    file = folder / "sessions" / session[:8] / "session.jsonl"
    file.write_text(re.sub(r'"time":[\d.]+', f'"time":{when}', file.read_text()))
    (folder / "index.sqlite").unlink(missing_ok=True)
    _, row = cli("sessions").stdout.splitlines()
    assert row.split()[:3] == [session[:8], "-", "completed"]
    assert re.search(r"^changed +-$", cli("sessions", "show", session).stdout, re.MULTILINE)


@pytest.mark.parametrize("command", [("show",), ("output",), ("resume", "go on")])
def test_unknown_session_is_refused_with_the_latest_sessions(cli, session, command):
    name, *task = command
    result = cli("sessions", name, "deadbeef", *task)
    assert result.exit_code == 2
    assert 'Session "deadbeef" not found.' in result.stderr
    assert session[:8] in result.stderr


def test_resume_uses_the_agent_and_directory_of_the_session(cli, place, session, monkeypatch):
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    result = cli("sessions", "resume", session[:8], "And then?", *SCRIPTED, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (found["session"], found["agent"], found["text"]) == (
        session,
        "explorer",
        "A scripted answer of explorer to: And then?",
    )
    (summary,) = json.loads(cli("sessions", "--json").stdout)["sessions"]
    assert (summary["runs"], summary["cwd"]) == (2, str(place))
    assert cli("run", "explorer", "Once more", "--session", session, *SCRIPTED).exit_code == 0


def test_prune_deletes_old_sessions(cli, session):
    assert cli("sessions", "prune", "--older-than", "0").exit_code == 2  # nobody is there to ask
    looked = cli("sessions", "prune", "--older-than", "0", "--dry-run", "--json")
    assert json.loads(looked.stdout) == {"sessions": [session]}
    kept = json.loads(cli("sessions", "prune", "--older-than", "1h", "--yes", "--json").stdout)
    assert (kept["thinned"], kept["removed"]) == (0, 0)
    cli("sessions", "prune", "--older-than", "0", "--yes")
    assert cli("sessions", "output", session).stdout == "The answer.\n"
    gone = json.loads(cli("sessions", "prune", "--older-than", "0", "--results", "--yes", "--json").stdout)
    assert gone["removed"] == 1
    assert json.loads(cli("sessions", "--json").stdout) == {"sessions": []}


def test_prune_of_nothing_does_not_ask(cli, session):
    done = cli("sessions", "prune", "--older-than", "1h")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("To delete: 0 sessions, 0 B, except their results.")


@pytest.mark.parametrize("time", ["soon", "-1", "3x", "1e3"])
def test_duration_is_a_number_with_a_unit(cli, time):
    assert cli("sessions", "prune", "--older-than", time).exit_code == 2


# -- events ----------------------------------------------------------------------------------------


def test_events_prints_the_latest_or_the_named_conversation(cli, session):
    cli("run", "tester", "later", *SCRIPTED)
    latest = [json.loads(line) for line in cli("events").stdout.splitlines()]
    assert latest[0]["agent"] == "tester"
    named = [json.loads(line) for line in cli("events", session[:8]).stdout.splitlines()]
    assert {event["session"] for event in named} == {session}
    assert cli("events", named[0]["root"]).stdout.splitlines() == cli("events", session).stdout.splitlines()


def test_events_without_any_conversation_reports_it(cli):
    assert (cli("events").exit_code, cli("events", "deadbeef").exit_code) == (1, 2)


def test_events_follow_waits_until_it_is_interrupted(process):
    process.run("run", "explorer", "x", *SCRIPTED)
    following = process.start("events", "--follow")
    wait_for(following, '"type":"run_ended"', "stdout")
    following.send_signal(signal.SIGINT)
    assert following.wait(PROCESS_TIMEOUT) == 130
    assert "Traceback" not in following.stderr.read()


ANSWERED_BY_LOCAL = [
    {"event": {"type": "text", "text": "ok"}},
    {"event": {"type": "message_ended", "stopReason": "stop", "model": "local/scripted-1", "usage": {"turns": 1}}},
]


@pytest.mark.parametrize(
    "declared",
    [
        "provider: local\nmodel: scripted-1",
        "provider: local\nmodel: local/scripted-1",
        "model: local/scripted-1",
        "model: local:scripted-1",
        "model: scripted-1",
    ],
)
def test_model_in_another_spelling_is_not_reported_as_another_model(cli, place, declared):
    agents = place / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "looker.md").write_text(f"---\nname: looker\ntools: read\n{declared}\n---\nLook.\n")
    ran = cli("run", "looker", "x", *SCRIPTED, "--project-agents", "allow", script=ANSWERED_BY_LOCAL)
    assert "answered by" not in ran.stderr
    (session,) = json.loads(cli("sessions", "list", "--json").stdout)["sessions"]
    shown = cli("sessions", "show", session["session"]).stdout
    assert "model          local/scripted-1 declared, local/scripted-1 answered\n" in shown


def test_model_of_another_provider_is_reported_with_both_names(cli, place):
    agents = place / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "looker.md").write_text("---\nname: looker\ntools: read\nprovider: acme\nmodel: scripted-1\n---\nx\n")
    ran = cli("run", "looker", "x", *SCRIPTED, "--project-agents", "allow", script=ANSWERED_BY_LOCAL)
    assert "looker: answered by local/scripted-1, not by acme/scripted-1" in ran.stderr


# -- the last session ------------------------------------------------------------------------------

LAST = [
    ("run", "-c", "and then"),
    ("run", "explorer", "and then", "--continue"),
    ("run", "explorer", "and then", "--session", "last"),
    ("resume", "and then"),
    ("resume", "last", "and then"),
    ("sessions", "resume", "last", "and then"),
]


@pytest.mark.parametrize("command", LAST, ids=" ".join)
def test_last_session_of_the_directory_is_continued(cli, place, command):
    (place / "elsewhere").mkdir()
    cli("run", "tester", "older", *SCRIPTED)
    cli("run", "explorer", "first", *SCRIPTED)
    cli("run", "reviewer", "in another directory", *SCRIPTED, "--cwd", "elsewhere")
    done = cli(*command, *SCRIPTED, "-q", script=[{"say": "{task}"}])
    assert (done.exit_code, done.stdout) == (0, "and then\n")
    found = {each["agent"]: each["runs"] for each in json.loads(cli("sessions", "--json").stdout)["sessions"]}
    assert found == {"explorer": 2, "tester": 1, "reviewer": 1}


@pytest.mark.parametrize(
    "command", [("run", "-c", "x"), ("resume", "x"), ("sessions", "show", "last"), ("sessions", "show")], ids=" ".join
)
def test_directory_without_a_session_has_no_last_one(cli, command):
    done = cli(*command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "`retinue sessions list` shows the sessions of all directories." in done.stderr


def test_show_and_output_without_an_id_print_the_last_session_of_the_directory(cli):
    cli("run", "tester", "older", *SCRIPTED, script=[{"say": "An older answer."}])
    cli("run", "explorer", "newer", *SCRIPTED, script=[{"say": "The newest answer."}])
    assert cli("sessions", "output").stdout == "The newest answer.\n"
    assert json.loads(cli("sessions", "show", "--json").stdout)["session"]["agent"] == "explorer"


def test_resume_takes_an_id_and_reads_its_task_from_stdin(cli):
    session = json.loads(cli("run", "explorer", "first", *SCRIPTED, "--json").stdout)["session"][:8]
    done = cli("resume", session, *SCRIPTED, "-q", stdin="by a pipe", script=[{"say": "{task}"}])
    assert (done.exit_code, done.stdout) == (0, "by a pipe\n")
    assert "quote a TASK of several words" in cli("resume", session, "two", "words").stderr
