"""Steer and extend runs from another process: real processes, real sockets."""

from __future__ import annotations

import json
import signal

import pytest
from tests.cli.conftest import PROCESS_TIMEOUT, wait_for
from tests.support import fake_pi

pytestmark = pytest.mark.process

WAITS_FOR_STEERING = [
    {"event": {"type": "thinking", "text": "hm"}},
    {"call": "ls", "args": {"path": "src"}},
    {"hear": True},
    {"say": "I was told: {steer}"},
]


@pytest.fixture
def start_waiting(cli, process):
    """Return a function that starts a process whose run waits for steering, and returns it with the session id."""

    def start(*options, script=WAITS_FOR_STEERING, task="x"):
        running = process.start("run", "explorer", task, "--engine", "scripted", *options, script=script)
        wait_for(running, "→ ls")
        listed = json.loads(cli("sessions", "--json").stdout)["sessions"]
        return running, next(each["session"] for each in listed if each["task"] == task)

    return start


def test_steer_sends_a_message_to_an_agent_of_another_process(cli, process, start_waiting):
    running, session = start_waiting()
    done = process.run("steer", session[:8], "mind the gap")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"Message sent to {session[:8]}; the agent will see it before its next model call.\n"
    out, err = running.communicate(timeout=PROCESS_TIMEOUT)
    assert (running.returncode, out) == (0, "I was told: mind the gap\n")
    assert "» mind the gap" in err
    shown = cli("sessions", "show", session)
    assert "mind the gap" in shown.stdout


@pytest.mark.parametrize("source", ["-", "@message.md"])
def test_steer_reads_the_text_from_stdin_or_a_file(process, start_waiting, place, source):
    (place / "message.md").write_text("mind\nthe gap\n")
    running, session = start_waiting()
    done = process.run("steer", session, source, "--json", text="mind\nthe gap\n")
    assert done.returncode == 0
    printed = json.loads(done.stdout)
    assert (printed["run"], printed["session"], printed["pid"]) == (session, session, running.pid)
    assert running.communicate(timeout=PROCESS_TIMEOUT)[0] == "I was told: mind\nthe gap\n"


def test_extend_adds_time_to_a_run_of_another_process(cli, process, start_waiting):
    running, session = start_waiting("--timeout", "600")
    done = process.run("extend", session[:8], "5m", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "run": session,
        "session": session,
        "pid": running.pid,
        "seconds": 300,
        "timeout": 900,
        "message": f"Run {session[:8]} has 5m more; its timeout is now 15m.",
    }
    assert done.stderr == f"Run {session[:8]} has 5m more; its timeout is now 15m.\n"
    process.run("steer", session, "go on")
    _, err = running.communicate(timeout=PROCESS_TIMEOUT)
    assert "timeout extended by 5m to 15m" in err
    assert "timeout 15m" in cli("sessions", "show", session).stdout


def test_watch_extends_and_steers_the_selected_run(process, terminal, start_waiting):
    running, session = start_waiting("--timeout", "600")
    process.start("watch", "--follow", **terminal.process_options())
    terminal.read_until("q quit")
    terminal.type("e")
    terminal.read_until(f"Extend explorer ({session[:8]}) by (90, 15m, 2h): ")
    terminal.type("soon\r")
    terminal.read_until("'soon' is not a duration")
    terminal.type("e5m\r")
    terminal.read_until(f"Run {session[:8]} has 5m more; its timeout is now 15m.")
    terminal.type("s\x1b[200~mind\rthe gap\x1b[201~\r")
    terminal.read_until(f"Message sent to {session[:8]}")
    assert running.communicate(timeout=PROCESS_TIMEOUT)[0] == "I was told: mind the gap\n"
    terminal.type("q")
    terminal.read_until("[exit 0]")
    assert terminal.has_echo


def test_inactive_run_is_neither_steered_nor_extended(process, start_waiting):
    running, session = start_waiting()
    near = f"{session[:7]}{'0' if session[7] != '0' else '1'}"
    for command in (("steer", near, "x"), ("extend", near, "60")):
        done = process.run(*command)
        assert done.returncode == 2
        assert done.stderr.startswith(f'error: Run or session "{near}" not found. Did you mean {session[:8]}? ')
    assert process.run("steer", session, "go on").returncode == 0
    running.communicate(timeout=PROCESS_TIMEOUT)
    for command in (("steer", session[:8], "x"), ("extend", session[:8], "60")):
        done = process.run(*command, "--json")
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: {session[:8]} is not running; its last run: completed.")
        assert json.loads(done.stdout)["failure"]["code"] == "session_not_found"


def test_queued_run_is_neither_steered_nor_extended(cli, process, place):
    tasks = [{"agent": "explorer", "prompt": "one"}, {"agent": "explorer", "prompt": "two"}]
    (place / "tasks.json").write_text(json.dumps({"tasks": tasks}))
    running = process.start(
        "delegate", "tasks.json", "--engine", "scripted", "--max-concurrency", "1", script=WAITS_FOR_STEERING
    )
    wait_for(running, "→ ls")
    listed = json.loads(cli("sessions", "--json").stdout)["sessions"]
    waiting = next(each["session"] for each in listed if each["latest"]["state"] == "queued")
    for command in (("steer", waiting, "x"), ("extend", waiting, "60")):
        done = process.run(*command)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: Run {waiting[:8]} is queued")
    assert process.run("cancel", "--all").returncode == 0


def test_run_of_an_engine_without_steering_refuses_and_continues(cli, process, place):
    """An older pi takes no messages while it works."""
    fake_pi.install_fake_pi(place / "bin", version="0.80.0")
    task = fake_pi.encode_script(fake_pi.action("call", "ls"), fake_pi.action("pause", 3600))
    environ = {"RETINUE_PI": str(place / "bin" / "pi"), "ANTHROPIC_API_KEY": "sk-not-a-real-key"}
    running = process.start("run", "explorer", task, "--engine", "pi", environ=environ)
    wait_for(running, "→ ls")
    (session,) = json.loads(cli("sessions", "--json").stdout)["sessions"]
    done = process.run("steer", session["session"], "x", "--json")
    assert done.returncode == 2
    assert done.stderr.startswith("error: This pi cannot steer a running agent: it is older than 0.87")
    assert json.loads(done.stdout)["failure"]["code"] == "unsupported"
    assert process.run("extend", session["session"], "60").returncode == 0
    assert running.poll() is None
    assert process.run("cancel", session["session"]).returncode == 0


def test_steer_of_a_stopped_process_prints_what_to_do(process, start_waiting):
    running, session = start_waiting()
    running.send_signal(signal.SIGSTOP)
    done = process.run("steer", session, "x", "--json")
    assert done.returncode == 1
    assert f"process {running.pid}" in done.stderr
    assert "The process does not answer; it may be suspended." in done.stderr
    assert json.loads(done.stdout)["exitCode"] == 1
    running.send_signal(signal.SIGCONT)
    assert process.run("steer", session, "x").returncode == 0
    assert running.wait(PROCESS_TIMEOUT) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("steer", "deadbeef"), "Missing argument 'TEXT'."),
        (("steer", " ", "x"), "The value is empty."),
        (("steer", "deadbeef", "@missing.md"), "missing.md cannot be read"),
        (("extend", "deadbeef", "0"), "'0' is out of range: 1 to 86400 seconds."),
        (("extend", "deadbeef", "25h"), "'25h' is out of range: 1 to 86400 seconds."),
        (("extend", "deadbeef", "nan"), "'nan' is not a duration"),
        (("extend", "deadbeef", "9" * 400), "is out of range"),
        (("extend", "deadbeef", "--", "-5"), "'-5' is not a duration"),
        (("extend", "deadbeef", "soon"), "'soon' is not a duration"),
    ],
)
def test_invalid_steer_and_extend_arguments_are_reported(cli, arguments, sentence):
    done = cli(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr


def test_empty_steering_text_is_refused(process, start_waiting):
    running, session = start_waiting()
    done = process.run("steer", session, "  ")
    assert (done.returncode, done.stderr) == (2, "error: The message is empty: write what the agent should know\n")
    done = process.run("steer", session, "\x1b[31mred\x1b[0m")
    assert done.returncode == 0
    assert running.communicate(timeout=PROCESS_TIMEOUT)[0] == "I was told: red\n"


def test_shell_completion_lists_active_runs(process, start_waiting):
    running, session = start_waiting()

    def completes(command):
        words = f"retinue {command} {session[:2]}"
        environ = {"_RETINUE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "2"}
        return f"plain,{session[:8]}" in process.run(environ=environ).stdout

    commands = ("steer", "extend", "cancel", "watch")
    assert [command for command in commands if completes(command)] == [*commands]
    process.run("steer", session, "go on")
    running.communicate(timeout=PROCESS_TIMEOUT)
    assert not any(map(completes, commands))
