"""The lines to and from one Claude Code: what the SDK is to answer goes to it, all else is kept for the run.

The SDK would start the process itself, read its lines with limits of its own, and end it without its descendants.
So it is given this as its transport: the process is one of our children, and the SDK only speaks with it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from retinue.engines.child import ChildGone, Process
from retinue.engines.lines import Lines, TooLong

CONTROL = frozenset({"control_request", "control_response", "control_cancel_request"})
AHEAD = 64
"""Chunks of output that may wait while a run is told what came before."""


class Heard(Struct, frozen=True):
    """One line."""

    size: int
    value: Any
    """What it says; None if it is no JSON object."""
    raw: bytes = b""
    """Of a line that is none; empty if it was too long to be kept."""


class Wire:
    """As the SDK's `Transport` has it, and beside it `receive` for the run."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._to_sdk, self._for_sdk = anyio.create_memory_object_stream[dict[str, Any]](AHEAD)
        self._to_run, self._for_run = anyio.create_memory_object_stream[list[Heard]](AHEAD)
        self._writing = anyio.Lock()
        self._waiting = anyio.CancelScope()
        self.has_ended = False
        """Whether the process has closed its output, or is gone."""

    # -- for the run ---------------------------------------------------------------------------------

    async def pump(self) -> None:
        """Reads until the output ends. To be run beside everything else."""
        lines = Lines()
        with self._to_sdk, self._to_run:
            while chunk := await self._process.receive():
                await self._sort(lines.feed(chunk))
            self.has_ended = True
            self._waiting.cancel()
            await self._sort(lines.end())

    async def unless_ended(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Whether the work was done; it is given up when the output ends, since nobody will answer."""
        with self._waiting:
            if not self.has_ended:
                await work()
                return True
        return False

    async def receive(self) -> list[Heard]:
        """The next lines; none at the end."""
        try:
            return await self._for_run.receive()
        except anyio.EndOfStream:
            return []

    async def _sort(self, lines: list[bytes | TooLong]) -> None:
        kept = []
        for line in lines:
            heard = _heard(line)
            if isinstance(heard.value, dict) and heard.value.get("type") in CONTROL:
                # An SDK that has left needs no answer any more.
                with suppress(anyio.BrokenResourceError):
                    await self._to_sdk.send(heard.value)
            else:
                kept.append(heard)
        if kept:
            with suppress(anyio.BrokenResourceError):
                await self._to_run.send(kept)

    # -- for the SDK ---------------------------------------------------------------------------------

    async def connect(self) -> None:
        """The process runs already."""

    def is_ready(self) -> bool:
        return not self.has_ended

    async def write(self, data: str) -> None:
        # A process that is gone reads no answers; the end of its output says so to whom it concerns.
        with suppress(ChildGone):
            async with self._writing:
                await self._process.send(data.encode())

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async for message in self._for_sdk:
            yield message

    async def end_input(self) -> None:
        self._process.close_stdin()

    async def close(self) -> None:
        self._process.close_stdin()
        self._for_sdk.close()
        self._for_run.close()


def _heard(line: bytes | TooLong) -> Heard:
    if isinstance(line, TooLong):
        return Heard(line.size, None)
    value = _decoded(line)
    return Heard(len(line), value) if isinstance(value, dict) else Heard(len(line), None, line)


def _decoded(line: bytes) -> Any:
    """The value; None for what is no JSON, or too deep to be meant seriously."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:  # Half a character, which msgspec refuses, is mended further on; invalid UTF-8 here.
        return json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
