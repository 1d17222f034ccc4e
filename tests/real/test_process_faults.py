"""Every engine with processes: their usage is reported, and a lost watchdog and a stopped process end as documented."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import pytest
from tests.real.claude_install import need_claude
from tests.real.programs import Program, Step, claude_program, pi_program, worker
from tests.support.model_server import script64
from tests.support.processes import Watched
from tests.support.run_tree import find_children, find_watchdog

from retinue import Retinue
from retinue.engines.process import watchdog
from retinue.model.errors import ErrorCode
from retinue.model.results import RunResult

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(120)]

BURN = f"{sys.executable} -c 'import time; x = bytearray(80_000_000)\nwhile time.process_time() < 0.5: pass'"
STARTED, CONTINUE = "started", "continue"
"""Named pipes: to which a command writes its processes, and from which it reads when to continue."""
WAIT = f"trap '' TERM; sleep 1000 & echo $$ $! > {STARTED}; read x < {CONTINUE}"
PAUSE = f"echo > {STARTED}; read x < {CONTINUE}"
TIMEOUT = 8
"""Seconds of a run that is stopped: the slowest program starts in less on a loaded machine."""
LONGER = "8.5"
"""Seconds, more than the timeout."""
ALL = ("pi_0_87", "pi_1_5", "claude", "api")


@pytest.fixture
def program(request, server, project, tmp_path):
    home = tmp_path / "home"
    for name in (STARTED, CONTINUE):
        os.mkfifo(project / name)
    if request.param == "api":
        environ = {"ANTHROPIC_API_KEY": "sk-ant-test", "ANTHROPIC_BASE_URL": server.url, "PATH": os.environ["PATH"]}
        return Program(
            engine="api",
            model="anthropic/scripted-1",
            environ={**environ, "HOME": str(home)},
            agents=home / "agents",
            has_prompt=str.startswith,
        )
    if request.param == "claude":
        need_claude()
        return claude_program(home, server.url)
    return pi_program(request.getfixturevalue(request.param), home, server.url)


@pytest.fixture
def open_retinue(program, project, tmp_path):
    @asynccontextmanager
    async def open_context():
        async with Retinue(
            cwd=project,
            engine=program.engine,
            agents=[worker()],
            environ=program.environ,
            state=tmp_path / "state",
            settings={"model": program.model, "allow_write": True},
        ) as retinue:
            yield retinue

    return open_context


def bash_step(program: Program, command: str) -> Step:
    more = {"description": "Works."} if program.engine == "claude" else {}
    return program.tool_step("bash", command=command, **more)


async def run_waiting(retinue, program, project, act):
    """Run an agent whose command waits, and call `act` meanwhile; return the result and the command's processes."""
    results: list[RunResult] = []
    watched: list[Watched] = []

    async def run() -> None:
        steps = [bash_step(program, WAIT), {"text": "too late"}]
        results.append(await retinue.run("worker", script64(steps)))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        pids = await anyio.to_thread.run_sync((project / STARTED).read_text)
        watched += map(Watched, map(int, pids.split()))
        act()
    return results[0], watched


def assert_lost(result, watched) -> None:
    assert result.failure
    assert (result.failure.code, result.failure.reason) == (ErrorCode.ENGINE, "watchdog_lost")
    assert all(process.ends() for process in watched)
    for process in watched:
        process.close()


@pytest.mark.parametrize("program", ALL, indirect=True)
async def test_result_has_cpu_time_and_memory_of_the_processes_of_the_run(open_retinue, program):
    async with open_retinue() as retinue:
        result = await retinue.run("worker", script64([bash_step(program, BURN), {"text": "done"}]))
    assert (result.failure, result.text) == (None, "done")
    assert result.actual.process_usage
    assert 0.5 <= result.actual.process_usage.cpu_seconds < 60
    assert 80_000_000 <= result.actual.process_usage.peak_memory_bytes < 10**10


@pytest.mark.parametrize("program", ALL, indirect=True)
async def test_run_of_a_killed_watchdog_ends_with_all_its_processes_and_the_next_one_works(
    open_retinue, program, project
):
    async with open_retinue() as retinue:
        kill = lambda: os.kill(find_watchdog(os.getpid()), signal.SIGKILL)  # noqa: E731
        assert_lost(*await run_waiting(retinue, program, project, kill))
        result = await retinue.run("worker", script64([bash_step(program, "echo up"), {"text": "done"}]))
    assert (result.failure, result.text) == (None, "done")


@pytest.mark.parametrize("program", ALL, indirect=True)
async def test_run_of_a_frozen_watchdog_ends_when_it_is_needed_and_the_next_one_works(
    open_retinue, program, project, monkeypatch
):
    def freeze_and_end_the_child() -> None:
        guard = find_watchdog(os.getpid())
        (child,) = find_children(guard)
        os.kill(guard, signal.SIGSTOP)
        os.kill(child, signal.SIGKILL)

    async with open_retinue() as retinue:
        with monkeypatch.context() as impatient:
            impatient.setattr(watchdog, "REPORT_TIMEOUT", 0.1)
            assert_lost(*await run_waiting(retinue, program, project, freeze_and_end_the_child))
        result = await retinue.run("worker", script64([bash_step(program, "echo up"), {"text": "done"}]))
    assert (result.failure, result.text) == (None, "done")


# -- stopped processes -----------------------------------------------------------------------------


class StoppableRun:
    """A run of the command line whose agent waits in a command."""

    def __init__(self, program: Program, project, tmp_path) -> None:
        self._project = project
        program.agents.mkdir(parents=True, exist_ok=True)
        steps: list[Step] = [bash_step(program, PAUSE), {"text": "what I found"}]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "retinue", "run", "--engine", program.engine, "--model", program.model),
                *("--json", "--allow-write", "--timeout", str(TIMEOUT), "implementer", script64(steps)),
            ],
            cwd=project,
            env={**program.environ, "RETINUE_STATE": str(tmp_path / "state")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        (project / STARTED).read_text()
        (self.child,) = find_children(find_watchdog(self.process.pid))

    def send(self, number: int, *pids: int) -> None:
        for pid in pids:
            os.kill(pid, number)

    def let_command_continue(self) -> None:
        (self._project / CONTINUE).write_text("now\n")

    def finish(self):
        child = Watched(self.child)
        out, _ = self.process.communicate(timeout=60)
        assert child.ends()
        child.close()
        return self.process.returncode, json.loads(out)


def wait_past_the_timeout() -> None:
    subprocess.run(["sleep", LONGER], check=True)


async def use_threads(work):
    """Call the function beside the event loop, in which the model answers."""
    return await anyio.to_thread.run_sync(work)


@pytest.mark.parametrize("program", ALL, indirect=True)
async def test_answer_given_while_retinue_was_stopped_past_the_timeout_completes_the_run(program, project, tmp_path):
    def stop_retinue():
        run = StoppableRun(program, project, tmp_path)
        run.send(signal.SIGSTOP, run.process.pid)
        run.let_command_continue()
        wait_past_the_timeout()
        run.send(signal.SIGCONT, run.process.pid)
        return run.finish()

    code, result = await use_threads(stop_retinue)
    assert (code, result["status"], result["text"]) == (0, "completed", "what I found")


@pytest.mark.parametrize("program", ["pi_1_5", "claude"], indirect=True)
async def test_run_stopped_together_with_retinue_continues(program, project, tmp_path):
    def stop_both():
        run = StoppableRun(program, project, tmp_path)
        run.send(signal.SIGSTOP, run.process.pid, run.child)
        wait_past_the_timeout()
        run.send(signal.SIGCONT, run.child, run.process.pid)
        run.let_command_continue()
        return run.finish()

    code, result = await use_threads(stop_both)
    assert (code, result["status"], result["text"]) == (0, "completed", "what I found")


@pytest.mark.parametrize("program", ["pi_1_5", "claude"], indirect=True)
async def test_child_stopped_alone_ends_with_its_timeout(program, project, tmp_path):
    def stop_child():
        run = StoppableRun(program, project, tmp_path)
        run.send(signal.SIGSTOP, run.child)
        return run.finish()

    code, result = await use_threads(stop_child)
    assert (code, result["failure"]["code"]) == (124, "timeout")
