"""Watch and cancel runs from another process: real processes, real sockets, real terminals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from tests.cli.conftest import PROCESS_TIMEOUT, encode_script, wait_for
from tests.support.cli_terminal import without_escapes

pytestmark = pytest.mark.process

SCRIPTED = ("--engine", "scripted")
HANGS = [
    {"call": "ls", "args": {"path": "src"}},
    {"event": {"type": "text", "text": "what there was"}},
    {"hang": True},
]


@pytest.fixture
def start_hanging(cli, process):
    """Return a function that starts a process with a hanging run and returns it with the session id."""

    def start(task="x"):
        running = process.start("run", "explorer", task, *SCRIPTED, script=HANGS)
        wait_for(running, "what there was")
        listed = json.loads(cli("sessions", "--json").stdout)["sessions"]
        return running, next(each["session"] for each in listed if each["task"] == task)

    return start


def test_run_cancelled_from_another_process_keeps_its_output(process, start_hanging):
    running, session = start_hanging()
    done = process.run("cancel", session[:8])
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"Run {session[:8]} was cancelled; its partial output was kept.\n"
    out, err = running.communicate(timeout=PROCESS_TIMEOUT)
    assert (running.returncode, out) == (130, "what there was\n")
    assert "✗ cancelled" in err
    again = process.run("cancel", session[:8])
    assert again.returncode == 2
    assert again.stderr.startswith(f"error: {session[:8]} is not running; its last run: cancelled.")


def test_cancel_all_stops_the_runs_of_all_processes(process, start_hanging):
    started = [start_hanging(task) for task in ("one", "two")]
    done = process.run("cancel", "--all", "--json")
    assert done.returncode == 0
    runs = json.loads(done.stdout)["runs"]
    assert {each["session"] for each in runs} == {session for _, session in started}
    assert {each["pid"] for each in runs} == {running.pid for running, _ in started}
    assert [running.wait(PROCESS_TIMEOUT) for running, _ in started] == [130, 130]
    assert process.run("cancel", "--all").stderr == (
        "Nothing is running. `retinue watch --follow` waits for new runs.\n"
    )


def test_cancel_of_an_inactive_run_prints_the_reason(process, start_hanging):
    running, session = start_hanging()
    done = process.run("cancel", "deadbeef", session)
    assert done.returncode == 2
    assert 'Run or session "deadbeef" not found.' in done.stderr
    assert running.wait(PROCESS_TIMEOUT) == 130
    assert process.run("cancel").returncode == 2
    assert process.run("cancel", "--all", "x").returncode == 2


def test_cancel_of_a_stopped_process_prints_what_to_do(process, start_hanging):
    running, session = start_hanging()
    running.send_signal(signal.SIGSTOP)
    done = process.run("cancel", session)
    assert done.returncode == 1
    assert f"process {running.pid}" in done.stderr
    assert "The process does not answer; it may be suspended." in done.stderr
    running.send_signal(signal.SIGCONT)
    assert process.run("cancel", session).returncode == 0


def test_watch_prints_earlier_and_new_events_until_the_run_ends(process, start_hanging):
    _, session = start_hanging()
    watching = process.start("watch")
    wait_for(watching, "what there was", "stdout")
    assert process.run("cancel", session).returncode == 0
    rest, err = watching.communicate(timeout=PROCESS_TIMEOUT)
    assert "✗ cancelled" in rest
    assert (watching.returncode, err) == (0, "")


def test_watch_json_prints_the_stored_events(process, start_hanging):
    _, session = start_hanging()
    watching = process.start("watch", session[:8], "--json")
    wait_for(watching, "what there was", "stdout")
    process.run("cancel", session)
    rest = watching.communicate(timeout=PROCESS_TIMEOUT)[0]
    stored = process.run("events", session).stdout
    assert stored.endswith(rest)
    assert json.loads(rest.splitlines()[-1])["type"] == "run_ended"


def test_watch_of_one_run_shows_no_other_and_ends_with_it(process, start_hanging):
    other, _ = start_hanging("other")
    _, session = start_hanging("mine")
    watching = process.start("watch", session)
    seen = wait_for(watching, "what there was", "stdout")
    assert "mine" in seen
    process.run("cancel", session)
    rest = watching.communicate(timeout=PROCESS_TIMEOUT)[0]
    assert "other" not in seen + rest
    assert other.poll() is None


def test_watch_follow_shows_runs_that_start_later(process, start_hanging):
    watching = process.start("watch", "--follow")
    start_hanging("later")
    wait_for(watching, "later", "stdout")
    process.run("cancel", "--all")
    wait_for(watching, "✗ cancelled", "stdout")
    assert watching.poll() is None
    watching.send_signal(signal.SIGTERM)
    assert watching.wait(PROCESS_TIMEOUT) == 0


def test_killed_process_ends_its_run_in_watch_and_leaves_no_socket(process, start_hanging):
    running, _ = start_hanging()
    watching = process.start("watch")
    wait_for(watching, "what there was", "stdout")
    running.kill()
    running.wait(PROCESS_TIMEOUT)
    rest = watching.communicate(timeout=PROCESS_TIMEOUT)[0]
    assert "✗ interrupted" in rest
    process.run("run", "explorer", "x", *SCRIPTED)
    assert list(Path(f"/tmp/retinue-{os.getuid()}").glob(f"{running.pid}-*")) == []


def test_watch_exits_when_its_reader_has_exited(process, start_hanging):
    running, _ = start_hanging()
    for form in ((), ("--json",)):
        watching = process.start("watch", "--follow", *form)
        wait_for(watching, "what there was", "stdout")
        watching.stdout.close()
        watching.stdout = None
        assert watching.wait(PROCESS_TIMEOUT) == 0
    assert running.poll() is None


def test_watch_without_runs_prints_that_nothing_runs(process):
    done = process.run("watch")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Nothing is running. `retinue watch --follow` waits for new runs.\n"
    unknown = process.run("watch", "deadbeef")
    assert unknown.returncode == 2
    assert 'Run or session "deadbeef" not found.' in unknown.stderr


# -- terminals -------------------------------------------------------------------------------------


def test_watch_keys_select_read_cancel_and_quit(process, terminal, start_hanging):
    running, session = start_hanging()
    process.start("watch", "--follow", **terminal.process_options())
    seen = terminal.read_until("q quit")
    assert "\x1b[?1049h" in seen
    assert "› ⠋" in re.sub("[⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋", without_escapes(seen))
    assert not terminal.has_echo
    terminal.type("\r")
    terminal.read_until("Enter all runs")
    terminal.type("t")
    assert f"Transcript of explorer ({session[:8]})" in without_escapes(terminal.read_until("Esc back"))
    terminal.type("q")
    terminal.read_until("Enter all runs")
    terminal.type("c")
    terminal.read_until(f"Cancel explorer ({session[:8]})? y")
    assert running.poll() is None
    terminal.type("y")
    terminal.read_until(f"Run {session[:8]} was cancelled")
    assert running.wait(PROCESS_TIMEOUT) == 130
    terminal.type("q")
    rest = terminal.read_until("[exit 0]")
    assert rest.index("\x1b[?25h") < rest.index("\x1b[?1049l") < rest.rindex("Session: ")
    assert terminal.has_echo


def test_interrupted_watch_restores_the_terminal(process, terminal, start_hanging):
    running, _ = start_hanging()
    process.start("watch", **terminal.process_options())
    terminal.read_until("q quit")
    terminal.type("\x03")
    assert "\x1b[?1049l" in terminal.read_until("[exit 0]")
    assert terminal.has_echo
    assert running.poll() is None


def test_ctrl_o_expands_windows_of_a_run_and_its_end_restores_the_terminal(process, terminal, place):
    lines = "\n".join(f"line {number}" for number in range(40))
    script = [{"event": {"type": "text", "text": lines}}, {"hang": True}]
    (place / "tasks.json").write_text('{"tasks": [{"agent": "explorer", "prompt": "x"}]}')
    process.start("delegate", "tasks.json", *SCRIPTED, script=script, **terminal.process_options())
    shown = terminal.read_until("line 39")
    assert "line 24" not in shown
    terminal.type("\x0f")
    terminal.read_until("line 24")
    terminal.type("\x03")
    assert "Session: " in terminal.read_until("[exit 130]")
    assert terminal.has_echo


# -- a real terminal -------------------------------------------------------------------------------


@pytest.fixture
def tmux(place):
    """Return a function that runs commands of a private tmux server."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    name = f"retinue-{os.urandom(4).hex()}"

    def command(*arguments):
        return subprocess.run(
            ["tmux", "-L", name, "-f", "/dev/null", *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
        ).stdout

    yield command
    command("kill-server")


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_real_terminal_shows_windows_after_being_resized(tmux, place, size):
    columns, rows = size
    hostile = "\x1b[2J\x1b]0;owned\x07 日本語 e\u0301 🎉 \u202e"
    steps = [
        {"call": "ls", "args": {"path": "src/"}, "returns": "a\nb\nc/"},
        {"event": {"type": "text", "text": hostile}},
    ]
    (place / "script.json").write_text(json.dumps(json.loads(encode_script([*steps, {"hang": True}]))))
    tasks = [{"name": f"task-{number}", "agent": "explorer", "prompt": "x"} for number in range(16)]
    (place / "tasks.json").write_text(json.dumps({"tasks": tasks}))
    command = f"{sys.executable} -m retinue delegate tasks.json --engine scripted --max-concurrency 16"
    env = f"HOME={os.environ['HOME']} RETINUE_SCRIPT=script.json"
    tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(place), f"env {env} {command}")

    def screen(*words):
        for _ in range(2000):  # seconds on an idle machine, more on a busy one
            seen = tmux("capture-pane", "-p")
            if all(word in seen for word in words):
                return seen
        raise AssertionError(f"{words} not in {seen}")

    seen = screen("Sub-agents: 16 running", "task-0: x • explorer • scripted • 1 tool •", "task-15")
    assert seen.startswith("Sub-agents: 16 running")
    if rows > 24:
        assert "2 files, 1 dir" in seen
        assert "日本語 é 🎉 ⟨U+202E⟩" in unicodedata.normalize("NFC", seen)
    for narrow in ((50, 20), size):
        tmux("resize-window", "-x", str(narrow[0]), "-y", str(narrow[1]))
        seen = screen("Sub-agents: 16 running", "task-15")
        lines = [line for line in seen.splitlines() if line]
        assert len(re.findall("Sub-agents:", seen)) == 1
        assert lines[0].startswith("Sub-agents: 16 running")
    tmux("send-keys", "C-c")
