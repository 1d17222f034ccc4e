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

CHUNK_BYTES = 256 * 2**10
"""Bytes read at once, and the size of a pipe where it can be chosen: fewer turns of the loop."""


class OneShotEvent:
    """Something that happens once. Whoever waits for a pipe `unless` it happens is released when it does."""

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
        """Waits for the descriptor, or until it happens."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                await wait(descriptor)
            finally:
                self._scopes.discard(scope)


class PipeReader(Protocol):
    """What a child writes to."""

    async def receive(self, end: OneShotEvent) -> bytes:
        """The next chunk. Empty at end of file, and when `end` has happened and nothing is left to read."""

    def read_now(self) -> bytes | None:
        """What is there; None if nothing is, empty at end of file."""

    def close(self) -> None: ...


class PipeWriter(Protocol):
    """What a child reads from."""

    async def send(self, data: bytes, end: OneShotEvent) -> None:
        """Writes all of it, waiting while the pipe is full.

        Raises:
            OSError: nobody reads it any more.
        """

    def close(self) -> None: ...


class AsyncPipeReader:
    """A read end that the loop waits for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._descriptor = file.fileno()
        os.set_blocking(self._descriptor, False)
        _enlarge_pipe(self._descriptor)

    async def receive(self, end: OneShotEvent) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            # Asked before reading: what was written before the end is then there to be read.
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
    """A write end that the loop waits for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._descriptor = file.fileno()
        os.set_blocking(self._descriptor, False)

    async def send(self, data: bytes, end: OneShotEvent) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            if end.is_set:
                # Its own children may hold the other end open: nobody who was meant reads it.
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
    """A read end where pipes cannot be waited for (Windows): a thread reads, and always to the end of file."""

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
        # A thread abandoned by a cancelled wait reads on: what it got is kept for the next one.
        with self._read_lock:
            if not self._chunks:
                self._chunks.append(self._read())

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, CHUNK_BYTES)
        except OSError:
            return b""


class ThreadedPipeWriter:
    """A write end where pipes cannot be waited for (Windows)."""

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
    """Makes the pipe as large as a chunk, where the kernel lets us."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
