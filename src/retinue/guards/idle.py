"""Stop a run in which nothing happens."""

from __future__ import annotations

from typing import ClassVar, get_args

from retinue.guards.base import EventTypes
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import AttemptStarted, Event, OutputBytesCounted, ToolCalled, ToolReturned
from retinue.model.runs import NO_DEADLINE


class IdleGuard:
    """Counts from the last event, but not while a tool runs: a silent build is not a hung agent.

    Bytes alone do not count as an event: a heartbeat is not work.
    """

    observes: ClassVar[EventTypes] = tuple(kind for kind in get_args(Event) if kind is not OutputBytesCounted)

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
        self.deadline = NO_DEADLINE if self._running else now + self._idle_timeout
        return None

    def expire(self) -> Failure:
        return Failure(
            ErrorCode.IDLE_TIMEOUT,
            f"Nothing happened for {self._idle_timeout:g}s while no tool was running; the run was stopped and "
            "what it had was kept. Resume it, or raise idle_timeout.",
            detail={"timeout": self._idle_timeout},
        )
