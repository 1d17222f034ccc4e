r"""A process tree that cannot outlive its block. The only code in Retinue that starts processes.

    async with open_child(ChildCommand(argv=("pi", "--mode", "rpc"), cwd=cwd, environ=environ), supervisor) as child:
        await child.send(b"...\n")
        while chunk := await child.receive():
            ...
        end = await child.wait()

A child has its own session and no terminal, so neither a Ctrl-C meant for us nor its own `kill 0` reaches the other
side. A child that signals its parent by pid does reach us: only a sandbox could prevent that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from retinue.engines.base import RESOURCE_ADVICE, EngineError, engine_error
from retinue.engines.process import pipes
from retinue.engines.process.command import ChildCommand
from retinue.engines.process.linux_tree import ProcessTree
from retinue.engines.process.started_process import StartedProcess
from retinue.engines.process.supervisor import ProcessSupervisor
from retinue.engines.process.termination import EXIT_CONFIRM_TIMEOUT, TERMINATE_GRACE, terminate_tree
from retinue.engines.process.watchdog import SpawnStageError, WatchdogLostError
from retinue.model.errors import ErrorCode, Failure
from retinue.model.results import ProcessEnd, ProcessUsage
from retinue.support.processes import read_usage
from retinue.support.tasks import BackgroundTasks, run_shielded

SPAWN_FAILED_REASON = "spawn_failed"
CWD_MISSING_REASON = "cwd_missing"
SANDBOX_REASON = "sandbox"
RESOURCE_LIMIT_REASON = "resource_limit"
WATCHDOG_LOST_REASON = "watchdog_lost"

STDERR_TAIL_BYTES = 128 * 2**10
"""Bytes kept of a child's stderr: the end contains the reason why it exited."""
MAX_PIPE_BYTES = 2**20
"""The largest pipe buffer of the kernel, unless an administrator raised it."""
RESERVED_FDS = 4
"""Descriptors reserved per child: terminating it needs some, also when the program has used up all others."""
ANSWERED_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL for a child whose work is done."""

OnUsage = Callable[[ProcessUsage], Coroutine[Any, Any, None]]
"""Receives what a process used. Must not raise."""

_ADVICE = {
    errno.EACCES: "Make it an executable file that this user may run.",
    errno.EPERM: "Make it an executable file that this user may run.",
    errno.ENOEXEC: "It is not a program for this machine, or it lacks a first line such as #!/bin/sh.",
    errno.E2BIG: "Its arguments and environment are too large: shorten the task, or put large texts into files.",
    **RESOURCE_ADVICE,
}
_INSTALL = "Install it, or give its full path."
_INTERPRETER = "The file exists, but the interpreter in its first line does not: install that interpreter."
_NUL = "Remove the NUL character from its arguments or environment."


class ChildExitedError(OSError):
    """The child no longer reads what it is sent."""


@asynccontextmanager
async def open_child(
    command: ChildCommand,
    supervisor: ProcessSupervisor,
    *,
    grace: float = TERMINATE_GRACE,
    on_usage: OnUsage | None = None,
) -> AsyncIterator[ChildProcess]:
    """Start a process; terminate it and all its descendants when the block is left in any way.

    `on_usage` is called with what the process used, when it has ended, if that is known. Called in the thread of the
    event loop.

    Raises:
        EngineError: the process could not be started (`spawn_failed`).
    """
    await anyio.lowlevel.checkpoint()
    try:
        started, tree = await supervisor.start(command)
    except WatchdogLostError as error:
        raise watchdog_lost_error() from error
    except (OSError, ValueError) as error:
        raise spawn_error(command.argv[0], command.cwd, command.environ, error) from error
    process = ChildProcess(started, tree, command)
    try:
        async with BackgroundTasks(process.watch_exit, process.drain_stderr):
            yield process
    finally:
        try:
            await run_shielded(partial(process.finish, grace))
            if on_usage and started.usage:
                await run_shielded(partial(on_usage, started.usage))
        finally:
            supervisor.release(started)


class ChildProcess:
    """A running child."""

    def __init__(self, started: StartedProcess, tree: ProcessTree, command: ChildCommand) -> None:
        self.companions = command.companions
        """Descendants that belong to the program as it was started."""
        self.pid = started.pid
        self.answered = False
        """Set by the caller when the child's work is done: it then has less time to exit."""
        self.killed_descendants = 0
        """Descendants that had to be terminated after the child itself was gone; known when the block is left."""
        self.survivors: tuple[int, ...] = ()
        """Processes that did not end; known when the block is left."""
        self.stderr_bytes = 0
        """Bytes written to stderr so far."""
        self._started = started
        self._limits = command.limits
        self._tree = tree
        self._exit = pipes.OneShotEvent()
        self._end_result: ProcessEnd | None = None
        self._tail = bytearray()
        self._stdin = pipes.open_writer(started.stdin) if started.stdin else None
        self._stdout = pipes.open_reader(started.stdout)
        self._stderr = pipes.open_reader(started.stderr)
        self._reserved_fds = _reserve_fds(started.stderr.fileno())

    def find_program(self) -> int:
        """Return the pid of the program itself.

        In a sandbox it is the last of a chain of processes, each the only child of the one before.

        Raises:
            OSError, ValueError, IndexError: the system does not report it.
        """
        pid = self.pid
        for _ in range(self.companions):
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        return pid

    def measure_usage(self) -> ProcessUsage | None:
        """Return what the program used so far; None if that is not known."""
        if self._started.usage:
            return self._started.usage
        try:
            found = read_usage(self.find_program())
        except (OSError, ValueError, IndexError):
            return None
        return ProcessUsage(*found) if found else None

    @property
    def stderr_tail(self) -> bytes:
        """The end of its stderr."""
        return bytes(self._tail[-STDERR_TAIL_BYTES:])

    async def send(self, data: bytes) -> None:
        """Write all of the data to stdin; wait while the child does not read.

        Raises:
            ChildExitedError: the child no longer reads, or its stdin was closed.
        """
        if self._stdin is None:
            raise ChildExitedError(errno.EPIPE, f"Process {self.pid} has no open stdin.")
        try:
            await self._stdin.send(data, self._exit)
        except ConnectionError as error:
            raise ChildExitedError(errno.EPIPE, f"Process {self.pid} no longer reads its stdin.") from error

    def close_stdin(self) -> None:
        """Close the child's stdin. A second call does nothing."""
        if self._stdin is not None:
            self._stdin.close()
            self._stdin = None

    async def receive(self) -> bytes:
        """Return the next chunk of stdout.

        Empty at end of file; also once the process itself has exited and all its output was received, because its
        descendants may keep its stdout open for ever.
        """
        return await self._stdout.receive(self._exit)

    async def wait(self) -> ProcessEnd:
        """Wait until the process itself exits, also while others hold its pipes.

        Raises:
            EngineError: its watchdog died before it (`watchdog_lost`), or its processes exceeded a limit
                (`resource_limit`).
        """
        await self._exit.wait()
        # A complete answer is not thrown away for what happened after it.
        if self._started.exceeded and not self.answered:
            raise resource_limit_error(*self._started.exceeded, self._limits)
        if self._started.is_lost and not self.answered:
            raise watchdog_lost_error()
        self._drain_buffered_stderr()
        return self._end_result or ProcessEnd()

    async def count_descendants(self) -> int:
        """Return the number of its live descendants."""
        members = await self._tree.list_live()
        for member in members:
            member.close()
        return max(sum(member.pid != self.pid for member in members) - self.companions, 0)

    # -- for `open_child` ------------------------------------------------------------------------------

    async def watch_exit(self) -> None:
        """Wait for the exit and wake up everything that waits for it."""
        self._end_result = await self._started.wait_exit()
        if self._started.is_lost:
            self._tree.forget_root()
        self._exit.set()

    async def drain_stderr(self) -> None:
        """Read stderr as long as any process writes to it, so that a child never blocks on it."""
        while chunk := await self._stderr.receive(pipes.OneShotEvent()):
            self._append_stderr(chunk)

    async def finish(self, grace: float) -> None:
        """Terminate the remaining processes and release all resources."""
        self.close_stdin()
        for descriptor in self._reserved_fds:
            os.close(descriptor)
        if self.answered:
            grace = min(grace, ANSWERED_GRACE)
        # Both pipes are read meanwhile: a child that cannot write cannot exit cleanly either.
        async with BackgroundTasks(self.drain_stderr, self._discard_stdout):
            ending = await terminate_tree(self._tree, self.pid, grace, self._started.has_exited)
        self.killed_descendants = max(ending.killed_descendants - self.companions, 0)
        self.survivors = ending.survivors
        if self._end_result is None and not self.survivors:
            # Absent from every list, it may still be exiting, thread by thread, and cannot be reaped yet.
            with anyio.move_on_after(EXIT_CONFIRM_TIMEOUT):
                self._end_result = await self._started.wait_exit()
        self._exit.set()
        self._drain_buffered_stderr()
        self._stdout.close()
        self._stderr.close()
        await self._tree.close()

    async def _discard_stdout(self) -> None:
        while await self._stdout.receive(pipes.OneShotEvent()):
            pass

    def _drain_buffered_stderr(self) -> None:
        # At most a pipe buffer: a process that inherited the other end may write for ever.
        for _ in range(MAX_PIPE_BYTES // pipes.CHUNK_BYTES):
            if not (chunk := self._stderr.read_now()):
                return
            self._append_stderr(chunk)

    def _append_stderr(self, chunk: bytes) -> None:
        self.stderr_bytes += len(chunk)
        self._tail += chunk
        if len(self._tail) > 4 * STDERR_TAIL_BYTES:
            del self._tail[:-STDERR_TAIL_BYTES]


def watchdog_lost_error() -> EngineError:
    """Return the failure of a run whose watchdog died or was killed."""
    return engine_error(
        "The watchdog process that starts the agent's processes was killed, or did not respond. The processes were "
        "ended, and the output so far was kept. Run the task again: it gets a new watchdog.",
        reason=WATCHDOG_LOST_REASON,
    )


def resource_limit_error(name: str, used: int, limits: Mapping[str, int]) -> EngineError:
    """Return the failure of a run whose processes exceeded a limit."""
    noun = {"max_memory_bytes": "bytes of memory", "max_disk_bytes": "bytes on disk"}.get(name, "processes")
    return EngineError(
        Failure(
            ErrorCode.ENGINE,
            f"The run used {used} {noun}, and {name} is {limits[name]}. Its processes were ended, and the output so "
            f"far was kept. Make the task smaller, or raise {name}.",
            RESOURCE_LIMIT_REASON,
            {"limit": name, "used": used},
        )
    )


def spawn_error(program: str, cwd: str, environ: Mapping[str, str], error: OSError | ValueError) -> EngineError:
    """Return the failure of a run whose child did not start."""
    if isinstance(error, ValueError):
        return _not_started_error(f"Could not start {program}: {error}.", _NUL)
    why = f"{os.strerror(error.errno) if error.errno else error} ({errno.errorcode.get(error.errno or 0, 'error')})"
    if isinstance(error, SpawnStageError) and error.stage == "sandbox":
        return _not_started_error(
            f"Could not apply the sandbox of {program}: {why}.",
            "Run `retinue doctor` to see which sandboxes work on this machine.",
            SANDBOX_REASON,
        )
    if isinstance(error, SpawnStageError) and error.stage == "limits":
        return _not_started_error(
            f"Could not limit what {program} uses: {why}.",
            "Limits on memory, processes and disk need Linux 5.3 or newer: set them to 0 to run without.",
        )
    # Both a missing program and a missing folder are ENOENT; only the file name distinguishes them.
    if error.filename == cwd != program:
        return _not_started_error(
            f"Could not start {program} in {cwd}: {why}.", "Choose a folder that exists.", CWD_MISSING_REASON
        )
    if error.errno == errno.ENOENT:
        is_there = shutil.which(program, path=environ.get("PATH", os.defpath))
        return _not_started_error(f"Could not start {program}: {why}.", _INTERPRETER if is_there else _INSTALL)
    return _not_started_error(
        f"Could not start {program}: {why}.", _ADVICE.get(error.errno or 0, "Try it in a terminal.")
    )


def _not_started_error(what: str, advice: str, reason: str = SPAWN_FAILED_REASON) -> EngineError:
    return engine_error(f"{what} Nothing was run. {advice}", code=ErrorCode.SPAWN_FAILED, reason=reason)


def _reserve_fds(descriptor: int) -> list[int]:
    """Return copies of a descriptor, as many as possible, to be closed when descriptors are needed."""
    copies: list[int] = []
    with contextlib.suppress(OSError):
        copies += (os.dup(descriptor) for _ in range(RESERVED_FDS))
    return copies
