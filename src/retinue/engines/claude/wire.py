"""The lines to and from one Claude Code: what the SDK is to answer goes to it, all else is kept for the run.

The SDK would start the process itself, read its lines with limits of its own, and end it without its descendants.
So it is given this as its transport: the process is one of our children, and the SDK only speaks with it.
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
"""Of output that may wait while a run is told what came before."""


class IncomingLine(Struct, frozen=True):
    """One line."""

    size: int
    value: Any
    """What it says; None if it is no JSON object."""
    raw: bytes = b""
    """Of a line that is none; empty if it was too long to be kept."""


class ReceiveBuffer:
    """Lines that wait for one who takes them. Nothing is lost if that one is cancelled."""

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
        """No more will come."""
        self._has_ended = True
        self._arrived.set()

    async def wait_for_room(self) -> None:
        """Returns when not too much waits."""
        while self._bytes > MAX_BUFFERED_BYTES:
            self._drained = anyio.Event()
            await self._drained.wait()

    async def take_all(self) -> list[IncomingLine]:
        """What waits, all at once, when there is something; nothing at the end."""
        while not self._lines and not self._has_ended:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        lines, self._lines, self._bytes = self._lines, [], 0
        self._drained.set()
        return lines


class ClaudeTransport:
    """As the SDK's `Transport` has it, and beside it `receive` for the run."""

    def __init__(self, process: ChildProcess, aliases: Mapping[str, str] | None = None) -> None:
        """With `aliases`, tools by the names models call them are carried out by those of other names."""
        self._process = process
        self._aliases = aliases
        self._for_run = ReceiveBuffer()
        self._for_sdk = ReceiveBuffer()
        self._writing = anyio.Lock()
        self._waiting = anyio.CancelScope()
        self.has_ended = False
        """Whether the process has closed its output, or is gone."""

    # -- for the run ---------------------------------------------------------------------------------

    async def pump(self) -> None:
        """Reads until the output ends. To be run beside everything else."""
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
        """Whether the work was done; it is given up when the output ends, since nobody will answer."""
        with self._waiting:
            if not self.has_ended:
                await work()
                return True
        return False

    async def receive(self) -> list[IncomingLine]:
        """The lines that came since the last ones; none at the end. Nothing is lost if this is cancelled."""
        return await self._for_run.take_all()

    def _route_lines(self, lines: list[bytes | LineTooLong]) -> None:
        for line in lines:
            incoming = parse_line(line)
            is_control = incoming.value is not None and incoming.value.get("type") in CONTROL_TYPES
            (self._for_sdk if is_control else self._for_run).add(incoming)

    # -- for the SDK ---------------------------------------------------------------------------------

    async def connect(self) -> None:
        """The process runs already."""

    def is_ready(self) -> bool:
        return not self.has_ended

    async def write(self, data: str) -> None:
        if self._aliases:
            data, self._aliases = _add_aliases(data, self._aliases), None
        # A process that is gone reads no answers; the end of its output says so to whom it concerns.
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
    """The SDK's first request with what it has no words for, unlike the one for TypeScript."""
    fields = msgspec.json.decode(request)
    fields["request"]["toolAliases"] = aliases
    return msgspec.json.encode(fields).decode() + "\n"


def parse_line(line: bytes | LineTooLong) -> IncomingLine:
    """What a line says."""
    if isinstance(line, LineTooLong):
        return IncomingLine(line.size, None)
    value = decode_line(line)
    return IncomingLine(len(line), value) if isinstance(value, dict) else IncomingLine(len(line), None, line)
