"""Stop a run that has spent its turns, tokens or money, or whose child runs or conversation have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from msgspec import Struct, structs

from retinue.guards.base import EventTypes, GuardWithoutDeadline
from retinue.guards.reservations import RequestQueue, ReservedUsage
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Event, MessageEnded, ToolCalled
from retinue.model.results import Usage
from retinue.model.runs import Limits, RequestSize
from retinue.model.tool_names import FINALIZE_TOOL

RUN_STOPPED = (
    " before a final answer; the run was stopped and its partial output was kept. Resume the session, or raise"
)
RUN_NOT_STARTED = "; the run was not started. Continue without this run, or raise"
"""Consequences of a spent budget in its message, after the amounts."""

MIN_COST = 1e-6
"""Smallest dollar limit for an engine, which would take 0 as unlimited."""


class BudgetLimit(Struct, frozen=True, eq=False):
    """A limit, and the budget whose usage it limits."""

    name: str
    """Its setting."""
    kind: str
    """`turns`, `tokens` or `cost`."""
    limit: float
    budget: Budget

    @property
    def is_own(self) -> bool:
        """True for turns of one run, which its child runs do not share."""
        return self.name == "max_turns"

    @property
    def spent(self) -> float:
        usage = self.budget.own_usage if self.is_own else self.budget.total_usage
        return float(getattr(usage, self.kind) or 0)

    @property
    def room(self) -> float:
        return self.limit - self.spent

    @property
    def reserved(self) -> float:
        """What requests in flight may still spend. The requests of one run follow one another."""
        return 0.0 if self.is_own else self.budget.reserved.amount(self.kind)

    @property
    def is_in_flight(self) -> bool:
        """Whether a request that is answered now may give something back."""
        return self.budget.reserved.requests > 0 and self.reserved > 0

    @property
    def is_spent(self) -> bool:
        """Whether a run must stop: tokens and dollars may be spent to the last one, turns only for an answer."""
        spent = self.spent
        return spent >= self.limit if self.kind == "turns" else spent > self.limit

    def describe_progress(self) -> str:
        return f"{self.format_amount(self.spent)} of {self.format_amount(self.limit)}"

    def format_amount(self, amount: float) -> str:
        return f"${amount:.4f}" if self.kind == "cost" else f"{amount:.0f}"

    def spent_failure(self, consequence: str) -> Failure:
        return self._failure("spent", self.describe_progress(), consequence)

    def misfit_failure(self, needed: float, answers: float = 0.0) -> Failure:
        """Return the failure of a run whose next request needs more than is left beside the answers above it."""
        if self.is_spent:
            return self.spent_failure(RUN_STOPPED)
        progress = f"{self.describe_progress()} spent, the next request needs {self.format_amount(needed)}"
        if answers:
            progress += f" and the answers of the runs above {self.format_amount(answers)}"
        return self._failure("too small", progress, RUN_STOPPED)

    def _failure(self, state: str, progress: str, consequence: str) -> Failure:
        scope = "conversation" if self.name.startswith("max_conversation") else ""
        budget = f"This {scope}'s budget of {self.kind} is" if scope else f"Budget of {self.kind}"
        message = f"{budget} {state} ({progress}){consequence} {self.name}."
        return Failure(ErrorCode.BUDGET, message, reason=self.name)


class Budget:
    """The usage of a run and of its child runs; usage of a run counts for all its ancestors, too.

    The topmost budget is that of the conversation, with all runs of all its calls.
    """

    def __init__(self, limits: Limits, parent: Budget | None = None) -> None:
        self.own_usage = Usage()
        self.child_usage = Usage()
        self.reserved = ReservedUsage()
        self.answer_size: RequestSize | None = None
        """Size of the request for its answer, once it has sent one that may have started child runs."""
        self.ancestors: tuple[Budget, ...] = (parent, *parent.ancestors) if parent else ()
        self.queue: RequestQueue = parent.queue if parent else RequestQueue()
        """The waiting requests of the conversation."""
        inherited = (limit for limit in parent.limits if not limit.is_own) if parent else ()
        self.limits: tuple[BudgetLimit, ...] = (*_limits_of(self, limits), *inherited)
        """The limits that hold for the run, its own first."""

    @property
    def total_usage(self) -> Usage:
        return self.own_usage + self.child_usage

    def add(self, usage: Usage) -> None:
        self.own_usage += usage
        for budget in self.ancestors:
            budget.child_usage += usage

    def exceeded_failure(self, consequence: str = RUN_STOPPED) -> Failure | None:
        """Return why nothing is left: for the run, an ancestor, or the conversation; None if something is."""
        return next((limit.spent_failure(consequence) for limit in self.limits if limit.is_spent), None)

    @property
    def limits_cost(self) -> bool:
        """True if the run or an ancestor has a cost limit."""
        return any(limit.kind == "cost" for limit in self.limits)

    def remaining(self, limits: Limits) -> Limits:
        """Return the limits with the remaining money, for an engine that enforces a cost limit itself."""
        if not self.limits_cost:
            return limits
        remaining = {
            name: _tightest_remaining(limit for limit in self.limits if limit.name == name)
            for name in ("max_cost", "max_conversation_cost")
        }
        return structs.replace(limits, **remaining)


def _limits_of(budget: Budget, limits: Limits) -> Iterator[BudgetLimit]:
    """Yield the limits of a run; those of the conversation limit the topmost budget."""
    conversation = (budget, *budget.ancestors)[-1]
    values = (
        ("max_turns", "turns", limits.max_turns, budget),
        ("max_tokens", "tokens", limits.max_tokens, budget),
        ("max_cost", "cost", limits.max_cost, budget),
        ("max_conversation_turns", "turns", limits.max_conversation_turns, conversation),
        ("max_conversation_tokens", "tokens", limits.max_conversation_tokens, conversation),
        ("max_conversation_cost", "cost", limits.max_conversation_cost, conversation),
    )
    for name, kind, limit, limited in values:
        if limit:
            yield BudgetLimit(name, kind, float(limit), limited)


class BudgetGuard(GuardWithoutDeadline):
    """Judges each assistant message. A final answer is kept even if it spends the last of the budget.

    A message that calls the finalize tool is an answer, too; what follows one that is not valid is judged again.
    """

    observes: ClassVar[EventTypes] = (ToolCalled, MessageEnded)

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._is_finalizing = False

    def observe(self, event: Event, now: float) -> Failure | None:
        if isinstance(event, ToolCalled):
            self._is_finalizing = self._is_finalizing or event.name == FINALIZE_TOOL
        if not isinstance(event, MessageEnded):
            return None
        is_answer, self._is_finalizing = event.stop_reason == "stop" or self._is_finalizing, False
        self._budget.add(event.turn)
        return None if is_answer else self._budget.exceeded_failure()


def _tightest_remaining(limits: Iterable[BudgetLimit]) -> float | None:
    """Return what is left of the tightest limit; None if there is no limit."""
    remaining = [limit.room for limit in limits]
    return max(min(remaining), MIN_COST) if remaining else None
