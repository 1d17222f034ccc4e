"""Stops a run that has spent its turns, tokens or money, or whose runs below have."""

from __future__ import annotations

from typing import ClassVar

from msgspec import structs

from retinue.events import Event, MessageEnded
from retinue.guards.base import Kinds, Timeless
from retinue.types import Code, Failure, Limits, Usage


class Purse:
    """What a run has spent, and the runs below it; whatever they spend, those above them have spent, too."""

    def __init__(self, limits: Limits, above: Purse | None = None) -> None:
        self._limits = limits
        self.own = Usage()
        self.nested = Usage()
        self.above: tuple[Purse, ...] = (above, *above.above) if above else ()

    def spend(self, usage: Usage) -> None:
        self.own += usage
        for purse in self.above:
            purse.nested += usage

    def overspent(self) -> Failure | None:
        """Why there is nothing left: for the run itself, or for one above it."""
        turns = self._limits.max_turns
        if turns and self.own.turns >= turns:
            return _budget("turns", f"{self.own.turns}", f"{turns}")
        return next((failure for purse in (self, *self.above) if (failure := purse.emptied())), None)

    def emptied(self) -> Failure | None:
        """Why there is nothing left of what it shares with the runs below it."""
        limits, spent = self._limits, self.own + self.nested
        if limits.max_tokens and spent.tokens > limits.max_tokens:
            return _budget("tokens", f"{spent.tokens}", f"{limits.max_tokens}")
        if limits.max_cost and (spent.cost or 0.0) > limits.max_cost:
            return _budget("cost", f"${spent.cost:.4f}", f"${limits.max_cost:.4f}")
        return None


class BudgetGuard(Timeless):
    """Judges after each assistant message. A final answer is kept even if it cost the last of the budget."""

    judges: ClassVar[Kinds] = (MessageEnded,)

    def __init__(self, purse: Purse) -> None:
        self._purse = purse

    def observe(self, event: Event, now: float) -> Failure | None:
        if not isinstance(event, MessageEnded):
            return None
        self._purse.spend(structs.replace(event.usage, turns=1))
        return None if event.stop_reason == "stop" else self._purse.overspent()


def _budget(what: str, spent: str, limit: str) -> Failure:
    return Failure(
        Code.BUDGET,
        f"Budget of {what} spent ({spent} of {limit}) before a final answer; the run was stopped and what it had "
        f"was kept. Resume it, or raise max_{what}.",
        reason=f"max_{what}",
    )
