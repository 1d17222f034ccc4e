"""Delegation to the real pi, and the same work done by bare pi processes. `python -m benchmarks.pi_bench WORK N`.

A scripted model on loopback, in a process of its own, answers both sides: one read, one answer. Needs the pi that
`make test` installs into `.tools`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from tests.real.install import PI, node_and_npm
from tests.real.pi_install import PiInstall, find_pi
from tests.support import fake_pi
from tests.support.model_server import script64

from benchmarks.workload import resident_bytes, scratch
from retinue.client import Retinue
from retinue.engines.json_lines import LineSplitter
from retinue.model.events import MessageEnded
from retinue.model.results import RunResult

TOOLS = Path(__file__).parents[1] / ".tools"
PROMPT = f"Find it. {script64([{'tool': 'read', 'args': {'path': 'a.txt'}}, {'text': 'It is XYZZY.'}])}"
TASK = ("explorer", PROMPT)
MODEL = "local/scripted-1"


def main() -> None:
    work, count = sys.argv[1], int(sys.argv[2])
    WORKS[work](count)


def find_installed_pi() -> PiInstall:
    if not PI.is_in(TOOLS):
        raise SystemExit("There is no real pi: `make test` installs it into .tools.")
    cache = TOOLS / "node-cache"  # as on a machine where pi was used before
    cache.mkdir(exist_ok=True)
    return find_pi(TOOLS, "pi-1.5", node_and_npm()[0], cache)


@contextmanager
def environment() -> Iterator[dict[str, str]]:
    """Return the environment in which pi reaches the scripted model; `a.txt` is in the working directory."""
    Path(scratch(), "a.txt").write_text("the secret word is XYZZY\n")
    command = [sys.executable, "-m", "tests.support.model_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        try:
            yield find_installed_pi().environ_in(Path(scratch(), "home"), url)
        finally:
            server.kill()


class CpuUsage:
    """CPU of this process and its ended children, and wall time, since creation."""

    def __init__(self) -> None:
        self._own, self._others, self._wall = time.process_time(), _children_cpu(), time.monotonic()

    @property
    def own(self) -> float:
        return time.process_time() - self._own

    @property
    def cpu(self) -> float:
        return self.own + _children_cpu() - self._others

    @property
    def wall(self) -> float:
        return time.monotonic() - self._wall


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(**figures: float) -> None:
    print(msgspec.json.encode(figures).decode())


# -- the floor ---------------------------------------------------------------------------------------


def bare(count: int) -> None:
    """Measure this many concurrent processes, each started for one task."""
    with environment() as environ:
        command = ["pi", "--mode", "json", "-p", "--model", MODEL, "--tools", "read,grep,find,ls", "--no-session"]
        executable = f"{environ['PATH'].split(os.pathsep)[0]}/pi"
        spent = CpuUsage()
        started = [
            subprocess.Popen(
                [executable, *command[1:], "--", PROMPT],
                env=environ,
                cwd=scratch(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
            for _ in range(count)
        ]
        for process in started:
            output, _ = process.communicate()
            assert b"It is XYZZY." in output
        report(cpu=spent.cpu, wall=spent.wall)


# -- ours --------------------------------------------------------------------------------------------


def make_retinue(environ: dict[str, str], **settings: Any) -> Retinue:
    many = {"model": MODEL, "max_concurrency": 64, "max_tasks": 64, **settings}
    return Retinue(cwd=scratch(), state=f"{scratch()}/state", engine="pi", environ=environ, settings=many)


def cold(count: int) -> None:
    """Measure sequential delegations, each with a new process."""
    with environment() as environ:
        anyio.run(_cold, environ, count)


def cold_confined(count: int) -> None:
    """Measure the same in the sandbox `workspace`."""
    with environment() as environ:
        anyio.run(_cold, environ, count, "workspace")


async def _cold(environ: dict[str, str], count: int, sandbox: str = "off") -> None:
    async with make_retinue(environ, warm_pool=False, sandbox=sandbox) as retinue:
        await retinue.run(*TASK)  # what a program does once: imports, the guardian
        spent = CpuUsage()
        for _ in range(count):
            result = await retinue.run(*TASK)
            assert result.text == "It is XYZZY.", result.failure
        report(cpu=spent.own / count, wall=spent.wall / count)


def warm(count: int) -> None:
    """Measure sequential delegations to a warm process."""
    with environment() as environ:
        anyio.run(_warm, environ, count)


def warm_confined(count: int) -> None:
    """Measure the same in the sandbox `workspace`."""
    with environment() as environ:
        anyio.run(_warm, environ, count, "workspace")


async def _warm(environ: dict[str, str], count: int, sandbox: str = "off") -> None:
    async with make_retinue(environ, sandbox=sandbox) as retinue:
        for _ in range(3):
            await retinue.run(*TASK)
        spent = CpuUsage()
        for _ in range(count):
            assert (await retinue.run(*TASK)).failure is None
        report(cpu=spent.own / count, wall=spent.wall / count)


def many(count: int) -> None:
    """Measure concurrent delegations without warm processes."""
    with environment() as environ:
        anyio.run(_many, environ, count)


async def _many(environ: dict[str, str], count: int) -> None:
    spent = CpuUsage()
    async with make_retinue(environ) as retinue:
        results = await retinue.delegate([TASK] * count)
        assert all(result.text == "It is XYZZY." for result in results)
        wall = spent.wall
    report(cpu=spent.cpu, wall=wall)


# -- a child that streams ------------------------------------------------------------------------------

UPDATE = 8192
"""Bytes of an update: pi before 0.80 repeats the message so far in each."""


def streaming(size: int) -> str:
    """Return a task in which a fake pi writes this many bytes of updates."""
    whole = {"type": "message_update", "message": {"role": "assistant", "content": "x" * UPDATE}}
    update = {**whole, "assistantMessageEvent": {"type": "text_delta", "contentIndex": 0, "delta": "word "}}
    line = msgspec.json.encode(update).decode() + "\n"
    return fake_pi.encode_script(fake_pi.action("repeat", line, size // len(line)), fake_pi.action("say", "done"))


def streamed(size: int) -> None:
    """Measure the engine as it reads the updates."""
    program = fake_pi.install_fake_pi(Path(scratch(), "bin"))
    anyio.run(_stream, {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": scratch()}, size)


async def _stream(environ: dict[str, str], size: int) -> None:
    async with make_retinue(environ, model=None) as retinue:
        await retinue.run("explorer", streaming(2**20))
        before, spent = resident_bytes(), CpuUsage()
        result = await retinue.run("explorer", streaming(size))
        assert result.text == "done", result
        report(cpu=spent.own, wall=spent.wall, grown_bytes=max(resident_bytes() - before, 0))


def split(size: int) -> None:
    """Measure reading the pipe in large chunks and splitting lines only."""
    program = fake_pi.install_fake_pi(Path(scratch(), "bin"))
    with subprocess.Popen(
        [program, "--mode", "json", "-p"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(streaming(size).encode())
        process.stdin.close()
        lines = LineSplitter()
        lines.feed(os.read(process.stdout.fileno(), 256 * 1024))
        spent = CpuUsage()  # from its first words on: ours is measured on a process that runs already
        while chunk := os.read(process.stdout.fileno(), 256 * 1024):
            lines.feed(chunk)
        report(cpu=spent.own, wall=spent.wall)


# -- children that think -------------------------------------------------------------------------------

SLOTS = 4
TURN = 0.05


def thinking(count: int) -> None:
    """Measure tasks of four turns of 50 ms each, four at a time, on warm fake processes."""
    program = fake_pi.install_fake_pi(Path(scratch(), "bin"))
    anyio.run(_thinking, {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": scratch()}, count)


async def _thinking(environ: dict[str, str], count: int) -> None:
    turn = (fake_pi.action("pause", TURN), fake_pi.action("call", "read", {"path": "a.txt"}, returns="x"))
    task = fake_pi.encode_script(*turn * 3, fake_pi.action("pause", TURN), fake_pi.action("say", "done"))
    async with make_retinue(environ, model=None, max_concurrency=SLOTS, max_tasks=count) as retinue:
        await retinue.delegate([("explorer", task)] * SLOTS)
        spent = CpuUsage()
        results = await retinue.delegate([("explorer", task)] * count)
        assert all(result.text == "done" for result in results)
        report(cpu=spent.own / count, wall=spent.wall)


# -- many that are stopped -----------------------------------------------------------------------------


def obeying(count: int) -> None:
    """Measure the time from cancelling until none of this many processes is left."""
    anyio.run(_cancel_runs, fake_pi.encode_script(BEGUN, fake_pi.action("hang")), count)


def ignoring(count: int) -> None:
    """Measure the same with processes that ignore SIGTERM."""
    deaf = (fake_pi.action("ignore", "TERM"), BEGUN, fake_pi.action("hang", deaf=True))
    anyio.run(_cancel_runs, fake_pi.encode_script(*deaf), count)


BEGUN = fake_pi.action("say", "begun", stop="toolUse")


async def _cancel_runs(task: str, count: int) -> None:
    program = fake_pi.install_fake_pi(Path(scratch(), "bin"))
    environ = {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": scratch()}
    before = len(os.listdir("/proc/self/fd"))
    spent = CpuUsage()
    results: tuple[RunResult, ...] = ()
    async with make_retinue(environ, model=None) as retinue, anyio.create_task_group() as group:

        async def work() -> None:
            nonlocal results
            results = await retinue.delegate([("explorer", task)] * count)

        async with retinue.events(deltas=False) as events:
            group.start_soon(work)
            begun = 0
            async for stamped in events:
                begun += isinstance(stamped.event, MessageEnded)
                if begun == count:
                    break
        spent = CpuUsage()
        retinue.stop_all()
    assert [result.text for result in results] == ["begun"] * count
    assert len(os.listdir("/proc/self/fd")) <= before + 1, "a descriptor leaked"
    report(cpu=spent.own, wall=spent.wall)


WORKS: dict[str, Callable[[int], Awaitable[None] | None]] = {
    work.__name__: work
    for work in (bare, cold, cold_confined, warm, warm_confined, many, streamed, split, thinking, obeying, ignoring)
}

if __name__ == "__main__":
    main()
