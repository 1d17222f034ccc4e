"""The guards of one run, combined."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import get_args

from retinue.guards.base import EventTypes, Guard
from retinue.guards.budget import Budget, BudgetGuard
from retinue.guards.loop import LoopGuard, TextLoopGuard
from retinue.guards.output import OutputGuard, SchemaGuard
from retinue.guards.timeout import IdleGuard, TimeoutGuard
from retinue.model.errors import Failure
from retinue.model.events import Event
from retinue.model.runs import Limits


def create_guards(
    limits: Limits, start: float, budget: Budget | None = None, *, has_output_schema: bool = False
) -> GuardSet:
    """Return the guards that the limits require, counting from `start`; usage is added to `budget`."""
    guards: list[Guard] = [OutputGuard(limits)]
    if limits.idle_timeout:
        guards.append(IdleGuard(limits.idle_timeout, start))
    if limits.loop_count or limits.pair_count or limits.pattern_count:
        guards.append(LoopGuard(limits))
    if limits.text_count:
        guards.append(TextLoopGuard(limits.text_count))
    if budget or limits.max_turns or limits.max_tokens or limits.max_cost:
        guards.append(BudgetGuard(budget or Budget(limits)))
    if has_output_schema:
        guards.append(SchemaGuard(limits.finalize_retries))
    return GuardSet(TimeoutGuard(limits, start), guards)


class GuardSet:
    """Several guards as one: the first failure counts, and the earliest deadline."""

    def __init__(self, timeout_guard: TimeoutGuard, others: list[Guard]) -> None:
        self._timeout_guard = timeout_guard
        self._guards = guards = [timeout_guard, *others]
        self._observers = _guards_by_event_type(tuple(type(guard) for guard in guards))

    @property
    def deadline(self) -> float:
        return min([guard.deadline for guard in self._guards])

    @property
    def timeout_end(self) -> float:
        """When the timeout of the run passes, without what tool calls add."""
        return self._timeout_guard.end

    def observe(self, event: Event, now: float) -> Failure | None:
        failure: Failure | None = None
        for number in self._observers[type(event)]:
            found = self._guards[number].observe(event, now)
            failure = failure or found
        return failure

    def extend(self, seconds: float) -> float:
        """Extend the timeout and return the new one."""
        self._timeout_guard.extend(seconds)
        return self._timeout_guard.timeout

    def exclude(self, seconds: float, now: float) -> None:
        """Do not count the last seconds, in which Retinue itself could not run."""
        for guard in self._guards:
            guard.exclude(seconds, now)

    def expire(self) -> Failure:
        return min(self._guards, key=lambda guard: guard.deadline).expire()


@cache
def _guards_by_event_type(guards: tuple[type[Guard], ...]) -> Mapping[type[Event], tuple[int, ...]]:
    """Return the indices of the guards that judge each event type. Cached: most runs have the same guards."""
    kinds: EventTypes = get_args(Event)
    return {kind: tuple(n for n, guard in enumerate(guards) if kind in guard.observes) for kind in kinds}
