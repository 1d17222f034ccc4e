"""Stops a run that has spent its turns, tokens or money."""

from __future__ import annotations

from typing import ClassVar

from retinue.events import Event, MessageEnded
from retinue.guards.base import Kinds, Timeless
from retinue.types import Code, Failure, Limits, Usage


class BudgetGuard(Timeless):
    """Judges after each assistant message. A final answer is kept even if it cost the last of the budget."""

    judges: ClassVar[Kinds] = (MessageEnded,)

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spent = Usage()

    def observe(self, event: Event, now: float) -> Failure | None:
        if not isinstance(event, MessageEnded):
            return None
        self._spent += event.usage
        self._spent += Usage(turns=1 - event.usage.turns)
        if event.stop_reason == "stop":
            return None
        return self._overspent()

    def _overspent(self) -> Failure | None:
        limits, spent = self._limits, self._spent
        if limits.max_turns and spent.turns >= limits.max_turns:
            return _budget("turns", f"{spent.turns}", f"{limits.max_turns}")
        if limits.max_tokens and spent.tokens > limits.max_tokens:
            return _budget("tokens", f"{spent.tokens}", f"{limits.max_tokens}")
        if limits.max_cost and (spent.cost or 0.0) > limits.max_cost:
            return _budget("cost", f"${spent.cost:.4f}", f"${limits.max_cost:.4f}")
        return None


def _budget(what: str, spent: str, limit: str) -> Failure:
    return Failure(
        Code.BUDGET,
        f"Budget of {what} spent ({spent} of {limit}) before a final answer; the run was stopped and what it had "
        f"was kept. Resume it, or raise max_{what}.",
        reason=f"max_{what}",
    )
