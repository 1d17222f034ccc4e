"""Our ends of a child's pipes: read and written without blocking the event loop."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from typing import IO, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread

from retinue.engines.process.command import StdinMode

CHUNK_BYTES = 256 * 2**10
"""Bytes read at once, and the size of a pipe where it can be set: fewer iterations of the loop."""

SOCKET_BYTES = 4 * 2**20
"""Size asked for a socket; older kernels give less."""


class OneShotEvent:
    """An event that also interrupts tasks waiting for a pipe."""

    def __init__(self) -> None:
        self.is_set = False
        self._event = anyio.Event()
        self._scopes: set[anyio.CancelScope] = set()

    def set(self) -> None:
        self.is_set = True
        self._event.set()
        for scope in self._scopes:
            scope.cancel()

    async def wait(self) -> None:
        await self._event.wait()

    async def wait_readable_unless_set(self, wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
        """Wait for the descriptor, or until the event is set."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                await wait(descriptor)
            finally:
                self._scopes.discard(scope)


class PipeReader(Protocol):
    """The read end of a pipe the child writes to."""

    async def receive(self, end: OneShotEvent) -> bytes:
        """Return the next chunk. Empty at end of file, and when `end` is set and nothing is left to read."""

    def read_now(self) -> bytes | None:
        """Return the available bytes; None if there are none, empty at end of file."""

    def close(self) -> None: ...


class PipeWriter(Protocol):
    """The write end of a pipe the child reads from."""

    async def send(self, data: bytes, end: OneShotEvent) -> None:
        """Write all of the data, waiting while the pipe is full.

        Raises:
            OSError: the pipe is no longer read.
        """

    def close(self) -> None: ...


class AsyncPipeReader:
    """A read end that the event loop waits for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._descriptor = file.fileno()
        os.set_blocking(self._descriptor, False)
        _enlarge_pipe(self._descriptor)

    async def receive(self, end: OneShotEvent) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            # Checked before reading: everything written before the end is then readable.
            is_last = end.is_set
            chunk = self.read_now()
            if chunk is not None:
                return chunk
            if is_last:
                return b""
            await end.wait_readable_unless_set(anyio.wait_readable, self._descriptor)

    def read_now(self) -> bytes | None:
        if self._file.closed:
            return b""
        try:
            return os.read(self._descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return None

    def close(self) -> None:
        if not self._file.closed:
            anyio.notify_closing(self._descriptor)
            self._file.close()


class AsyncPipeWriter:
    """A write end that the event loop waits for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._descriptor = file.fileno()
        os.set_blocking(self._descriptor, False)

    async def send(self, data: bytes, end: OneShotEvent) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            if end.is_set:
                # Its own children may keep the other end open: the process it was meant for is gone.
                raise BrokenPipeError
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                await end.wait_readable_unless_set(anyio.wait_writable, self._descriptor)

    def close(self) -> None:
        if not self._file.closed:
            anyio.notify_closing(self._descriptor)
            self._file.close()


class ThreadedPipeReader:
    """A read end where pipes cannot be polled (Windows): a thread reads, always to the end of file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._descriptor = file.fileno()
        self._chunks: list[bytes] = []
        self._read_lock = threading.Lock()

    async def receive(self, end: OneShotEvent) -> bytes:
        await anyio.to_thread.run_sync(self._fetch, abandon_on_cancel=True)
        return self._chunks.pop()

    def read_now(self) -> bytes | None:
        return self._chunks.pop() if self._chunks else None

    def close(self) -> None:
        self._file.close()

    def _fetch(self) -> None:
        # A thread abandoned by a cancelled wait continues to read: its chunk is kept for the next call.
        with self._read_lock:
            if not self._chunks:
                self._chunks.append(self._read())

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, CHUNK_BYTES)
        except OSError:
            return b""


class ThreadedPipeWriter:
    """A write end where pipes cannot be polled (Windows)."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._descriptor = file.fileno()

    async def send(self, data: bytes, end: OneShotEvent) -> None:
        rest = memoryview(data)
        while rest:
            written = await anyio.to_thread.run_sync(os.write, self._descriptor, rest, abandon_on_cancel=True)
            rest = rest[written:]

    def close(self) -> None:
        self._file.close()


def open_reader(file: IO[bytes]) -> PipeReader:
    return ThreadedPipeReader(file) if os.name == "nt" else AsyncPipeReader(file)


def open_writer(file: IO[bytes]) -> PipeWriter:
    return ThreadedPipeWriter(file) if os.name == "nt" else AsyncPipeWriter(file)


def _enlarge_pipe(descriptor: int) -> None:
    """Make the pipe as large as a chunk, where the kernel allows it."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)


class ChildStreams:
    """The standard streams of a child that is about to be started: our ends, and its own."""

    def __init__(self, stdin: StdinMode, *, private: bool = False) -> None:
        """Open all streams; stdin and stdout are sockets if they are private.

        Raises:
            OSError: descriptors are short.
        """
        self.stdin: IO[bytes] | None = None
        self.child_ends: list[int] = []
        self._ours: list[IO[bytes]] = []
        open_pair = _open_sockets if private else os.pipe
        try:
            if stdin is StdinMode.PIPE:
                self.stdin = self._open_input(open_pair)
            else:
                self.child_ends.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            self.stdout = self._open_output(open_pair)
            self.stderr = self._open_output(os.pipe)
        except OSError:
            self.close()
            raise

    def close_child_ends(self) -> None:
        """Close the ends that the child has by now."""
        while self.child_ends:
            os.close(self.child_ends.pop())

    def close(self) -> None:
        """Close everything, for a child that did not start."""
        self.close_child_ends()
        for file in self._ours:
            file.close()

    def _open_input(self, open_pair: Callable[[], tuple[int, int]]) -> IO[bytes]:
        theirs, ours = open_pair()
        return self._keep(ours, theirs, "wb")

    def _open_output(self, open_pair: Callable[[], tuple[int, int]]) -> IO[bytes]:
        ours, theirs = open_pair()
        return self._keep(ours, theirs, "rb")

    def _keep(self, ours: int, theirs: int, mode: str) -> IO[bytes]:
        self.child_ends.append(theirs)
        self._ours.append(os.fdopen(ours, mode, buffering=0))
        return self._ours[-1]


def _open_sockets() -> tuple[int, int]:
    """Return a socket to read from and one to write to, like a pipe."""
    import socket

    # Not shut down in the other direction: some programs take that for a reader that has gone.
    reading, writing = socket.socketpair()
    # As large as `net.core.wmem_max` allows: Node drops what does not fit when a program calls process.exit.
    writing.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    return reading.detach(), writing.detach()
