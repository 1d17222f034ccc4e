"""Lines to and from one Claude Code: requests for the SDK go to the SDK, everything else is kept for the run.

The SDK would start the process itself, read its lines with limits of its own, and stop it without its descendants.
With this transport the process is one of our children, and the SDK only exchanges messages with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from retinue.engines.json_lines import LineSplitter, LineTooLong, decode_line
from retinue.engines.process.child import ChildExitedError, ChildProcess

CONTROL_TYPES = frozenset({"control_request", "control_response", "control_cancel_request"})
MAX_BUFFERED_BYTES = 8 << 20
"""Bytes of output that may wait while earlier output is reported."""


class IncomingLine(Struct, frozen=True):
    """One line of output."""

    size: int
    value: Any
    """The JSON object in the line; None if it is none."""
    raw: bytes = b""
    """The bytes of a line that is no JSON object; empty if it was too long."""


class ReceiveBuffer:
    """A queue of lines. Nothing is lost if the reader is cancelled."""

    def __init__(self) -> None:
        self._lines: list[IncomingLine] = []
        self._bytes = 0
        self._has_ended = False
        self._arrived = anyio.Event()
        self._drained = anyio.Event()

    def add(self, line: IncomingLine) -> None:
        self._lines.append(line)
        self._bytes += line.size
        self._arrived.set()

    def end(self) -> None:
        """Mark the end of the lines."""
        self._has_ended = True
        self._arrived.set()

    async def wait_for_room(self) -> None:
        """Wait until the buffer has room."""
        while self._bytes > MAX_BUFFERED_BYTES:
            self._drained = anyio.Event()
            await self._drained.wait()

    async def take_all(self) -> list[IncomingLine]:
        """Wait for lines and return all of them; empty at the end."""
        while not self._lines and not self._has_ended:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        lines, self._lines, self._bytes = self._lines, [], 0
        self._drained.set()
        return lines


class ClaudeTransport:
    """The SDK's `Transport`, and `receive` for the run."""

    def __init__(self, process: ChildProcess, aliases: Mapping[str, str] | None = None) -> None:
        """Store the process; `aliases` maps tool names called by models to the tools that implement them."""
        self._process = process
        self._aliases = aliases
        self._for_run = ReceiveBuffer()
        self._for_sdk = ReceiveBuffer()
        self._writing = anyio.Lock()
        self._waiting = anyio.CancelScope()
        self.has_ended = False
        """True once the process has closed its output or exited."""

    # -- for the run ---------------------------------------------------------------------------------

    async def pump(self) -> None:
        """Read lines until the output ends; runs beside everything else."""
        lines = LineSplitter()
        while chunk := await self._process.receive():
            self._route_lines(lines.feed(chunk))
            await self._for_run.wait_for_room()
            await self._for_sdk.wait_for_room()
        self._route_lines(lines.flush())
        self.has_ended = True
        self._for_run.end()
        self._for_sdk.end()
        self._waiting.cancel()

    async def run_unless_ended(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do the work and return True; return False if the output ends first, since nobody would answer."""
        with self._waiting:
            if not self.has_ended:
                await work()
                return True
        return False

    async def receive(self) -> list[IncomingLine]:
        """Return the lines since the last call; none at the end. Nothing is lost if this is cancelled."""
        return await self._for_run.take_all()

    def _route_lines(self, lines: list[bytes | LineTooLong]) -> None:
        for line in lines:
            incoming = parse_line(line)
            is_control = incoming.value is not None and incoming.value.get("type") in CONTROL_TYPES
            (self._for_sdk if is_control else self._for_run).add(incoming)

    # -- for the SDK ---------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Do nothing: the process is already running."""

    def is_ready(self) -> bool:
        return not self.has_ended

    async def write(self, data: str) -> None:
        if self._aliases:
            data, self._aliases = _add_aliases(data, self._aliases), None
        # A process that has exited reads no answers; the end of its output reports that.
        with suppress(ChildExitedError):
            async with self._writing:
                await self._process.send(data.encode())

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while lines := await self._for_sdk.take_all():
            for line in lines:
                yield line.value

    async def end_input(self) -> None:
        self._process.close_stdin()

    async def close(self) -> None:
        self._process.close_stdin()


def _add_aliases(request: str, aliases: Mapping[str, str]) -> str:
    """Return the SDK's first request with the tool aliases, which only the TypeScript SDK supports."""
    fields = msgspec.json.decode(request)
    fields["request"]["toolAliases"] = aliases
    return msgspec.json.encode(fields).decode() + "\n"


def parse_line(line: bytes | LineTooLong) -> IncomingLine:
    """Parse a line."""
    if isinstance(line, LineTooLong):
        return IncomingLine(line.size, None)
    value = decode_line(line)
    return IncomingLine(len(line), value) if isinstance(value, dict) else IncomingLine(len(line), None, line)
