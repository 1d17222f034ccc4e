"""Reserve the requests of one run in its budgets, with their size and price."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

from retinue.engines.base import Emit
from retinue.model.events import BUDGET_WAIT_END_NOTICE_CODE, BUDGET_WAIT_NOTICE_CODE, Notice
from retinue.model.results import Usage
from retinue.model.runs import RequestBudget, RequestGrant, RequestSize

WRAP_UP_TOKENS = 100
"""Tokens of the prompt that asks for the last answer."""
BUDGET_WAIT = "The next request waits: other runs have reserved the remainder of the shared budget."
BUDGET_WAIT_END = "The request that waited for a budget is sent."


@runtime_checkable
class SizedModel(Protocol):
    """A model whose replies have an output limit, so that its requests can be reserved in a budget."""

    @property
    def max_output_tokens(self) -> int:
        """Most tokens of a reply."""

    async def find_prices(self, input_tokens: int) -> tuple[float, float]:
        """Return the dollars for a token of a request of this size and of its reply; 0 if free or unknown."""


class RequestReserver:
    """Reserves the requests of a run. Requests of a model without an output limit have an unknown size."""

    def __init__(self, model: object, budget: RequestBudget | None, emit: Emit) -> None:
        self._model = model if isinstance(model, SizedModel) else None
        self._budget = budget
        self._emit = emit
        self._size: RequestSize | None = None
        """Size of the last request, if the run has a budget and the size is known."""

    @asynccontextmanager
    async def reserve(self, measure: Callable[[], tuple[int, int] | None]) -> AsyncIterator[RequestGrant]:
        """Reserve a request for the block, in which no other one may be reserved.

        `measure` returns its tokens, and those without the results of the last calls, if they are known.

        Raises:
            EngineError: `budget`: the request cannot fit any more.
        """
        if self._budget is None:
            yield RequestGrant()
            return
        self._size = await self._find_size(self._budget, measure)
        async with self._budget.reserve(self._size, self._report_wait) as grant:
            yield grant

    def estimate_usage(self, usage: Usage, reply_tokens: int) -> Usage:
        """Return the usage of the last request; estimated if its budget needs it and the provider gave no counts."""
        if usage.tokens or not self._size:
            return usage
        size = self._size
        price = size.input * size.input_price + reply_tokens * size.output_price
        cost = usage.cost if usage.cost is not None else price or None
        return Usage(input=size.input, output=reply_tokens, cost=cost)

    async def _find_size(
        self, budget: RequestBudget, measure: Callable[[], tuple[int, int] | None]
    ) -> RequestSize | None:
        if not self._model or not budget.is_limited or (tokens := measure()) is None:
            return None
        total, least = (count + WRAP_UP_TOKENS for count in tokens)
        prices = await self._model.find_prices(total) if budget.limits_cost else (0.0, 0.0)
        return RequestSize(
            input=total,
            least_input=least,
            output=self._model.max_output_tokens,
            input_price=prices[0],
            output_price=prices[1],
        )

    async def _report_wait(self, begins: bool) -> None:
        code, text = (
            (BUDGET_WAIT_NOTICE_CODE, BUDGET_WAIT) if begins else (BUDGET_WAIT_END_NOTICE_CODE, BUDGET_WAIT_END)
        )
        await self._emit(Notice(code, text))
