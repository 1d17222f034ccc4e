"""Line-based stdin and stdout for servers: bounded, without threads, cancelled at once when the server ends.

The MCP SDK's own wrappers read lines of any length, cannot be cancelled while they wait, and change threads three
times for every call.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import anyio
import anyio.lowlevel
import anyio.to_thread

from retinue.output.untrusted_text import complete_escapes
from retinue.support.own_process import flush_stream

MAX_LINE_BYTES = 4 * 2**20
"""Length of one message, as over HTTP. A longer one is skipped and reported on stderr."""
_CHUNK = 2**16
_NEEDS_THREADS = os.name == "nt"
STDIN, STDOUT, STDERR = 0, 1, 2


class LineReader:
    """The lines of a descriptor, each a JSON text with its line feed and without lone surrogates."""

    def __init__(self, descriptor: int, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self._descriptor = descriptor
        self._limit = limit_bytes
        self._lines = self._iter_lines()

    def __aiter__(self) -> AsyncIterator[str]:
        return self._lines

    async def _iter_lines(self) -> AsyncIterator[str]:
        rest, is_skipping = b"", False
        while chunk := await self._read_chunk():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if is_skipping or len(line) > self._limit:
                    _warn_skipped(self._limit)
                elif line.strip():
                    yield complete_escapes(line.decode("utf-8", "replace")) + "\n"
                is_skipping = False
            if len(rest) > self._limit:
                rest, is_skipping = b"", True

    async def _read_chunk(self) -> bytes:
        """Wait for bytes and return them; none at the end of the stream."""
        if _NEEDS_THREADS:
            return await anyio.to_thread.run_sync(os.read, self._descriptor, _CHUNK, abandon_on_cancel=True)
        while True:
            await _wait_ready(anyio.wait_readable, self._descriptor)
            with suppress(BlockingIOError):  # another process has read it
                return os.read(self._descriptor, _CHUNK)


class DescriptorWriter:
    """A writer to a descriptor that can be cancelled while its reader does not keep up."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.reader_left: Callable[[], None] = lambda: None
        """Callback for a closed reading end."""

    async def write(self, text: str) -> None:
        """Write all of the text.

        Raises:
            anyio.ClosedResourceError: the reading end is closed.
        """
        await self.send(text.encode("utf-8", "replace"))

    async def send(self, data: bytes) -> None:
        """Write all of the data.

        Raises:
            anyio.ClosedResourceError: the reading end is closed.
        """
        rest = memoryview(data)
        await anyio.lowlevel.checkpoint()
        while rest:
            try:
                rest = rest[await self._write_some(rest) :]
            except BlockingIOError:
                await _wait_ready(anyio.wait_writable, self._descriptor)
            except OSError as error:
                self.reader_left()
                raise anyio.ClosedResourceError from error

    async def flush(self) -> None:
        """Do nothing: every write is complete."""

    async def _write_some(self, data: memoryview) -> int:
        if _NEEDS_THREADS:
            return await anyio.to_thread.run_sync(os.write, self._descriptor, data, abandon_on_cancel=True)
        return os.write(self._descriptor, data)


@contextmanager
def claim_stdio() -> Iterator[tuple[LineReader, DescriptorWriter]]:
    """Yield stdin and stdout of the process for a protocol server.

    During the block the rest of this process and its children read an empty stdin, and what they print on stdout goes
    to stderr.
    """
    incoming, outgoing = os.dup(STDIN), os.dup(STDOUT)
    devnull = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(devnull, STDIN)
        os.dup2(STDERR, STDOUT)
        with _nonblocking(outgoing):
            yield LineReader(incoming), DescriptorWriter(outgoing)
    finally:
        flush_stream(sys.stdout)
        os.dup2(outgoing, STDOUT)
        os.dup2(incoming, STDIN)
        for descriptor in (incoming, outgoing, devnull):
            os.close(descriptor)


@contextmanager
def _nonblocking(descriptor: int) -> Iterator[None]:
    """Make writes non-blocking for the block, except on a terminal, which other programs write to as well."""
    if _NEEDS_THREADS or os.isatty(descriptor) or not os.get_blocking(descriptor):
        yield
        return
    os.set_blocking(descriptor, False)
    try:
        yield
    finally:
        os.set_blocking(descriptor, True)


async def _wait_ready(wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    """Wait until a descriptor is ready; a regular file always is."""
    try:
        await wait(descriptor)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
        await anyio.lowlevel.checkpoint()


def _warn_skipped(limit_bytes: int) -> None:
    sys.stderr.write(
        f"A message of more than {limit_bytes // 2**20} MiB was skipped and will not be answered. Put long texts "
        "into a file and name the file.\n"
    )
