"""The watchdog process as seen by Retinue: it starts children on request and reports how they end.

The protocol is in `watchdog_main.py`. A watchdog that dies, or that does not respond, is lost: its children are then
ended by Retinue, and the next child gets a new watchdog.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from retinue.engines.process.pipes import ChildStreams
from retinue.engines.process.started_process import wait_popen
from retinue.model.results import ProcessEnd, ProcessUsage
from retinue.support.processes import WATCHDOG_MODULE, WATCHDOG_OPTIONS

PROGRAM = (
    f"import sys; sys.path.append(sys.argv.pop(1)); import {WATCHDOG_MODULE}; {WATCHDOG_MODULE}.main(*sys.argv[1:])"
)
"""Starts the watchdog from its compiled file: compiling it takes longer than everything else at its start."""
MAX_REPORT_BYTES = 4096
START_TIMEOUT = 20.0
"""Seconds for a child to be executed, and for a request to be taken: more, and the watchdog is frozen."""
BLOCKED_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
"""Blocked when the watchdog is started, so that none ends it before it ignores them."""
KILL_TIMEOUT = 5.0
"""Seconds the watchdog spends on killing the remaining processes."""
REPORT_TIMEOUT = 10.0
"""Seconds from the exit of a child to the report on it."""
EXIT_TIMEOUT = KILL_TIMEOUT + 1.0
"""Seconds the watchdog has to exit when it is stopped: it may have to kill others first."""
EOF = ("",)
"""The end of a status socket, as a report."""


class WatchdogLostError(OSError):
    """Raised if the watchdog died or did not respond."""


class SpawnStageError(OSError):
    """Raised if a child was not executed."""

    def __init__(self, stage: str, number: int, filename: str) -> None:
        super().__init__(number, os.strerror(number), filename)
        self.stage = stage
        """The step that failed: `fork`, `cwd`, `sandbox` or `exec`."""


class SpawnRequest(Struct, frozen=True, kw_only=True):
    """A program for the watchdog to start."""

    argv: Sequence[str]
    cwd: str
    environ: Mapping[str, str]
    cgroup: Path | None
    sandbox: Mapping[str, object] | None
    limits: Mapping[str, int]
    run: str
    pass_fds: Sequence[int]

    def encode(self) -> bytes:
        """Return the request in the watchdog's format.

        Raises:
            ValueError: a text contains a NUL character, or the name of a variable is impossible.
        """
        if not all(name and "=" not in name for name in self.environ):
            raise ValueError("illegal environment variable name")
        argv = [_encode(each) for each in self.argv]
        environ = {_encode(name): _encode(value) for name, value in self.environ.items()}
        program = self.argv[0]
        folders = [""] if os.path.dirname(program) else os.get_exec_path(dict(self.environ))  # noqa: PTH120
        return marshal.dumps(
            {
                "argv": argv,
                "programs": [_encode(os.path.join(folder, program)) for folder in folders],  # noqa: PTH118
                "cwd": _encode(self.cwd),
                "environ": environ,
                "targets": [0, 1, 2, *self.pass_fds],
                "cgroup": str(self.cgroup or ""),
                "limits": dict(self.limits),
                "run": self.run,
                "sandbox": None if self.sandbox is None else dict(self.sandbox),
            }
        )


class Watchdog:
    """The running `watchdog_main.py`. Its socket closes when this process dies, and it then kills the children."""

    def __init__(self, cgroup: Path | None, environ: dict[str, str]) -> None:
        """Start the watchdog; requests may be sent at once.

        Raises:
            OSError: it could not be started.
        """
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name) for name in BLOCKED_SIGNALS])
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [
                    *(sys.executable, *WATCHDOG_OPTIONS, PROGRAM, str(Path(__file__).parent)),
                    *(str(os.getpid()), str(KILL_TIMEOUT), str(cgroup or "")),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environ,
                start_new_session=True,
            )
        except OSError:
            self._socket.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            theirs.close()
        self._socket.setblocking(False)
        self._sending = anyio.Lock()
        self._was_killed = False
        self.pid = self._process.pid

    def is_gone(self) -> bool:
        """Return whether the watchdog has died, or is about to."""
        if self._was_killed or self._process.poll() is not None:
            return True
        try:
            return not self._socket.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def kill(self) -> None:
        """Kill a watchdog that does not respond: its children are then reported as lost."""
        self._was_killed = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def close(self) -> None:
        """Release a watchdog that is gone."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    async def stop(self) -> None:
        """Stop the watchdog and wait for it. Remaining descendants are killed first."""
        self._socket.close()
        with anyio.move_on_after(EXIT_TIMEOUT):
            await wait_popen(self._process)
        self._process.kill()
        self._process.wait()

    async def spawn(self, request: SpawnRequest, streams: ChildStreams) -> WatchdogChild:
        """Start a child with these streams.

        Raises:
            OSError: it could not be started; `filename` is the directory if that is the reason, else the program.
            WatchdogLostError: the watchdog died or does not respond.
            ValueError: as raised by `SpawnRequest.encode`.
        """
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        status.setblocking(False)
        child = WatchdogChild(self, status, streams)
        try:
            with theirs, _write_memory_file(request.encode()) as file:
                await self._send([theirs.fileno(), file, *streams.child_ends, *request.pass_fds])
            streams.close_child_ends()
            await self._wait_started(child, request)
        except BaseException:
            child.release()
            raise
        return child

    async def _send(self, descriptors: Sequence[int]) -> None:
        with anyio.move_on_after(START_TIMEOUT, shield=True):
            async with self._sending:
                while not self._try_send(descriptors):
                    await anyio.wait_writable(self._socket)
                return
        raise self._freeze_error()

    def _try_send(self, descriptors: Sequence[int]) -> bool:
        """Send a request; return False if there is no room for it yet."""
        try:
            socket.send_fds(self._socket, [str(len(descriptors)).encode()], descriptors)
        except BlockingIOError:
            return False
        except ConnectionError as error:
            raise WatchdogLostError(errno.EPIPE, "The watchdog is gone") from error
        return True

    async def _wait_started(self, child: WatchdogChild, request: SpawnRequest) -> None:
        with anyio.move_on_after(START_TIMEOUT, shield=True):
            await child.wait_started(request)
            return
        # With a pid, it is the child that does not come to its program, such as in a folder of a dead file server.
        if child.pid:
            raise SpawnStageError("cwd", errno.ETIMEDOUT, request.cwd)
        raise self._freeze_error()

    def _freeze_error(self) -> WatchdogLostError:
        """Kill a watchdog that does not respond and return the error of the start."""
        self.kill()
        return WatchdogLostError(errno.ETIMEDOUT, "The watchdog does not respond")


class WatchdogChild:
    """A child of the watchdog. Its pid stays its own until `release`."""

    def __init__(self, watchdog: Watchdog, status: socket.socket, streams: ChildStreams) -> None:
        self.pid = 0
        self.stdin, self.stdout, self.stderr = streams.stdin, streams.stdout, streams.stderr
        self.is_lost = False
        self.exceeded: tuple[str, int] | None = None
        self.usage: ProcessUsage | None = None
        self._watchdog = watchdog
        self._status = status
        self._end: ProcessEnd | None = None
        self._descriptor = -1
        """A process descriptor: it reports an exit even if the watchdog does not."""

    async def wait_started(self, request: SpawnRequest) -> None:
        while True:
            match await self._receive():
                case ("forked", int(pid)):
                    self.pid = pid
                    self._descriptor = os.pidfd_open(pid)
                case ("started",):
                    return
                case ("failed", str(stage), int(number)):
                    raise SpawnStageError(stage, number, request.cwd if stage == "cwd" else request.argv[0])
                case _ if self._watchdog.is_gone():
                    raise WatchdogLostError(errno.EPIPE, "The watchdog is gone")
                case _:
                    # It had no descriptor left to receive the request with.
                    raise SpawnStageError("fork", errno.EMFILE, request.argv[0])

    def has_exited(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return self.is_lost or bool(poll.poll(0))

    async def wait_exit(self) -> ProcessEnd:
        if self._end is None:
            async with anyio.create_task_group() as group:
                group.start_soon(self._kill_frozen_watchdog)
                report = await self._receive()
                while report[0] == "limit":
                    self._note_limit(report)
                    report = await self._receive()
                self._note_end(report)
                group.cancel_scope.cancel()
        return self._end or ProcessEnd()

    def release(self) -> None:
        self._status.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def _kill_frozen_watchdog(self) -> None:
        await anyio.wait_readable(self._descriptor)
        await anyio.sleep(REPORT_TIMEOUT)
        if not select.select([self._status], [], [], 0)[0]:
            self._watchdog.kill()

    async def _receive(self) -> tuple[object, ...]:
        while True:
            try:
                data = self._status.recv(MAX_REPORT_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._status)
            except ConnectionError:
                return EOF
            else:
                report: tuple[object, ...] = marshal.loads(data) if data else EOF  # noqa: S302 - our own program
                return report

    def _note_limit(self, report: tuple[object, ...]) -> None:
        match report:
            case (_, str(name), int(used)):
                self.exceeded = (name, used)

    def _note_end(self, report: tuple[object, ...]) -> None:
        match report:
            case ("exited", int(code), *usage):
                self._end = ProcessEnd(code=code)
                self._note_usage(usage)
            case ("killed", int(number), *usage):
                self._end = ProcessEnd(signal=number)
                self._note_usage(usage)
            case _:
                self.is_lost = True
                self._end = ProcessEnd()

    def _note_usage(self, usage: list[object]) -> None:
        match usage:
            case [int(microseconds), int(peak)]:
                self.usage = ProcessUsage(microseconds / 1e6, peak)


@contextlib.contextmanager
def _write_memory_file(data: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("retinue-request")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield descriptor
    finally:
        os.close(descriptor)


def _encode(text: str) -> bytes:
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise ValueError("embedded null byte")
    return encoded
