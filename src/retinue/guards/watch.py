"""All the guards of one run, seen as one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import get_args

from retinue.events import Event
from retinue.guards.base import Guard, Kinds
from retinue.guards.budget import BudgetGuard, Purse
from retinue.guards.idle import IdleGuard
from retinue.guards.loop import LoopGuard
from retinue.guards.output import OutputGuard
from retinue.guards.timeout import TimeoutGuard
from retinue.types import Failure, Limits


def guards_for(limits: Limits, start: float, purse: Purse | None = None) -> Watch:
    """The guards the limits ask for, counting from `start`; with a purse, its owner's spending is counted there."""
    guards: list[Guard] = [OutputGuard(limits)]
    if limits.idle_timeout:
        guards.append(IdleGuard(limits.idle_timeout, start))
    if limits.loop_count or limits.pair_count:
        guards.append(LoopGuard(limits.loop_count, limits.pair_count))
    if purse or limits.max_turns or limits.max_tokens or limits.max_cost:
        guards.append(BudgetGuard(purse or Purse(limits)))
    return Watch(TimeoutGuard(limits, start), guards)


class Watch:
    """Several guards as one: the first failure counts, the earliest deadline rules."""

    def __init__(self, clock: TimeoutGuard, others: list[Guard]) -> None:
        self._clock = clock
        self._guards = guards = [clock, *others]
        self._judges = _judges(tuple(type(guard) for guard in guards))

    @property
    def deadline(self) -> float:
        return min([guard.deadline for guard in self._guards])

    def observe(self, event: Event, now: float) -> Failure | None:
        failure: Failure | None = None
        for number in self._judges[type(event)]:
            found = self._guards[number].observe(event, now)
            failure = failure or found
        return failure

    def extend(self, seconds: float) -> float:
        """Gives more time, and returns the timeout that holds from now on."""
        self._clock.extend(seconds)
        return self._clock.timeout

    def expire(self) -> Failure:
        return min(self._guards, key=lambda guard: guard.deadline).expire()


@cache
def _judges(guards: tuple[type[Guard], ...]) -> Mapping[type[Event], tuple[int, ...]]:
    """Which of the guards, by number, want to see each kind of event: the same for a thousand runs."""
    kinds: Kinds = get_args(Event)
    return {kind: tuple(n for n, guard in enumerate(guards) if kind in guard.judges) for kind in kinds}
