"""Start real processes in tests, and detect their exit without a clock."""

import os
import resource
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retinue.engines.process.child import ChildProcess
from retinue.engines.process.command import ChildCommand, StdinMode
from retinue.support.processes import list_processes

EXIT_TIMEOUT_MS = 10_000
"""Milliseconds after which a process that should have exited counts as running."""


class Watched:
    """A process opened by a descriptor, so that a reused pid is no problem."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def ends(self, within: int = EXIT_TIMEOUT_MS) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(within))

    def lives(self) -> bool:
        return not self.ends(within=0)

    def close(self) -> None:
        os.close(self._descriptor)


def shell(script: str, *, cwd: str = "/", stdin: StdinMode = StdinMode.CLOSED, **environ: str) -> ChildCommand:
    """Return the command that runs a shell script."""
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
    """Read until there are so many lines and return their words; the process may continue."""
    text = b""
    while text.count(b"\n") < count:
        chunk = await process.receive()
        assert chunk, f"ended after {text!r}: {process.stderr_tail!r}"
        text += chunk
    return text.split()


@contextmanager
def assert_nothing_left_open() -> Iterator[None]:
    """Assert that the block leaves no descriptor open and no zombie behind."""
    before = descriptors(os.getpid())
    zombies = own_zombies()
    yield
    assert descriptors(os.getpid()) == before
    assert own_zombies() == zombies


def descriptors(pid: int) -> set[int]:
    """Return the open descriptors of a process."""
    found = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return {number for number in found if Path(f"/proc/{pid}/fd/{number}").is_symlink()}


def own_zombies() -> set[int]:
    return {each.pid for each in list_processes() if each.parent == os.getpid() and each.is_dead}


def use_up_descriptors() -> list[int]:
    """Open files until no descriptor is left, and return them; the limit is lowered for that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return held
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, hard))
