"""The budget of a run, for the requests of its engine: they wait for each other, and the last one is known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from msgspec import structs

from retinue.engines.base import EngineError
from retinue.guards.budget import Budget
from retinue.guards.reservations import PendingRequest
from retinue.model.errors import Failure
from retinue.model.runs import RequestGrant, RequestSize
from retinue.runtime.active_run import ActiveRun

MAX_WRAP_UP_SECONDS = 60.0
"""Seconds before the timeout at which an agent is asked for its answer; a tenth of shorter timeouts."""


class RunRequestBudget:
    """Implements `RequestBudget` for one run."""

    def __init__(self, budget: Budget, find_time_reason: Callable[[], str | None]) -> None:
        """Use a budget; the function returns why the time of the run allows no further request than the next one."""
        self._budget = budget
        self._find_time_reason = find_time_reason

    @property
    def is_limited(self) -> bool:
        return bool(self._budget.limits)

    @property
    def limits_cost(self) -> bool:
        return self._budget.limits_cost

    @asynccontextmanager
    async def reserve(
        self, size: RequestSize | None, on_wait: Callable[[bool], Awaitable[None]]
    ) -> AsyncIterator[RequestGrant]:
        if not self.is_limited:
            yield RequestGrant(last_reason=self._find_time_reason())
            return
        decided = anyio.Event()
        request = PendingRequest(self._budget, size, decided.set)
        try:
            if request.decision is None:
                await on_wait(True)
                await decided.wait()
                await on_wait(False)
            assert request.decision is not None
            if isinstance(request.decision, Failure):
                raise EngineError(request.decision)
            grant = request.decision
            yield structs.replace(grant, last_reason=grant.last_reason or self._find_time_reason())
        finally:
            request.close()


def make_request_budget(run: ActiveRun) -> RunRequestBudget:
    """Return the budget of an active run, whose last request is also the one before its timeout."""

    def find_time_reason() -> str | None:
        timeout = run.spec.limits.timeout
        margin = min(timeout / 10, MAX_WRAP_UP_SECONDS)
        is_late = anyio.current_time() >= run.guards.timeout_end - margin
        return f"The time of {timeout:g}s is nearly over." if is_late else None

    return RunRequestBudget(run.budget, find_time_reason)
