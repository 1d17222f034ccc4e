"""The protocol of guards."""

from __future__ import annotations

from typing import ClassVar, Protocol

from retinue.model.errors import Failure
from retinue.model.events import Event
from retinue.model.runs import NO_DEADLINE

EventTypes = tuple[type[Event], ...]


class Guard(Protocol):
    """A reason to stop a run. Pure: it reads no clock and does nothing but judge events."""

    deadline: float
    """When to stop the run unless an event moves it; `NO_DEADLINE` if time does not matter."""

    observes: ClassVar[EventTypes]
    """The events it judges. A stream has a hundred thousand deltas: a guard gets no others."""

    def observe(self, event: Event, now: float) -> Failure | None:
        """Judge an event; a returned failure stops the run at once."""

    def exclude(self, seconds: float, now: float) -> None:
        """Do not count the last seconds, in which Retinue itself could not run."""

    def expire(self) -> Failure:
        """Return the failure of a run whose deadline has passed."""


class GuardWithoutDeadline:
    """Base of guards that judge events only."""

    deadline: float = NO_DEADLINE

    def exclude(self, seconds: float, now: float) -> None:
        """Do nothing."""

    def expire(self) -> Failure:
        raise AssertionError("a guard without a deadline cannot expire")
