"""Stops a run that has spent its turns, tokens or money, or whose runs below or whose conversation have."""

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
"""What a budget that is spent means for a run; it follows how much of it is."""

MIN_COST = 1e-6
"""Dollars that count as some: an engine takes none for no bound at all."""

BudgetExcess = tuple[str, str]
"""What of, as its setting is called after `max_`; how much of how much."""


class Budget:
    """What a run has spent, and the runs below it; whatever they spend, those above them have spent, too.

    The topmost purse is that of the conversation: all its runs, whatever call they belong to.
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
        """Why there is nothing left: for the run itself, for one above it, or for the conversation."""
        own_excess = _find_excess(self.own_usage, turns=self.limits.max_turns)
        excess = own_excess or next(
            (found for budget in (self, *self.ancestors) if (found := budget.find_excess())), None
        )
        return excess and _budget_failure(*excess, consequence)

    def find_excess(self) -> BudgetExcess | None:
        """What there is nothing left of that it shares: with the runs below it, or with all of the conversation."""
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
        """Whether there is a bound to what it, or one above it, may cost."""
        every = (budget.limits for budget in (self, *self.ancestors))
        return any(limits.max_cost or limits.max_conversation_cost for limits in every)

    def remaining(self, limits: Limits) -> Limits:
        """The limits with the money that is left of them, for an engine that keeps such a bound itself."""
        if not self.limits_cost:
            return limits
        budgets = (self, *self.ancestors)
        of_runs = [(budget.limits.max_cost, budget) for budget in budgets]
        of_all = [(purse.limits.max_conversation_cost, budgets[-1]) for purse in budgets]
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
"""The bounds of what a run does not spend alone."""


class BudgetGuard(GuardWithoutDeadline):
    """Judges after each assistant message. A final answer is kept even if it cost the last of the budget."""

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
    """What is left of the tightest of them; None where there is none."""
    remaining = [dollars - (budget.total_usage.cost or 0.0) for dollars, budget in bounds if dollars]
    return max(min(remaining), MIN_COST) if remaining else None


def _budget_failure(what: str, progress: str, consequence: str) -> Failure:
    scope, _, kind = what.rpartition("_")
    budget = f"This {scope}'s budget of {kind} is" if scope else f"Budget of {kind}"
    return Failure(ErrorCode.BUDGET, f"{budget} spent ({progress}){consequence} max_{what}.", reason=f"max_{what}")
