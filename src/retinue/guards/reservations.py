"""Requests reserve their largest possible usage before they are sent and give it back when they have been answered.

So requests that run in parallel never spend more than a budget together. A request that does not fit waits in the
queue of its conversation. It waits only for requests in flight, and those wait for no other request.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import structs

from retinue.guards.request_fit import WaitForRefunds, fit_request
from retinue.model.errors import Failure
from retinue.model.runs import RequestGrant, RequestSize

if TYPE_CHECKING:
    from retinue.guards.budget import Budget


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
