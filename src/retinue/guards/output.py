"""Stops a child that floods its output."""

from __future__ import annotations

from typing import ClassVar

from retinue.events import (
    Event,
    OutputCounted,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolDelta,
    ToolReturned,
)
from retinue.guards.base import Kinds, Timeless
from retinue.types import Code, Failure, Limits

DELTAS = (TextDelta, ThinkingDelta, ToolDelta)
BLOCKS = (Text, Thinking, ToolReturned)


class OutputGuard(Timeless):
    """Counts what a child wrote: durable output, errors, and everything.

    Engines with a process count bytes themselves; without one the text of their events is counted.
    """

    judges: ClassVar[Kinds] = (OutputCounted, *DELTAS, *BLOCKS)

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._stdout = self._stderr = self._raw = 0
        self._counted = False

    def observe(self, event: Event, now: float) -> Failure | None:
        if isinstance(event, DELTAS):
            if not self._counted:
                self._raw += len(event.text)
        elif isinstance(event, OutputCounted):
            self._counted = True
            self._stdout += event.stdout
            self._stderr += event.stderr
            self._raw += event.raw
        elif isinstance(event, BLOCKS) and not self._counted:
            self._stdout += len(event.text)
        return self._exceeded()

    def _exceeded(self) -> Failure | None:
        limits = self._limits
        if self._stdout > limits.stdout_bytes:
            return _stopped("stdout", limits.stdout_bytes)
        if self._stderr > limits.stderr_bytes:
            return _stopped("stderr", limits.stderr_bytes)
        if self._raw > limits.raw_bytes:
            return _stopped("raw output", limits.raw_bytes)
        return None


def _stopped(stream: str, limit: int) -> Failure:
    return Failure(
        Code.OUTPUT_LIMIT,
        f"Subagent child output exceeded {stream} hard limit ({limit} bytes) and was stopped.",
        reason=stream.replace(" ", "_"),
    )
