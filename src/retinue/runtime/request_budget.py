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
from retinue.model.runs import NO_DEADLINE, RequestGrant, RequestSize
from retinue.runtime.active_run import ActiveRun

MAX_WRAP_UP_SECONDS = 60.0
"""Seconds before the timeout at which an agent is asked for its answer; a tenth of shorter timeouts."""


class RunClock:
    """The time of an active run: its last request is sent before its timeout."""

    def __init__(self, run: ActiveRun) -> None:
        self._run = run

    @property
    def _margin(self) -> float:
        return min(self._run.spec.limits.timeout / 10, MAX_WRAP_UP_SECONDS)

    @property
    def calls_end(self) -> float:
        """When tool calls end: half of the time for the answer may go to the calls that are in flight before it."""
        return self._run.guards.timeout_end - self._margin / 2

    def find_last_reason(self) -> str | None:
        """Return why the next request must be the last one; None if there is time."""
        is_late = anyio.current_time() >= self._run.guards.timeout_end - self._margin
        return f"The time of {self._run.spec.limits.timeout:g}s is nearly over." if is_late else None


class RunRequestBudget:
    """Implements `RequestBudget` for one run."""

    def __init__(self, budget: Budget, clock: RunClock | None = None) -> None:
        self._budget = budget
        self._clock = clock

    @property
    def is_limited(self) -> bool:
        return bool(self._budget.limits)

    @property
    def limits_cost(self) -> bool:
        return self._budget.limits_cost

    @property
    def calls_end(self) -> float:
        return self._clock.calls_end if self._clock else NO_DEADLINE

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

    def _find_time_reason(self) -> str | None:
        return self._clock.find_last_reason() if self._clock else None
