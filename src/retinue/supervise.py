"""One attempt at a run, under its guards. Never raises for a failed run.

Every event is stored and shown first, then judged. A failure or a deadline cancels the scope the engine runs in,
and cancelling is the only stop signal there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
from msgspec import structs

from retinue.engines.base import Completion, Emit, EngineError
from retinue.events import LIVE, Event, MessageEnded, Notice, Steered, ToolCalled, ToolReturned
from retinue.guards.watch import Watch
from retinue.output.collect import Collector
from retinue.types import FOREVER, Failure, RunSpec

BREATHE = 32
"""Events between two turns of the loop: a model that never waits must not starve clocks and siblings."""
SLACK = 0.05
"""Seconds in which deltas move the deadline only once: moving a timer costs more than reading a delta."""

FAREWELL = 2.0
"""Seconds an engine has to return once its agent is done."""
LINGERED = f"The agent had answered and its engine did not return within {FAREWELL:g}s: it was ended."

Carry = Callable[[RunSpec, Emit], Awaitable[None]]
Record = Callable[[Event], Awaitable[Event]]
"""Stores and shows an event; returns it as it was written down, masked."""


class Told:
    """A text that others say to an agent, and how far it has come."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_taken = False
        """The engine has it."""
        self.is_heard = False
        """The agent has it, maybe before the engine has said so."""
        self.is_kept = False
        """It stands in the prompt of an attempt, or in the session that one goes on from."""

    @property
    def was_said(self) -> bool:
        return self.is_taken or self.is_heard


class Reins:
    """The hold others have on a run: stops it wherever it is, queued or at work; gives it time and words."""

    def __init__(self, failure: Failure | None = None) -> None:
        self.failure = failure
        self.timeout: float | None = None
        """As it is once it was moved."""
        self.extension = 0.0
        """Seconds it was given in all."""
        self.told: list[Told] = []
        """What was said to its agent while it worked, in whatever attempt."""
        self._watch: Watch | None = None
        self._scope: anyio.CancelScope | None = None

    @property
    def is_queued(self) -> bool:
        return self._watch is None

    @property
    def unheard(self) -> list[Told]:
        """What the engine has, and the agent has not been given yet."""
        return [told for told in self.told if told.is_taken and not told.is_heard]

    def hear(self, text: str) -> None:
        """The agent was given a text: the first such, or the first of all where its engine has changed its words."""
        unheard = [told for told in self.told if not told.is_heard]
        if unheard:
            min(unheard, key=lambda told: (told.text != text, not told.is_taken)).is_heard = True

    def begin(self, watch: Watch) -> None:
        """The run has its slot, and its time counts."""
        self._watch = watch

    def extend(self, seconds: float) -> float | None:
        """Moves the deadline of a run at work; the timeout that holds then. None: it is queued, or being stopped."""
        if self._watch is None or self.failure or (self._scope and self._scope.cancel_called):
            return None
        before = self._watch.deadline
        self.timeout = self._watch.extend(seconds)
        self.extension += seconds
        # A run that has answered has another deadline: it is being waited for, and more time is none of its matter.
        if self._scope and self._scope.deadline == before:
            self._scope.deadline = self._watch.deadline
        return self.timeout

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
    error: Failure | None = None
    with reins.hold(watch.deadline) as scope:
        overseer = _Overseer(record, watch, collector, reins, scope)
        try:
            await carry(spec, overseer.emit)
        except EngineError as raised:
            error = raised.failure

    # An engine that is being stopped may fail while it stops: the reason is why it was stopped.
    was_stopped = scope.cancelled_caught or (error is not None and scope.cancel_called)
    failure = overseer.failure or reins.failure
    if not failure and not was_stopped:
        failure = error
    elif not failure and not overseer.ended_grace:
        failure = watch.expire()
    if collector.complete or (was_stopped and not failure):
        # A complete answer is never thrown away, whatever ended the engine after it.
        if failure or was_stopped:
            message = failure.message if failure else LINGERED
            collector.observe(await record(Notice("stopped_after_answer", message)))
        return None
    return failure or collector.failure()


class _Overseer:
    """Takes the events of one attempt: records, collects and judges each, and cancels its scope where it must end."""

    def __init__(
        self, record: Record, watch: Watch, collector: Collector, reins: Reins, scope: anyio.CancelScope
    ) -> None:
        self.failure: Failure | None = None
        self._record = record
        self._watch = watch
        self._collector = collector
        self._reins = reins
        self._scope = scope
        self._seen = 0
        self._moved = 0.0
        self._completion: Completion | None = None
        self._open_calls: set[str] = set()
        self._grace_end: float | None = None
        """When the engine must have returned, once its agent is done."""

    @property
    def ended_grace(self) -> bool:
        """Whether the grace period of a finished agent, and no guard, stopped the engine."""
        return self._grace_end is not None and self._grace_end < self._watch.deadline

    def fail(self, failure: Failure) -> None:
        # The first reason is the true one; what follows is its echo.
        self.failure = self.failure or failure

    async def emit(self, event: Event | Completion) -> None:
        if isinstance(event, Completion):
            self._completion = event
            if not self._scope.cancel_called:
                self._move_deadline(anyio.current_time())
            await anyio.lowlevel.checkpoint()
            return
        if isinstance(event, MessageEnded):
            event = structs.replace(event, usage=event.usage.credible())
        elif isinstance(event, Steered):
            self._reins.hear(event.text)
        self._collector.observe(await self._record(event))
        if not self._scope.cancel_called:  # what an engine emits while it stops does not change why it was stopped
            self._judge(event, anyio.current_time())
        self._seen += 1
        if self._scope.cancel_called or self._seen % BREATHE == 0:
            await anyio.lowlevel.checkpoint()

    def _judge(self, event: Event, now: float) -> None:
        if isinstance(event, ToolCalled):
            self._open_calls.add(event.call)
        elif isinstance(event, ToolReturned):
            self._open_calls.discard(event.call)
        if failure := self._watch.observe(event, now):
            self.fail(failure)
            self._scope.cancel()
        elif now > self._moved + SLACK or self._grace_end is not None or not isinstance(event, LIVE):
            self._move_deadline(now)

    def _move_deadline(self, now: float) -> None:
        self._moved = now
        if not self._is_done:
            self._grace_end = None
        elif self._grace_end is None:
            self._grace_end = now + FAREWELL
        deadline = min(self._watch.deadline, self._grace_end or FOREVER)
        if deadline != self._scope.deadline:
            self._scope.deadline = deadline

    @property
    def _is_done(self) -> bool:
        """Whether the agent has answered, runs no tool, and its engine will not report that itself later."""
        return self._completion is not Completion.PENDING and not self._open_calls and self._collector.complete
