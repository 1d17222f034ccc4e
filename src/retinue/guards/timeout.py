"""Stop a run that takes too long: at its timeout, or at the ceiling while it still calls tools."""

from __future__ import annotations

from typing import ClassVar

from retinue.guards.base import EventTypes
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Event, ToolCalled
from retinue.model.runs import Limits


class TimeoutGuard:
    """Lets each tool call after the timeout add the grace again, up to the ceiling.

    Timeout and extension are one formula: deadline = max(limit, last tool call) + grace.
    """

    observes: ClassVar[EventTypes] = (ToolCalled,)

    def __init__(self, limits: Limits, start: float) -> None:
        self._start = start
        self._timeout = limits.timeout
        self._grace = limits.grace
        self._limit = start + limits.timeout
        self._ceiling = start + max(limits.ceiling, limits.timeout + limits.grace)
        self._last_call = start
        self.deadline = self._compute_deadline()

    @property
    def timeout(self) -> float:
        """The current timeout, extensions included."""
        return self._timeout

    def extend(self, seconds: float) -> None:
        """Move the deadline and the ceiling, as if the timeout had been longer from the start."""
        more = max(0.0, self._last_call - self._limit) + seconds
        self._timeout += more
        self._limit += more
        self._ceiling += seconds
        self.deadline = self._compute_deadline()

    def observe(self, event: Event, now: float) -> Failure | None:
        if isinstance(event, ToolCalled):
            self._last_call = now
            self.deadline = self._compute_deadline()
        return None

    def _compute_deadline(self) -> float:
        return min(max(self._limit, self._last_call) + self._grace, self._ceiling)

    def expire(self) -> Failure:
        elapsed = round(self.deadline - self._start, 1)
        message = f"Timed out after {self._timeout:.10g}s. Consider resuming with a longer timeout."
        detail = {"timeout": self._timeout}
        if elapsed != round(self._timeout, 1):
            message = f"{message} The run took {elapsed:.10g}s."
            detail["elapsed"] = elapsed
        return Failure(ErrorCode.TIMEOUT, message, "ceiling" if self.deadline >= self._ceiling else None, detail)
