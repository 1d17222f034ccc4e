"""Why a run stops: what a guard is, and which ones watch a run."""

from __future__ import annotations

from typing import ClassVar, Protocol

from retinue.model.errors import Failure
from retinue.model.events import Event
from retinue.model.runs import NO_DEADLINE

EventTypes = tuple[type[Event], ...]


class Guard(Protocol):
    """One reason to stop a run. Pure: it reads no clock and does nothing but judge."""

    deadline: float
    """When to stop the run unless an event moves it; `FOREVER` if time is no matter."""

    observes: ClassVar[EventTypes]
    """The events it wants to see. A stream has a hundred thousand deltas: nobody is shown what he does not judge."""

    def observe(self, event: Event, now: float) -> Failure | None:
        """Takes note of an event; a failure stops the run at once."""

    def expire(self) -> Failure:
        """The failure of a run whose deadline has come."""


class GuardWithoutDeadline:
    """A guard that judges events only."""

    deadline: float = NO_DEADLINE

    def expire(self) -> Failure:
        raise AssertionError("a guard without a deadline cannot expire")
