"""Stop a run that takes too long, or in which nothing happens."""

from __future__ import annotations

from typing import ClassVar, get_args

from retinue.guards.base import EventTypes
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    BUDGET_WAIT_NOTICE_CODE,
    COUNTED_EVENTS,
    AttemptStarted,
    Event,
    Notice,
    ToolCalled,
    ToolReturned,
)
from retinue.model.runs import NO_DEADLINE, Limits


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
        self._excluded = 0.0
        self.deadline = self._compute_deadline()

    @property
    def timeout(self) -> float:
        """The current timeout, extensions included."""
        return self._timeout

    @property
    def end(self) -> float:
        """When the timeout passes, without what tool calls add."""
        return self._limit

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

    def exclude(self, seconds: float, now: float) -> None:
        self._excluded += seconds
        self._limit += seconds
        self._ceiling += seconds
        self._last_call = min(self._last_call + seconds, now)  # it may have been read a moment ago
        self.deadline = self._compute_deadline()

    def _compute_deadline(self) -> float:
        return min(max(self._limit, self._last_call) + self._grace, self._ceiling)

    def expire(self) -> Failure:
        elapsed = round(self.deadline - self._start, 1)
        message = f"Timed out after {self._timeout:.10g}s. Consider resuming with a longer timeout."
        detail = {"timeout": self._timeout}
        if elapsed != round(self._timeout, 1):
            message = f"{message} The run took {elapsed:.10g}s."
            detail["elapsed"] = elapsed
        if self._excluded:
            excluded = round(self._excluded, 1)
            message = f"{message} Retinue itself could not run for {excluded:.10g}s of them, which do not count."
            detail["suspended"] = excluded
        return Failure(ErrorCode.TIMEOUT, message, "ceiling" if self.deadline >= self._ceiling else None, detail)


class IdleGuard:
    """Counts from the last event, but not while a tool runs: a silent build is not a hung agent.

    Nor is a request that waits for the budget it shares with other runs.

    Bytes alone do not count as an event: a heartbeat is not work.
    """

    observes: ClassVar[EventTypes] = tuple(kind for kind in get_args(Event) if kind not in COUNTED_EVENTS)

    def __init__(self, idle_timeout: float, start: float) -> None:
        self._idle_timeout = idle_timeout
        self._running: set[str] = set()
        self.deadline = start + idle_timeout

    def observe(self, event: Event, now: float) -> Failure | None:
        if isinstance(event, ToolCalled):
            self._running.add(event.call)
        elif isinstance(event, ToolReturned):
            self._running.discard(event.call)
        elif isinstance(event, AttemptStarted):
            self._running.clear()  # tools of the previous attempt ended with it
        waits = isinstance(event, Notice) and event.code == BUDGET_WAIT_NOTICE_CODE
        self.deadline = NO_DEADLINE if self._running or waits else now + self._idle_timeout
        return None

    def exclude(self, seconds: float, now: float) -> None:
        if self.deadline != NO_DEADLINE:
            self.deadline = min(self.deadline + seconds, now + self._idle_timeout)

    def expire(self) -> Failure:
        return Failure(
            ErrorCode.IDLE_TIMEOUT,
            f"Nothing happened for {self._idle_timeout:g}s while no tool was running; the run was stopped and its "
            "partial output was kept. Resume the session, or raise idle_timeout.",
            detail={"timeout": self._idle_timeout},
        )
