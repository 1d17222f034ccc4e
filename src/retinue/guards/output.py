"""Stop a run for its output: too much of it, or results that do not match the output schema."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from retinue.guards.base import EventTypes, GuardWithoutDeadline
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    AttemptStarted,
    Event,
    OutputBytesCounted,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolDelta,
    ToolReturned,
)
from retinue.model.runs import Limits
from retinue.model.tool_names import FINALIZE_TOOL

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


SCHEMA_REASON = "schema"
MAX_PAYLOAD_CHARS = 64 * 2**10
"""Characters of the last result in a failure; the session has all of it."""


def schema_failure(violations: str, value: Any) -> Failure:
    """Return the failure of a run whose result does not match its schema, with that result as JSON text."""
    try:
        payload = msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError):
        payload = ascii(value)
    return Failure(
        ErrorCode.NOT_FINALIZED,
        f"The agent gave no result that matches its output schema.\n{violations}\n"
        "The last result was kept in the details of this failure and in the session: resume the session, or change "
        "the schema.",
        SCHEMA_REASON,
        {"violations": violations, "payload": payload[:MAX_PAYLOAD_CHARS]},
    )


class SchemaGuard(GuardWithoutDeadline):
    """Counts rejected finalize calls and reminders; one more than `max_corrections` ends the run."""

    observes: ClassVar[EventTypes] = (AttemptStarted, ToolCalled, ToolReturned)

    def __init__(self, max_corrections: int) -> None:
        self._max_corrections = max_corrections
        self._corrections = 0
        self._results: dict[str, Any] = {}

    def observe(self, event: Event, now: float) -> Failure | None:
        match event:
            case AttemptStarted(reason="finalize"):
                self._corrections += 1
            case ToolCalled(call=call, name=name, args=args) if name == FINALIZE_TOOL:
                self._results[call] = args.get("result")
            case ToolReturned(call=call, name=name, text=text, is_error=is_error) if name == FINALIZE_TOOL:
                result = self._results.pop(call, None)
                if is_error:
                    self._corrections += 1
                if is_error and self._corrections > self._max_corrections:
                    return schema_failure(text, result)
        return None
