"""Bound the corrections of a result that does not match its output schema."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from retinue.guards.base import EventTypes, GuardWithoutDeadline
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import AttemptStarted, Event, ToolCalled, ToolReturned
from retinue.model.tool_names import FINALIZE_TOOL

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
        "Its last result is kept in the detail of this failure and in the session: resume it, or change the schema.",
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
