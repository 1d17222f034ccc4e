"""Stops a run that has spent its turns, tokens or money, or whose runs below or whose conversation have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from msgspec import structs

from retinue.events import Event, MessageEnded
from retinue.guards.base import Kinds, Timeless
from retinue.types import Code, Failure, Limits, Usage

STOPPED = " before a final answer; the run was stopped and what it had was kept. Resume it, or raise"
NOT_STARTED = "; the run was not started. Do without it, or raise"
"""What a budget that is spent means for a run; it follows how much of it is."""

LEAST = 1e-6
"""Dollars that count as some: an engine takes none for no bound at all."""

Overrun = tuple[str, str]
"""What of, as its setting is called after `max_`; how much of how much."""


class Purse:
    """What a run has spent, and the runs below it; whatever they spend, those above them have spent, too.

    The topmost purse is that of the conversation: all its runs, whatever call they belong to.
    """

    def __init__(self, limits: Limits, above: Purse | None = None) -> None:
        self.limits = limits
        self.own = Usage()
        self.nested = Usage()
        self.above: tuple[Purse, ...] = (above, *above.above) if above else ()
        self._is_bounded = any(getattr(limits, name) for name in _SHARED)

    @property
    def spent(self) -> Usage:
        return self.own + self.nested

    def spend(self, usage: Usage) -> None:
        self.own += usage
        for purse in self.above:
            purse.nested += usage

    def overspent(self, so: str = STOPPED) -> Failure | None:
        """Why there is nothing left: for the run itself, for one above it, or for the conversation."""
        own = _overrun(self.own, turns=self.limits.max_turns)
        overrun = own or next((found for purse in (self, *self.above) if (found := purse.overrun())), None)
        return overrun and _failure(*overrun, so)

    def overrun(self) -> Overrun | None:
        """What there is nothing left of that it shares: with the runs below it, or with all of the conversation."""
        if not self._is_bounded:
            return None
        limits, conversation = self.limits, (self, *self.above)[-1]
        return _overrun(self.spent, tokens=limits.max_tokens, cost=limits.max_cost) or _overrun(
            conversation.spent,
            "conversation_",
            turns=limits.max_conversation_turns,
            tokens=limits.max_conversation_tokens,
            cost=limits.max_conversation_cost,
        )

    @property
    def bounds_money(self) -> bool:
        """Whether there is a bound to what it, or one above it, may cost."""
        every = (purse.limits for purse in (self, *self.above))
        return any(limits.max_cost or limits.max_conversation_cost for limits in every)

    def left(self, limits: Limits) -> Limits:
        """The limits with the money that is left of them, for an engine that keeps such a bound itself."""
        if not self.bounds_money:
            return limits
        purses = (self, *self.above)
        of_runs = [(purse.limits.max_cost, purse) for purse in purses]
        of_all = [(purse.limits.max_conversation_cost, purses[-1]) for purse in purses]
        return structs.replace(limits, max_cost=_rest(of_runs), max_conversation_cost=_rest(of_all))


_SHARED = (
    "max_tokens",
    "max_cost",
    "max_conversation_turns",
    "max_conversation_tokens",
    "max_conversation_cost",
)
"""The bounds of what a run does not spend alone."""


class BudgetGuard(Timeless):
    """Judges after each assistant message. A final answer is kept even if it cost the last of the budget."""

    judges: ClassVar[Kinds] = (MessageEnded,)

    def __init__(self, purse: Purse) -> None:
        self._purse = purse

    def observe(self, event: Event, now: float) -> Failure | None:
        if not isinstance(event, MessageEnded):
            return None
        self._purse.spend(event.turn)
        return None if event.stop_reason == "stop" else self._purse.overspent()


def _overrun(
    spent: Usage, whose: str = "", *, turns: int | None = None, tokens: int | None = None, cost: float | None = None
) -> Overrun | None:
    if turns and spent.turns >= turns:
        return f"{whose}turns", f"{spent.turns} of {turns}"
    if tokens and spent.tokens > tokens:
        return f"{whose}tokens", f"{spent.tokens} of {tokens}"
    if cost and (spent.cost or 0.0) > cost:
        return f"{whose}cost", f"${spent.cost:.4f} of ${cost:.4f}"
    return None


def _rest(bounds: Iterable[tuple[float | None, Purse]]) -> float | None:
    """What is left of the tightest of them; None where there is none."""
    left = [dollars - (purse.spent.cost or 0.0) for dollars, purse in bounds if dollars]
    return max(min(left), LEAST) if left else None


def _failure(what: str, how_far: str, so: str) -> Failure:
    whose, _, kind = what.rpartition("_")
    budget = f"This {whose}'s budget of {kind} is" if whose else f"Budget of {kind}"
    return Failure(Code.BUDGET, f"{budget} spent ({how_far}){so} max_{what}.", reason=f"max_{what}")
