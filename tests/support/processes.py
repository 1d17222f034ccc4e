"""Real processes: how tests start them, and how they know that one is gone without waiting for a clock."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retinue.engines.process.child import ChildCommand, ChildProcess, StdinMode
from retinue.engines.process.linux_tree import list_processes

BOUND = 10_000
"""Milliseconds after which a process that should have ended did not."""


class Watched:
    """A process held by a descriptor, so that its number cannot come to mean another."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def ends(self, within: int = BOUND) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(within))

    def lives(self) -> bool:
        return not self.ends(within=0)

    def close(self) -> None:
        os.close(self._descriptor)


def shell(script: str, *, cwd: str = "/", stdin: StdinMode = StdinMode.CLOSED, **environ: str) -> ChildCommand:
    """A command that runs a shell script."""
    return ChildCommand(
        argv=("sh", "-c", script), cwd=cwd, environ={"PATH": os.environ["PATH"], **environ}, stdin=stdin
    )


def python(program: Path, *arguments: str, stdin: StdinMode = StdinMode.CLOSED) -> ChildCommand:
    return ChildCommand(
        argv=(sys.executable, str(program), *arguments), cwd="/", environ=dict(os.environ), stdin=stdin
    )


async def read_all(process: ChildProcess) -> bytes:
    chunks = []
    while chunk := await process.receive():
        chunks.append(chunk)
    return b"".join(chunks)


async def read_lines(process: ChildProcess, count: int) -> list[bytes]:
    """So many lines, when they are there; the process may go on."""
    text = b""
    while text.count(b"\n") < count:
        chunk = await process.receive()
        assert chunk, f"ended after {text!r}: {process.stderr_tail!r}"
        text += chunk
    return text.split()


@contextmanager
def nothing_open_is_left() -> Iterator[None]:
    """Checks that a block leaves no descriptor open and no zombie of ours behind."""
    before = descriptors(os.getpid())
    zombies = own_zombies()
    yield
    assert descriptors(os.getpid()) == before
    assert own_zombies() == zombies


def descriptors(pid: int) -> set[int]:
    """The descriptors a process has open."""
    found = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return {number for number in found if Path(f"/proc/{pid}/fd/{number}").is_symlink()}


def own_zombies() -> set[int]:
    return {facts.pid for facts in list_processes() if facts.parent == os.getpid() and facts.is_dead}
