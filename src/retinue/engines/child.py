r"""A process tree that cannot outlive its block. The only code in Retinue that starts processes.

    async with child(Command(argv=("pi", "--mode", "rpc"), cwd=cwd, environ=environ), keeper) as process:
        await process.send(b"...\n")
        while chunk := await process.receive():
            ...
        end = await process.wait()

A child has its own session and no terminal, so neither a Ctrl-C meant for us nor its own `kill 0` reaches the other
side. A child that signals its parent by number does reach us: only a sandbox could prevent that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import partial

import anyio
import anyio.lowlevel
from msgspec import Struct

from retinue.beside import Beside, to_its_end
from retinue.engines.processes import pipes
from retinue.engines.processes.ending import GRACE, PROOF, end_tree
from retinue.engines.processes.exits import read_end, until_exit
from retinue.engines.processes.keeper import Keeper
from retinue.engines.processes.spawn_failures import spawn_failed
from retinue.engines.processes.tree import Tree
from retinue.results import ProcessEnd

TAIL_BYTES = 128 * 2**10
"""Kept of what a child writes to stderr: its last words say why it ended."""
MOST_IN_PIPE = 2**20
"""Bytes the kernel keeps in a pipe at most, unless an administrator said more."""
RESERVE = 4
"""Descriptors kept back per child: to end it takes some, also when a program has used up all others."""
GRACE_AFTER_ANSWER = 1.0
"""Seconds between SIGTERM and SIGKILL for a child that has nothing left to do."""


class Stdin(StrEnum):
    PIPE = "pipe"
    CLOSED = "closed"
    """/dev/null: some agents wait for the end of an open pipe before they begin."""


class Command(Struct, frozen=True, kw_only=True):
    """What to start."""

    argv: tuple[str, ...]
    cwd: str
    environ: Mapping[str, str]
    """All of it; two marks of ours are added."""
    stdin: Stdin = Stdin.CLOSED
    forks_late: bool = False
    """Whether it is known to start nothing in its first moments: then it is put into its control group meanwhile."""


class ChildGone(OSError):  # noqa: N818 - it names what happened
    """The child no longer reads what it is sent."""


@asynccontextmanager
async def child(command: Command, keeper: Keeper, *, grace: float = GRACE) -> AsyncIterator[Process]:
    """Starts a process; when the block is left, however it is left, all that came of it is ended and proven gone.

    To be called in the thread of the loop.

    Raises:
        EngineError: it could not be started (`spawn_failed`).
    """
    await anyio.lowlevel.checkpoint()
    try:
        popen, tree = await keeper.start(
            command.argv,
            command.cwd,
            command.environ,
            partial(_popen, command.stdin),
            forks_late=command.forks_late,
        )
    except (OSError, ValueError) as error:
        raise spawn_failed(command.argv[0], command.cwd, command.environ, error) from error
    process = Process(popen, tree)
    try:
        async with Beside(process.note_exit, process.keep_stderr, tree.enclose):
            yield process
    finally:
        try:
            await to_its_end(partial(process.finish, grace))
        finally:
            keeper.forget(popen.pid)


class Process:
    """A running child."""

    def __init__(self, popen: subprocess.Popen[bytes], tree: Tree) -> None:
        self.pid = popen.pid
        self.answered = False
        """Set by whoever knows that its work is done: it then has less time to end."""
        self.leftovers = 0
        """Descendants that had to be ended after the child itself was gone; known when the block is left."""
        self.survivors: tuple[int, ...] = ()
        """Processes that nothing could end; known when the block is left."""
        self.stderr_bytes = 0
        """Written to stderr so far."""
        self._popen = popen
        self._tree = tree
        self._exit = pipes.Once()
        self._end: ProcessEnd | None = None
        self._tail = bytearray()
        assert popen.stdout
        assert popen.stderr
        self._stdin = pipes.sink(popen.stdin) if popen.stdin else None
        self._stdout = pipes.source(popen.stdout)
        self._stderr = pipes.source(popen.stderr)
        self._reserve = _reserve(popen.stderr.fileno())

    @property
    def stderr_tail(self) -> bytes:
        """The last of what it wrote to stderr."""
        return bytes(self._tail[-TAIL_BYTES:])

    async def send(self, data: bytes) -> None:
        """Writes all of it to stdin; waits while the child does not read.

        Raises:
            ChildGone: it reads no more, or its stdin was closed.
        """
        if self._stdin is None:
            raise ChildGone(errno.EPIPE, f"Process {self.pid} has no open stdin.")
        try:
            await self._stdin.send(data, self._exit)
        except BrokenPipeError as error:
            raise ChildGone(errno.EPIPE, f"Process {self.pid} no longer reads its stdin.") from error

    def close_stdin(self) -> None:
        """Tells the child that nothing more comes. Does nothing the second time."""
        if self._stdin is not None:
            self._stdin.close()
            self._stdin = None

    async def receive(self) -> bytes:
        """The next chunk of stdout.

        Empty at end of file; also once the process itself has ended and everything it wrote was received, because
        what it left behind may hold its stdout for ever.
        """
        return await self._stdout.receive(self._exit)

    async def wait(self) -> ProcessEnd:
        """How the process itself ended, whoever still holds its pipes."""
        await self._exit.wait()
        self._keep_what_is_there()
        return self._end or ProcessEnd()

    async def others(self) -> int:
        """How many of the processes that came of it are alive, itself not counted."""
        members = await self._tree.look()
        for member in members:
            member.close()
        return sum(member.pid != self.pid for member in members)

    # -- for `child` -----------------------------------------------------------------------------------

    async def note_exit(self) -> None:
        """Waits for the end and tells all who wait for it."""
        self._end = await until_exit(self._popen)
        self._exit.happen()

    async def keep_stderr(self) -> None:
        """Reads stderr as long as anyone writes: a child must never wait for us to read its complaints."""
        while chunk := await self._stderr.receive(pipes.Once()):
            self._keep(chunk)

    async def finish(self, grace: float) -> None:
        """Ends what is left, and gives everything back."""
        self.close_stdin()
        for descriptor in self._reserve:
            os.close(descriptor)
        if self.answered:
            grace = min(grace, GRACE_AFTER_ANSWER)
        # Both pipes are read meanwhile: a child that cannot write cannot end in good order either.
        async with Beside(self.keep_stderr, self._discard_stdout):
            ending = await end_tree(self._tree, self.pid, grace, lambda: read_end(self._popen) is not None)
        self.leftovers, self.survivors = ending.leftovers, ending.survivors
        if self._end is None and not self.survivors:
            # Gone from every list it may still be ending, thread by thread, and cannot be waited for yet.
            with anyio.move_on_after(PROOF):
                self._end = await until_exit(self._popen)
        self._exit.happen()
        self._keep_what_is_there()
        self._stdout.close()
        self._stderr.close()
        self._popen.poll()
        await self._tree.close()

    async def _discard_stdout(self) -> None:
        while await self._stdout.receive(pipes.Once()):
            pass

    def _keep_what_is_there(self) -> None:
        # As much as a pipe holds: who inherited the other end may write for ever.
        for _ in range(MOST_IN_PIPE // pipes.CHUNK):
            if not (chunk := self._stderr.read_now()):
                return
            self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        self.stderr_bytes += len(chunk)
        self._tail += chunk
        if len(self._tail) > 4 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]


def _reserve(descriptor: int) -> list[int]:
    """As many copies of a descriptor as there can be, to be closed when others are needed."""
    copies: list[int] = []
    with contextlib.suppress(OSError):
        copies += (os.dup(descriptor) for _ in range(RESERVE))
    return copies


def _popen(stdin: Stdin, argv: Sequence[str], cwd: str, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - what to run is what our caller decides
        argv,
        bufsize=0,
        cwd=cwd,
        env=environ,
        stdin=subprocess.PIPE if stdin is Stdin.PIPE else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
