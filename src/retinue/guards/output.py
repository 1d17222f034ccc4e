"""Stop a child process that floods its output."""

from __future__ import annotations

from typing import ClassVar

from retinue.guards.base import EventTypes, GuardWithoutDeadline
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    Event,
    OutputBytesCounted,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolDelta,
    ToolReturned,
)
from retinue.model.runs import Limits

DELTA_EVENTS = (TextDelta, ThinkingDelta, ToolDelta)
BLOCK_EVENTS = (Text, Thinking, ToolReturned)


class OutputGuard(GuardWithoutDeadline):
    """Counts what a child process wrote: durable output, stderr, and everything.

    Engines with a process count bytes themselves; without one the text of their events is counted.
    """

    observes: ClassVar[EventTypes] = (OutputBytesCounted, *DELTA_EVENTS, *BLOCK_EVENTS)

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._stdout = self._stderr = self._raw = 0
        self._counted = False

    def observe(self, event: Event, now: float) -> Failure | None:
        if isinstance(event, DELTA_EVENTS):
            if not self._counted:
                self._raw += len(event.text)
        elif isinstance(event, OutputBytesCounted):
            self._counted = True
            self._stdout += event.stdout
            self._stderr += event.stderr
            self._raw += event.raw
        elif isinstance(event, BLOCK_EVENTS) and not self._counted:
            self._stdout += len(event.text)
        return self._find_exceeded()

    def _find_exceeded(self) -> Failure | None:
        limits = self._limits
        if self._stdout > limits.stdout_bytes:
            return _output_failure("stdout", limits.stdout_bytes)
        if self._stderr > limits.stderr_bytes:
            return _output_failure("stderr", limits.stderr_bytes)
        if self._raw > limits.raw_bytes:
            return _output_failure("raw output", limits.raw_bytes)
        return None


def _output_failure(stream: str, limit: int) -> Failure:
    return Failure(
        ErrorCode.OUTPUT_LIMIT,
        f"Subagent child output exceeded {stream} hard limit ({limit} bytes) and was stopped.",
        reason=stream.replace(" ", "_"),
    )
