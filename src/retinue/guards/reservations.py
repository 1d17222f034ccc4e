"""Requests reserve their largest possible usage before they are sent and give it back when they have been answered.

So requests that run in parallel never spend more than a budget together. A request that does not fit waits in the
queue of its conversation. It waits only for requests in flight, and those wait for no other request. A request that
is not the last one leaves room for one more, so that the run can still give its answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from retinue.model.errors import Failure
from retinue.model.runs import RequestGrant, RequestSize

if TYPE_CHECKING:
    from retinue.guards.budget import Budget, BudgetLimit


MIN_OUTPUT = 512
"""Tokens for which a last answer is worth its request."""
MIN_WORKING_OUTPUT = 1024
"""Tokens that a reply needs to think and call tools."""


class WaitForRefunds(Struct, frozen=True):
    """The request fits once others have given back what they did not use of these budgets."""

    budgets: frozenset[Budget]


def fit_request(budget: Budget, size: RequestSize | None) -> RequestGrant | WaitForRefunds | Failure:
    """Return what a request of a run may use, or that it must wait, or why it cannot fit any more."""
    if size is None:
        return _fit_unknown(budget.limits)
    fit = _fit_sized(budget, size)
    if isinstance(fit, Failure) and size.least_input < size.input:
        reduced = _fit_sized(budget, structs.replace(size, input=size.least_input), "The last results do not fit.")
        if isinstance(reduced, RequestGrant):
            return structs.replace(reduced, leaves_out_results=True)
        return fit if isinstance(reduced, Failure) else reduced
    return fit


def _fit_unknown(limits: Sequence[BudgetLimit]) -> RequestGrant | WaitForRefunds | Failure:
    """Fit a request of unknown size: alone, as long as something is left."""
    for limit in limits:
        if limit.is_spent:
            return limit.misfit_failure(0)
    if waiting := frozenset(limit.budget for limit in limits if limit.is_in_flight):
        return WaitForRefunds(waiting)
    last = next((limit for limit in limits if limit.kind == "turns" and limit.room <= 1), None)
    return RequestGrant(last_reason=_describe(last) if last else None)


def _fit_sized(
    budget: Budget, size: RequestSize, last_reason: str | None = None
) -> RequestGrant | WaitForRefunds | Failure:
    output = float(size.output)
    working_output = output
    rooms = [(limit, limit.room - _count_answers(limit, budget)) for limit in budget.limits]
    for limit, room in rooms:
        need = _Need(limit.kind, size)
        most = need.max_output(room)  # if every request in flight gave back all of it
        if most < min(MIN_OUTPUT, size.output):
            return limit.misfit_failure(need.amount(min(MIN_OUTPUT, size.output)), limit.room - room)
        if not limit.is_in_flight:
            output = min(output, most)
        working_most = need.max_working_output(room)
        if working_most < min(MIN_WORKING_OUTPUT, size.output):
            last_reason = last_reason or _describe(limit)
        working_output = min(working_output, working_most)
    allowed = output if last_reason else min(output, working_output)
    waiting = frozenset(
        limit.budget
        for limit, room in rooms
        if limit.is_in_flight and _Need(limit.kind, size).max_output(room - limit.reserved) < allowed
    )
    if waiting:
        return WaitForRefunds(waiting)
    return RequestGrant(output=None if allowed >= size.output else math.floor(allowed), last_reason=last_reason)


def _count_answers(limit: BudgetLimit, budget: Budget) -> float:
    """Return what the runs above a run need of a limit for their last answers, which its requests must leave."""
    return sum(
        _Need(limit.kind, run.answer_size).amount(MIN_OUTPUT)
        for run in budget.ancestors
        if run.answer_size and (run is limit.budget or limit.budget in run.ancestors)
    )


class _Need:
    """What a request takes from a limit: a fixed part, and a part for each token of its reply."""

    def __init__(self, kind: str, size: RequestSize) -> None:
        prices = {"turns": (0.0, 0.0), "tokens": (1.0, 1.0), "cost": (size.input_price, size.output_price)}
        self._input_price, self._output_price = prices[kind]
        self._fixed = size.input * self._input_price + (kind == "turns")

    def amount(self, output: float) -> float:
        return self._fixed + output * self._output_price

    def max_output(self, room: float) -> float:
        """Return the longest reply that fits; negative if not even an empty one does."""
        return _divide(room - self._fixed, self._output_price)

    def max_working_output(self, room: float) -> float:
        """Return the longest reply after which one more request, with that reply in it, still fits."""
        two = 2 * self._fixed + MIN_OUTPUT * self._output_price
        return _divide(room - two, self._input_price + self._output_price)


def _divide(room: float, price: float) -> float:
    if room < 0:
        return -1.0
    return room / price if price else math.inf


def _describe(limit: BudgetLimit) -> str:
    """Return why a request must be the last one, as a sentence for the model and the user."""
    whose = "this conversation's " if limit.name.startswith("max_conversation") else ""
    total = limit.format_amount(limit.limit)
    if limit.kind == "turns":
        return f"Turn {limit.spent + 1:.0f} of {whose}{total} is the last one."
    unit = " tokens" if limit.kind == "tokens" else ""
    return f"{limit.format_amount(limit.spent)} of {whose}{total}{unit} are spent."


ANSWER_MARGIN = 300
"""Tokens of the prompt that asks for an answer, and of remarks in the place of results that do not fit."""


class ReservedUsage:
    """What the requests in flight of a run and its child runs may still spend."""

    def __init__(self) -> None:
        self.requests = 0
        self._unsized = 0
        """Requests of unknown size: they may spend anything."""
        self._tokens = 0
        self._cost = 0.0

    def amount(self, kind: str) -> float:
        if kind == "turns":
            return self.requests
        if self._unsized:
            return math.inf
        return self._tokens if kind == "tokens" else self._cost

    def add(self, size: RequestSize | None, output: int, sign: int = 1) -> None:
        """Add the largest usage of a request, or take it away again."""
        self.requests += sign
        if size is None:
            self._unsized += sign
        else:
            self._tokens += sign * (size.input + output)
            self._cost += sign * (size.input * size.input_price + output * size.output_price)
        if not self.requests:
            self._cost = 0.0  # what is left are rounding errors


class PendingRequest:
    """A request of a run, from its queue to the end of its reply."""

    def __init__(self, budget: Budget, size: RequestSize | None, on_decided: Callable[[], None]) -> None:
        """Enter the queue of the conversation. `on_decided` is called when the request may be sent or has failed."""
        self.budget = budget
        self.size = size
        self.decision: RequestGrant | Failure | None = None
        """None while the request waits."""
        self._on_decided = on_decided
        self._reserved_output: int | None = None
        self._spent_before = budget.own_usage.tokens
        budget.queue.enter(self)

    def decide(self, decision: RequestGrant | Failure) -> None:
        """Reserve what is granted, or take the failure."""
        self.decision = decision
        if isinstance(decision, RequestGrant):
            self._reserved_output = output = decision.output or (self.size.output if self.size else 0)
            if self.size and decision.leaves_out_results:
                self.size = structs.replace(self.size, input=self.size.least_input)
            self._add(output, 1)
        self._on_decided()

    def close(self) -> None:
        """Give back what was reserved, or leave the queue. Closing it again does nothing."""
        if self._reserved_output is not None:
            output, self._reserved_output = self._reserved_output, None
            self._add(output, -1)
            self._note_answer_size()
        self.budget.queue.leave(self)

    def _note_answer_size(self) -> None:
        """Let child runs leave room for the answer of this run: its next request repeats this one with its reply."""
        if self.size and (used := self.budget.own_usage.tokens - self._spent_before):
            tokens = used + ANSWER_MARGIN
            self.budget.answer_size = structs.replace(self.size, input=tokens, least_input=tokens)

    def _add(self, output: int, sign: int) -> None:
        for budget in (self.budget, *self.budget.ancestors):
            budget.reserved.add(self.size, output, sign)


class RequestQueue:
    """The requests of one conversation that wait for refunds, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: list[PendingRequest] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, request: PendingRequest) -> None:
        self._waiting.append(request)
        self._decide()

    def leave(self, request: PendingRequest) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
        self._decide()

    def _decide(self) -> None:
        """Decide each request that can be; none overtakes an earlier one that waits for the same budget."""
        claimed: set[Budget] = set()
        for request in [*self._waiting]:
            limits = request.budget.limits
            if any(limit.budget in claimed for limit in limits):
                continue
            fit = fit_request(request.budget, request.size)
            if isinstance(fit, WaitForRefunds):
                claimed.update(fit.budgets)
            else:
                self._waiting.remove(request)
                request.decide(fit)
