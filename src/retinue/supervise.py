"""One attempt at a run, under its guards. Never raises for a failed run.

Every event is stored and shown first, then judged. A failure or a deadline cancels the scope the engine runs in,
and cancelling is the only stop signal there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel

from retinue.engines.base import Emit, EngineError
from retinue.events import LIVE, Event, Notice
from retinue.guards.watch import Watch
from retinue.output.collect import Collector
from retinue.types import FOREVER, Failure, RunSpec

BREATHE = 32
"""Events between two turns of the loop: a model that never waits must not starve clocks and siblings."""
SLACK = 0.05
"""Seconds in which deltas move the deadline only once: moving a timer costs more than reading a delta."""

Carry = Callable[[RunSpec, Emit], Awaitable[None]]
Record = Callable[[Event], Awaitable[Event]]
"""Stores and shows an event; returns it as it was written down, masked."""


class Reins:
    """The hold others have on a run: stops it wherever it is, queued or at work."""

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self._scope: anyio.CancelScope | None = None

    def stop(self, failure: Failure) -> None:
        """Ends the run with this failure, unless it was stopped before."""
        self.failure = self.failure or failure
        if self._scope is not None:
            self._scope.cancel()

    @contextmanager
    def hold(self, deadline: float = FOREVER) -> Iterator[anyio.CancelScope]:
        """A block that `stop` cancels."""
        with anyio.CancelScope(deadline=deadline) as scope:
            self._scope = scope
            if self.failure:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scope = None


async def supervise(
    spec: RunSpec, carry: Carry, record: Record, watch: Watch, reins: Reins, collector: Collector
) -> Failure | None:
    """Carries the spec out once and returns why it failed, or None; what it had is in the collector."""
    failure: Failure | None = None
    seen, moved = 0, 0.0

    with reins.hold(watch.deadline) as scope:

        async def emit(event: Event) -> None:
            nonlocal failure, seen, moved
            collector.observe(await record(event))
            now = anyio.current_time()
            failure = failure or watch.observe(event, now)
            if failure:
                scope.cancel()
            elif now > moved + SLACK or not isinstance(event, LIVE):
                moved = now
                if (deadline := watch.deadline) != scope.deadline:
                    scope.deadline = deadline
            seen += 1
            if scope.cancel_called or seen % BREATHE == 0:
                await anyio.lowlevel.checkpoint()

        try:
            await carry(spec, emit)
        except EngineError as error:
            failure = failure or error.failure

    failure = failure or reins.failure
    if scope.cancelled_caught:
        failure = failure or watch.expire()
    if failure and collector.complete:
        # A complete answer is never thrown away: what came after it is its echo.
        collector.observe(await record(Notice("stopped_after_answer", failure.message)))
        return None
    return failure or collector.failure()
