"""Stop a run that has spent its turns, tokens or money, or whose child runs or conversation have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from msgspec import structs

from retinue.guards.base import EventTypes, GuardWithoutDeadline
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Event, MessageEnded
from retinue.model.results import Usage
from retinue.model.runs import Limits

RUN_STOPPED = " before a final answer; the run was stopped and what it had was kept. Resume it, or raise"
RUN_NOT_STARTED = "; the run was not started. Do without it, or raise"
"""Consequences of a spent budget in its message, after the amounts."""

MIN_COST = 1e-6
"""Smallest dollar limit for an engine, which would take 0 as unlimited."""

BudgetExcess = tuple[str, str]
"""The name of the setting without `max_`, and the amounts: spent, of how much."""


class Budget:
    """The usage of a run and of its child runs; usage of a run counts for all its ancestors, too.

    The topmost budget is that of the conversation, with all runs of all its calls.
    """

    def __init__(self, limits: Limits, parent: Budget | None = None) -> None:
        self.limits = limits
        self.own_usage = Usage()
        self.child_usage = Usage()
        self.ancestors: tuple[Budget, ...] = (parent, *parent.ancestors) if parent else ()
        self._is_bounded = any(getattr(limits, name) for name in _SHARED_LIMITS)

    @property
    def total_usage(self) -> Usage:
        return self.own_usage + self.child_usage

    def add(self, usage: Usage) -> None:
        self.own_usage += usage
        for budget in self.ancestors:
            budget.child_usage += usage

    def exceeded_failure(self, consequence: str = RUN_STOPPED) -> Failure | None:
        """Return why nothing is left: for the run, an ancestor, or the conversation; None if something is."""
        own_excess = _find_excess(self.own_usage, turns=self.limits.max_turns)
        excess = own_excess or next(
            (found for budget in (self, *self.ancestors) if (found := budget.find_excess())), None
        )
        return excess and _budget_failure(*excess, consequence)

    def find_excess(self) -> BudgetExcess | None:
        """Return the spent limit among those shared with child runs or with the conversation."""
        if not self._is_bounded:
            return None
        limits, conversation = self.limits, (self, *self.ancestors)[-1]
        return _find_excess(self.total_usage, tokens=limits.max_tokens, cost=limits.max_cost) or _find_excess(
            conversation.total_usage,
            "conversation_",
            turns=limits.max_conversation_turns,
            tokens=limits.max_conversation_tokens,
            cost=limits.max_conversation_cost,
        )

    @property
    def limits_cost(self) -> bool:
        """True if the run or an ancestor has a cost limit."""
        every = (budget.limits for budget in (self, *self.ancestors))
        return any(limits.max_cost or limits.max_conversation_cost for limits in every)

    def remaining(self, limits: Limits) -> Limits:
        """Return the limits with the remaining money, for an engine that enforces a cost limit itself."""
        if not self.limits_cost:
            return limits
        budgets = (self, *self.ancestors)
        of_runs = [(budget.limits.max_cost, budget) for budget in budgets]
        of_all = [(budget.limits.max_conversation_cost, budgets[-1]) for budget in budgets]
        return structs.replace(
            limits, max_cost=_tightest_remaining(of_runs), max_conversation_cost=_tightest_remaining(of_all)
        )


_SHARED_LIMITS = (
    "max_tokens",
    "max_cost",
    "max_conversation_turns",
    "max_conversation_tokens",
    "max_conversation_cost",
)
"""Limits of what a run shares with other runs."""


class BudgetGuard(GuardWithoutDeadline):
    """Judges each assistant message. A final answer is kept even if it spends the last of the budget."""

    observes: ClassVar[EventTypes] = (MessageEnded,)

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def observe(self, event: Event, now: float) -> Failure | None:
        if not isinstance(event, MessageEnded):
            return None
        self._budget.add(event.turn)
        return None if event.stop_reason == "stop" else self._budget.exceeded_failure()


def _find_excess(
    spent: Usage, scope: str = "", *, turns: int | None = None, tokens: int | None = None, cost: float | None = None
) -> BudgetExcess | None:
    if turns and spent.turns >= turns:
        return f"{scope}turns", f"{spent.turns} of {turns}"
    if tokens and spent.tokens > tokens:
        return f"{scope}tokens", f"{spent.tokens} of {tokens}"
    if cost and (spent.cost or 0.0) > cost:
        return f"{scope}cost", f"${spent.cost:.4f} of ${cost:.4f}"
    return None


def _tightest_remaining(bounds: Iterable[tuple[float | None, Budget]]) -> float | None:
    """Return what is left of the tightest limit; None if there is no limit."""
    remaining = [dollars - (budget.total_usage.cost or 0.0) for dollars, budget in bounds if dollars]
    return max(min(remaining), MIN_COST) if remaining else None


def _budget_failure(what: str, progress: str, consequence: str) -> Failure:
    scope, _, kind = what.rpartition("_")
    budget = f"This {scope}'s budget of {kind} is" if scope else f"Budget of {kind}"
    return Failure(ErrorCode.BUDGET, f"{budget} spent ({progress}){consequence} max_{what}.", reason=f"max_{what}")
