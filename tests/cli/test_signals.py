"""Tests of signals, blocked streams and terminals with real processes."""

from __future__ import annotations

import json
import re
import select
import signal

import pytest
from tests.cli.conftest import PROCESS_TIMEOUT, wait_for
from tests.support.cli_terminal import ON_A_TERMINAL
from tests.support.fake_pi import action as do
from tests.support.fake_pi import encode_script, install_fake_pi
from tests.support.pi_setup import alive, environment

pytestmark = pytest.mark.process

SCRIPTED = ("--engine", "scripted")
HANGS = [
    {"call": "ls", "args": {"path": "src"}},
    {"event": {"type": "text", "text": "what there was"}},
    {"hang": True},
]
"""Writes text, but never ends its message."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_the_runs_and_prints_their_partial_answers(cli, process, number):
    running = process.start("run", "explorer", "x", *SCRIPTED, script=HANGS)
    wait_for(running, "what there was")
    running.send_signal(number)
    out, err = running.communicate(timeout=PROCESS_TIMEOUT)
    assert running.returncode == 130
    assert out == "what there was\n"
    assert "Cancelling; partial output is kept." in err
    assert "✗ cancelled" in err
    assert "Traceback" not in err
    (session,) = json.loads(cli("sessions", "--json").stdout)["sessions"]
    assert session["latest"]["failure"]["code"] == "aborted"


def test_signal_stops_running_and_queued_runs_of_a_plan(process):
    plan = json.dumps({"tasks": [{"agent": "explorer", "prompt": str(number)} for number in range(6)]})
    running = process.start("delegate", "-", *SCRIPTED, "--json", "--max-concurrency", "2", script=HANGS)
    running.stdin.write(plan)
    running.stdin.close()
    running.stdin = None
    wait_for(running, "what there was")
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=PROCESS_TIMEOUT)
    assert running.returncode == 130
    assert [result["failure"]["code"] for result in json.loads(out)["results"]] == ["aborted"] * 6


def test_stopped_call_still_prints_its_object(process):
    given = '{"agent": "explorer", "task": "x"}'
    running = process.start("call", "subagent", given, *SCRIPTED, "--stream", script=HANGS)
    wait_for(running, "what there was", "stdout")
    running.send_signal(signal.SIGINT)
    *_, last = running.communicate(timeout=PROCESS_TIMEOUT)[0].splitlines()
    assert running.returncode == 130
    assert json.loads(last)["details"]["error"]["message"] == "Subagent execution was cancelled by user."


TALKATIVE = 600
"""Tool calls whose events fill a pipe that nobody reads."""


@pytest.fixture
def start_verbose_run(process, place):
    """Return a function that starts a run with more events than an unread pipe holds, ending with this step."""

    def start(*command, end):
        calls = [{"call": "bash", "args": {"command": f"{number} {'x' * 150}"}} for number in range(TALKATIVE)]
        (place / "script.json").write_text(json.dumps({"steps": [*calls, end]}))
        return process.start(*command, *SCRIPTED, environ={"RETINUE_SCRIPT": "script.json"})

    return start


def test_blocked_stderr_does_not_delay_the_answer(start_verbose_run):
    running = start_verbose_run("run", "explorer", "x", end={"say": "the answer"})
    assert running.wait(PROCESS_TIMEOUT) == 0
    assert running.stdout.read() == "the answer\n"


@pytest.mark.parametrize("signals", [1, 2])
def test_signal_ends_a_command_with_a_blocked_stderr(process, start_verbose_run, signals):
    running = start_verbose_run("run", "explorer", "x", end={"hang": True})
    wait_for_events(process, "tool_returned", TALKATIVE)
    for _ in range(signals):
        running.send_signal(signal.SIGTERM)
    assert running.wait(PROCESS_TIMEOUT) == 130


def test_closed_or_blocked_stdout_does_not_end_a_call(cli, process, start_verbose_run):
    given = '{"agent": "explorer", "task": "x"}'
    gone = start_verbose_run("call", "subagent", given, "--stream", end={"say": "the answer"})
    gone.stdout.close()
    gone.stdout = None
    gone.wait(PROCESS_TIMEOUT)
    assert gone.stderr.read() == ""
    stuck = start_verbose_run("call", "subagent", given, "--stream", "--timeout", "1", end={"hang": True})
    wait_for_events(process, "run_ended", 1)
    assert json.loads(stuck.communicate(timeout=PROCESS_TIMEOUT)[0].splitlines()[-1])["details"]["error"]["code"] == (
        "SUBAGENT_TIMEOUT"
    )
    assert stuck.returncode == 124
    later, earlier = json.loads(cli("sessions", "--json").stdout)["sessions"]
    assert (earlier["latest"]["state"], later["latest"]["failure"]["code"]) == ("completed", "timeout")


def wait_for_events(process, kind, count):
    """Wait until the stored session has this many events of a kind."""
    for _ in range(100):
        if process.run("events").stdout.count(f'"type":"{kind}"') >= count:
            return
    raise AssertionError(f"no {count} × {kind}")


def test_run_of_a_killed_process_is_reported_at_the_next_start(cli, process):
    running = process.start("run", "explorer", "x", *SCRIPTED, script=HANGS)
    wait_for(running, "what there was")
    running.kill()
    running.wait(PROCESS_TIMEOUT)
    for looking in (("sessions",), ("doctor",), ("events",), ("agents",), ("sessions", "prune", "--dry-run")):
        process.run(*looking)  # who only looks takes the news from nobody
    told = process.run("run", "explorer", "x", *SCRIPTED).stderr
    found = re.search(r"1 run was interrupted when its process ended: (\w{8}) \(retinue sessions show ID\)", told)
    assert found
    assert "what there was" in cli("sessions", "show", found[1]).stdout
    assert "interrupted" not in process.run("run", "explorer", "x", *SCRIPTED).stderr


# -- terminals -------------------------------------------------------------------------------------


def test_windows_are_drawn_on_a_terminal_and_their_last_state_stays(process, terminal):
    running = process.start(
        "run", "explorer", "x", *SCRIPTED, script=HANGS, environ=ON_A_TERMINAL, stderr=terminal.device
    )
    drawn = terminal.read_until("what there was")
    assert "ls → src" in drawn
    running.send_signal(signal.SIGINT)
    rest = terminal.read_to_end()
    assert running.wait(PROCESS_TIMEOUT) == 130
    assert running.stdout.read() == "what there was\n"
    assert rest.rindex("\x1b[?25h") > rest.find("\x1b[?25l")
    assert "■ explorer" in re.sub(r"\x1b\[[\d;]*m", "", rest)
    assert "Session: " in rest


@pytest.mark.parametrize("pause", [0.005, 0.02, 0.05], ids=str)
def test_five_ctrl_c_leave_a_clean_terminal_and_no_process(process, terminal, scratch_home, pause):
    install_fake_pi(scratch_home / "bin")
    terminal.keep_output()
    options = terminal.process_options()
    options["environ"] = {**options["environ"], **environment(scratch_home)}
    stubborn = encode_script(do("shell", "trap '' TERM; sleep 1000"))
    process.start("run", "implementer", stubborn, "--engine", "pi", "--allow-write", **options)
    seen = terminal.read_until("running")
    for _ in range(5):
        terminal.type("\x03")
        seen += terminal.read_for(pause)
    seen = seen if "[exit 130]" in seen else seen + terminal.read_until("[exit 130]")
    assert terminal.has_echo
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")
    assert "Traceback" not in seen
    assert "KeyboardInterrupt" not in seen
    terminal.type("\n")
    terminal.read_to_end()
    assert wait_until_gone(scratch_home) == []


def wait_until_gone(home):
    """Return the processes of a home that have not ended after some seconds: the watchdog ends them."""
    for _ in range(200):
        if not (left := alive(home)):
            return []
        select.select([], [], [], 0.05)
    return left


def test_messages_on_a_terminal_are_wrapped_at_spaces(process, terminal):
    words = [f"word{number}" for number in range(30)]
    command = ("run", "explorer", f"@{' '.join(words)}")
    running = process.start(*command, environ={**ON_A_TERMINAL, "COLUMNS": "40"}, stderr=terminal.device)
    assert running.wait(PROCESS_TIMEOUT) == 2
    lines = terminal.read_to_end().splitlines()
    assert max(map(len, lines)) <= 40
    assert [word for line in lines for word in line.split()][1 : len(words) + 1] == words


def test_dumb_terminal_gets_lines(process, terminal):
    environ = {**ON_A_TERMINAL, "TERM": "dumb"}
    running = process.start("run", "explorer", "x", *SCRIPTED, environ=environ, stderr=terminal.device)
    assert running.wait(PROCESS_TIMEOUT) == 0
    seen = terminal.read_to_end()
    assert "✓ completed" in seen
    assert "\x1b" not in seen


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 2)])
def test_run_on_a_terminal_asks_for_trust(process, terminal, place, answer, code):
    folder = place / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "fixer.md").write_text(
        "---\nname: fixer\ndescription: Fixes\ntools: read, bash\nmodel: big\n---\nFix.\n"
    )
    command = ("run", "fixer", "x", *SCRIPTED, "--allow-write")
    running = process.start(*command, environ=ON_A_TERMINAL, stdin=terminal.device, stderr=terminal.device)
    asked = terminal.read_until("[y/N]:")
    for words in ("fixer.md", "read, bash", "big"):
        assert words in asked
    terminal.type(answer)
    terminal.read_to_end()
    assert running.wait(PROCESS_TIMEOUT) == code
    assert process.run(*command).returncode == code


@pytest.mark.parametrize(("answer", "is_kept"), [("y\n", False), ("\n", True)])
def test_delete_on_a_terminal_asks_first(process, terminal, place, answer, is_kept):
    file = place / ".retinue" / "agents" / "fixer.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: fixer\n---\nFix.\n")
    command = ("agents", "delete", "fixer")
    running = process.start(*command, environ=ON_A_TERMINAL, stdin=terminal.device, stderr=terminal.device)
    asked = terminal.read_until("[y/N]:")
    assert "fixer.md?" in asked
    terminal.type(answer)
    terminal.read_to_end()
    assert running.wait(PROCESS_TIMEOUT) == int(is_kept)
    assert file.exists() is is_kept


@pytest.mark.parametrize(("command", "printed"), [(("call", "subagent"), "Cancelled."), (("run", "explorer"), None)])
def test_ctrl_c_while_reading_stdin_is_reported_in_the_form_of_the_command(process, terminal, command, printed):
    running = process.start(*command, "-", environ=ON_A_TERMINAL, stdin=terminal.device)
    wait_for(running, "Reading the text from the terminal")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PROCESS_TIMEOUT)
    assert running.returncode == 130
    assert err.strip() == "Cancelled."
    assert (json.loads(out)["content"][0]["text"] if out else None) == printed
