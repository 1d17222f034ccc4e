"""Runs that are steered and extended from another process: real processes, real sockets."""

from __future__ import annotations

import json
import signal

import pytest
from tests.cli.conftest import PATIENCE, wait_for
from tests.support import fake_pi

pytestmark = pytest.mark.process

HEARS = [
    {"event": {"type": "thinking", "text": "hm"}},
    {"call": "ls", "args": {"path": "src"}},
    {"hear": True},
    {"say": "I was told: {steer}"},
]


@pytest.fixture
def listening(process):
    """Starts a process whose run waits to be told something; the process and the id of its session."""

    def start(*options, script=HEARS, task="x"):
        running = process.start("run", "explorer", task, "--engine", "scripted", *options, script=script)
        wait_for(running, "→ ls")
        listed = json.loads(process.run("sessions", "--json").stdout)["sessions"]
        return running, next(one["session"] for one in listed if one["task"] == task)

    return start


def test_an_agent_of_another_process_is_told_something(process, listening):
    running, session = listening()
    done = process.run("steer", session[:8], "mind the gap")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (f"Run {session[:8]} has been told; its agent reads it before it asks its model again.\n")
    out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, out) == (0, "I was told: mind the gap\n")
    assert "» mind the gap" in err
    shown = process.run("sessions", "show", session)
    assert "mind the gap" in shown.stdout


@pytest.mark.parametrize("source", ["-", "@told.md"])
def test_the_text_is_on_stdin_or_in_a_file(process, listening, place, source):
    (place / "told.md").write_text("mind\nthe gap\n")
    running, session = listening()
    done = process.run("steer", session, source, "--json", text="mind\nthe gap\n")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert (told["run"], told["session"], told["pid"]) == (session, session, running.pid)
    assert running.communicate(timeout=PATIENCE)[0] == "I was told: mind\nthe gap\n"


def test_a_run_of_another_process_is_given_more_time(process, listening):
    running, session = listening("--timeout", "600")
    done = process.run("extend", session[:8], "5m", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "run": session,
        "session": session,
        "pid": running.pid,
        "seconds": 300,
        "timeout": 900,
        "message": f"Run {session[:8]} was given 300s more: its timeout is 900s.",
    }
    assert done.stderr == f"Run {session[:8]} was given 300s more: its timeout is 900s.\n"
    process.run("steer", session, "go on")
    _, err = running.communicate(timeout=PATIENCE)
    assert "given 300s more: its timeout is 900s" in err
    assert "timeout 900s" in process.run("sessions", "show", session).stdout


def test_what_does_not_run_is_neither_steered_nor_extended(process, listening):
    running, session = listening()
    near = f"{session[:7]}{'0' if session[7] != '0' else '1'}"
    for order in (("steer", near, "x"), ("extend", near, "60")):
        done = process.run(*order)
        assert done.returncode == 2
        assert done.stderr.startswith(f'There is no run and no session "{near}". Did you mean {session[:8]}? ')
    assert process.run("steer", session, "go on").returncode == 0
    running.communicate(timeout=PATIENCE)
    for order in (("steer", session[:8], "x"), ("extend", session[:8], "60")):
        done = process.run(*order, "--json")
        assert done.returncode == 2
        assert done.stderr.startswith(f"{session[:8]} is not running; its last run: completed.")
        assert json.loads(done.stdout)["failure"]["code"] == "session_not_found"


def test_a_run_that_waits_for_its_slot_is_neither_steered_nor_extended(process, place):
    tasks = [{"agent": "explorer", "prompt": "one"}, {"agent": "explorer", "prompt": "two"}]
    (place / "tasks.json").write_text(json.dumps({"tasks": tasks}))
    running = process.start("delegate", "tasks.json", "--engine", "scripted", "--max-concurrency", "1", script=HEARS)
    wait_for(running, "→ ls")
    listed = json.loads(process.run("sessions", "--json").stdout)["sessions"]
    waiting = next(one["session"] for one in listed if one["latest"]["state"] == "queued")
    for order in (("steer", waiting, "x"), ("extend", waiting, "60")):
        done = process.run(*order)
        assert done.returncode == 2
        assert done.stderr.startswith(f"Run {waiting[:8]} waits for a slot")
    assert process.run("cancel", "--all").returncode == 0


def test_a_run_that_cannot_be_steered_says_so_and_goes_on(process, place):
    """A pi of an older version is given its task and nothing else."""
    fake_pi.install_fake_pi(place / "bin", version="0.80.0")
    task = fake_pi.encode_script(fake_pi.action("call", "ls"), fake_pi.action("pause", 3600))
    environ = {"RETINUE_PI": str(place / "bin" / "pi"), "ANTHROPIC_API_KEY": "sk-not-a-real-key"}
    running = process.start("run", "explorer", task, "--engine", "pi", environ=environ)
    wait_for(running, "→ ls")
    (session,) = json.loads(process.run("sessions", "--json").stdout)["sessions"]
    done = process.run("steer", session["session"], "x", "--json")
    assert done.returncode == 2
    assert done.stderr.startswith("This pi takes nothing while its agent works: it is older than 0.87")
    assert json.loads(done.stdout)["failure"]["code"] == "unsupported"
    assert process.run("extend", session["session"], "60").returncode == 0
    assert running.poll() is None
    assert process.run("cancel", session["session"]).returncode == 0


def test_a_process_that_is_stopped_is_named_with_what_to_do(process, listening):
    running, session = listening()
    running.send_signal(signal.SIGSTOP)
    done = process.run("steer", session, "x", "--json")
    assert done.returncode == 1
    assert f"process {running.pid}" in done.stderr
    assert "It does not answer: it may be stopped." in done.stderr
    assert json.loads(done.stdout)["exitCode"] == 1
    running.send_signal(signal.SIGCONT)
    assert process.run("steer", session, "x").returncode == 0
    assert running.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("steer", "deadbeef"), "Missing argument 'TEXT'."),
        (("steer", " ", "x"), "It is empty: say what is meant."),
        (("steer", "deadbeef", "@missing.md"), "missing.md cannot be read"),
        (("extend", "deadbeef", "0"), "'0' is out of range: 1 to 86400 seconds."),
        (("extend", "deadbeef", "25h"), "'25h' is out of range: 1 to 86400 seconds."),
        (("extend", "deadbeef", "nan"), "'nan' is no length of time"),
        (("extend", "deadbeef", "9" * 400), "is out of range"),
        (("extend", "deadbeef", "--", "-5"), "'-5' is no length of time"),
        (("extend", "deadbeef", "soon"), "'soon' is no length of time"),
    ],
)
def test_what_makes_no_sense_is_said(cli, arguments, sentence):
    done = cli(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr


def test_an_empty_text_is_refused_by_the_run(process, listening):
    running, session = listening()
    done = process.run("steer", session, "  ")
    assert (done.returncode, done.stderr) == (2, "The text is empty: say what the agent should know\n")
    done = process.run("steer", session, "\x1b[31mred\x1b[0m")
    assert done.returncode == 0
    assert running.communicate(timeout=PATIENCE)[0] == "I was told: red\n"


def test_a_shell_completes_what_runs(process, listening):
    running, session = listening()

    def completes(command):
        words = f"retinue {command} {session[:2]}"
        environ = {"_RETINUE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "2"}
        return f"plain,{session[:8]}" in process.run(environ=environ).stdout

    commands = ("steer", "extend", "cancel", "watch")
    assert [command for command in commands if completes(command)] == [*commands]
    process.run("steer", session, "go on")
    running.communicate(timeout=PATIENCE)
    assert not any(map(completes, commands))
