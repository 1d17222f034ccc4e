"""SIGSTOP of Retinue, of pi, and of both while a run goes on: the stopped time of Retinue is not the run's."""

import json
import os
import signal
import subprocess
import sys

import pytest
from tests.support.fake_pi import action as do
from tests.support.fake_pi import encode_script, install_fake_pi
from tests.support.pi_setup import MODES, alive, environment

pytestmark = [pytest.mark.process, pytest.mark.skipif(os.name == "nt", reason="no SIGSTOP")]

TIMEOUT = 3
LONGER = "4.5"
"""Seconds, more than the timeout."""


class StoppableRun:
    """A run of the command line, with a pi that reports where it is in files and waits for one."""

    def __init__(self, home, version, *after):
        install_fake_pi(home / "bin", version=version)
        self._work = home / "work"
        self._work.mkdir()
        os.mkfifo(self._work / "started")
        os.mkfifo(self._work / "continue")
        begin = do("shell", "echo $PPID > started; read x < continue")
        script = encode_script(begin, *after)
        arguments = ["run", "--engine", "pi", "--timeout", str(TIMEOUT), "--json", "--project-agents", "allow"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "retinue", *arguments, "implementer", script],
            cwd=self._work,
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.pi = int((self._work / "started").read_text())

    def stop(self, *pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    def let_pi_go_on(self):
        (self._work / "continue").write_text("now\n")

    def wait_past_the_timeout_and_continue(self, *pids):
        subprocess.run(["sleep", LONGER], check=True)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def finish(self):
        out, errors = self.process.communicate(timeout=60)
        return self.process.returncode, json.loads(out), errors.decode()


ANSWER = (do("call", "read", {"path": "a"}, returns="x"), do("say", "what I found"))


@MODES
def test_answer_written_while_retinue_was_stopped_past_the_timeout_completes_the_run(scratch_home, version):
    run = StoppableRun(scratch_home, version, *ANSWER)
    run.stop(run.process.pid)
    run.let_pi_go_on()
    run.wait_past_the_timeout_and_continue(run.process.pid)
    code, result, _ = run.finish()
    assert (code, result["status"], result["text"]) == (0, "completed", "what I found")
    assert alive(scratch_home) == []


def test_run_that_was_stopped_together_with_retinue_continues(scratch_home):
    run = StoppableRun(scratch_home, None, *ANSWER)
    run.stop(run.process.pid, run.pi)
    run.wait_past_the_timeout_and_continue(run.pi, run.process.pid)
    run.let_pi_go_on()
    code, result, _ = run.finish()
    assert (code, result["status"], result["text"]) == (0, "completed", "what I found")


def test_child_that_is_stopped_alone_ends_with_its_timeout_and_leaves_nothing(scratch_home):
    run = StoppableRun(scratch_home, None, *ANSWER)
    run.stop(run.pi)
    code, result, _ = run.finish()
    assert (code, result["failure"]["code"]) == (124, "timeout")
    assert alive(scratch_home) == []
