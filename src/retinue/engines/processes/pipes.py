"""Our ends of a child's pipes: read and written without ever blocking the loop."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from typing import IO, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread

CHUNK = 256 * 2**10
"""Bytes read at once, and the size of a pipe where it can be chosen: fewer turns of the loop."""


class Once:
    """Something that happens once. Whoever waits for a pipe `unless` it happens is released when it does."""

    def __init__(self) -> None:
        self.happened = False
        self._event = anyio.Event()
        self._waiting: set[anyio.CancelScope] = set()

    def happen(self) -> None:
        self.happened = True
        self._event.set()
        for scope in self._waiting:
            scope.cancel()

    async def wait(self) -> None:
        await self._event.wait()

    async def unless(self, wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
        """Waits for the descriptor, or until it happens."""
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                await wait(descriptor)
            finally:
                self._waiting.discard(scope)


class Source(Protocol):
    """What a child writes to."""

    async def receive(self, end: Once) -> bytes:
        """The next chunk. Empty at end of file, and when `end` has happened and nothing is left to read."""

    def read_now(self) -> bytes | None:
        """What is there; None if nothing is, empty at end of file."""

    def close(self) -> None: ...


class Sink(Protocol):
    """What a child reads from."""

    async def send(self, data: bytes, end: Once) -> None:
        """Writes all of it, waiting while the pipe is full.

        Raises:
            OSError: nobody reads it any more.
        """

    def close(self) -> None: ...


class WaitingSource:
    """A read end that the loop waits for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._descriptor = file.fileno()
        os.set_blocking(self._descriptor, False)
        _enlarge(self._descriptor)

    async def receive(self, end: Once) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            # Asked before reading: what was written before the end is then there to be read.
            is_last = end.happened
            chunk = self.read_now()
            if chunk is not None:
                return chunk
            if is_last:
                return b""
            await end.unless(anyio.wait_readable, self._descriptor)

    def read_now(self) -> bytes | None:
        if self._file.closed:
            return b""
        try:
            return os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return None

    def close(self) -> None:
        if not self._file.closed:
            anyio.notify_closing(self._descriptor)
            self._file.close()


class WaitingSink:
    """A write end that the loop waits for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._descriptor = file.fileno()
        os.set_blocking(self._descriptor, False)

    async def send(self, data: bytes, end: Once) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            if end.happened:
                # Its own children may hold the other end open: nobody who was meant reads it.
                raise BrokenPipeError
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                await end.unless(anyio.wait_writable, self._descriptor)

    def close(self) -> None:
        if not self._file.closed:
            anyio.notify_closing(self._descriptor)
            self._file.close()


class ThreadedSource:
    """A read end where pipes cannot be waited for (Windows): a thread reads, and always to the end of file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._descriptor = file.fileno()
        self._chunks: list[bytes] = []
        self._one_reads = threading.Lock()

    async def receive(self, end: Once) -> bytes:
        await anyio.to_thread.run_sync(self._fetch, abandon_on_cancel=True)
        return self._chunks.pop()

    def read_now(self) -> bytes | None:
        return self._chunks.pop() if self._chunks else None

    def close(self) -> None:
        self._file.close()

    def _fetch(self) -> None:
        # A thread abandoned by a cancelled wait reads on: what it got is kept for the next one.
        with self._one_reads:
            if not self._chunks:
                self._chunks.append(self._read())

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, CHUNK)
        except OSError:
            return b""


class ThreadedSink:
    """A write end where pipes cannot be waited for (Windows)."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._descriptor = file.fileno()

    async def send(self, data: bytes, end: Once) -> None:
        rest = memoryview(data)
        while rest:
            written = await anyio.to_thread.run_sync(os.write, self._descriptor, rest, abandon_on_cancel=True)
            rest = rest[written:]

    def close(self) -> None:
        self._file.close()


def source(file: IO[bytes]) -> Source:
    return ThreadedSource(file) if os.name == "nt" else WaitingSource(file)


def sink(file: IO[bytes]) -> Sink:
    return ThreadedSink(file) if os.name == "nt" else WaitingSink(file)


def _enlarge(descriptor: int) -> None:
    """Makes the pipe as large as a chunk, where the kernel lets us."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, CHUNK)
