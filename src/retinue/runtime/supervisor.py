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
from retinue.guards.guard_set import GuardSet
from retinue.model.errors import Failure
from retinue.model.events import (
    EPHEMERAL_EVENTS,
    Event,
    MessageEnded,
    Notice,
    SteeringDelivered,
    ToolCalled,
    ToolReturned,
)
from retinue.model.runs import NO_DEADLINE, RunSpec
from retinue.output.answer import AnswerCollector

CHECKPOINT_EVERY = 32
"""Events between two turns of the loop: a model that never waits must not starve clocks and siblings."""
DEADLINE_UPDATE_INTERVAL = 0.05
"""Seconds in which deltas move the deadline only once: moving a timer costs more than reading a delta."""

DRAIN_TIMEOUT = 2.0
"""Seconds an engine has to return once its agent is done."""
ENGINE_DID_NOT_RETURN = (
    f"The agent had answered and its engine did not return within {DRAIN_TIMEOUT:g}s: it was ended."
)

ExecuteSpec = Callable[[RunSpec, Emit], Awaitable[None]]
RecordEvent = Callable[[Event], Awaitable[Event]]
"""Stores and shows an event; returns it as it was written down, masked."""


class SteeringMessage:
    """A text that others say to an agent, and how far it has come."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.accepted = False
        """The engine has it."""
        self.delivered = False
        """The agent has it, maybe before the engine has said so."""
        self.in_prompt = False
        """It stands in the prompt of an attempt, or in the session that one goes on from."""

    @property
    def sent(self) -> bool:
        return self.accepted or self.delivered


class RunControl:
    """The hold others have on a run: stops it wherever it is, queued or at work; gives it time and words."""

    def __init__(self, failure: Failure | None = None) -> None:
        self.failure = failure
        self.timeout: float | None = None
        """As it is once it was moved."""
        self.extension = 0.0
        """Seconds it was given in all."""
        self.steering: list[SteeringMessage] = []
        """What was said to its agent while it worked, in whatever attempt."""
        self._guards: GuardSet | None = None
        self._scope: anyio.CancelScope | None = None

    @property
    def is_queued(self) -> bool:
        return self._guards is None

    @property
    def undelivered(self) -> list[SteeringMessage]:
        """What the engine has, and the agent has not been given yet."""
        return [message for message in self.steering if message.accepted and not message.delivered]

    def mark_delivered(self, text: str) -> None:
        """The agent was given a text: the first such, or the first of all where its engine has changed its words."""
        undelivered = [told for told in self.steering if not told.delivered]
        if undelivered:
            min(undelivered, key=lambda message: (message.text != text, not message.accepted)).delivered = True

    def attach_guards(self, guards: GuardSet) -> None:
        """The run has its slot, and its time counts."""
        self._guards = guards

    def extend(self, seconds: float) -> float | None:
        """Moves the deadline of a run at work; the timeout that holds then. None: it is queued, or being stopped."""
        if self._guards is None or self.failure or (self._scope and self._scope.cancel_called):
            return None
        before = self._guards.deadline
        self.timeout = self._guards.extend(seconds)
        self.extension += seconds
        # A run that has answered has another deadline: it is being waited for, and more time is none of its matter.
        if self._scope and self._scope.deadline == before:
            self._scope.deadline = self._guards.deadline
        return self.timeout

    def stop(self, failure: Failure) -> None:
        """Ends the run with this failure, unless it was stopped before."""
        self.failure = self.failure or failure
        if self._scope is not None:
            self._scope.cancel()

    @contextmanager
    def cancellable(self, deadline: float = NO_DEADLINE) -> Iterator[anyio.CancelScope]:
        """A block that `stop` cancels."""
        with anyio.CancelScope(deadline=deadline) as scope:
            self._scope = scope
            if self.failure:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scope = None


async def run_attempt(
    spec: RunSpec,
    execute: ExecuteSpec,
    record: RecordEvent,
    guards: GuardSet,
    control: RunControl,
    collector: AnswerCollector,
) -> Failure | None:
    """Carries the spec out once and returns why it failed, or None; what it had is in the collector."""
    error: Failure | None = None
    with control.cancellable(guards.deadline) as scope:
        observer = _AttemptObserver(record, guards, collector, control, scope)
        try:
            await execute(spec, observer.emit)
        except EngineError as raised:
            error = raised.failure

    # An engine that is being stopped may fail while it stops: the reason is why it was stopped.
    was_stopped = scope.cancelled_caught or (error is not None and scope.cancel_called)
    failure = observer.failure or control.failure
    if not failure and not was_stopped:
        failure = error
    elif not failure and not observer.ended_grace:
        failure = guards.expire()
    if collector.has_final_answer or (was_stopped and not failure):
        # A complete answer is never thrown away, whatever ended the engine after it.
        if failure or was_stopped:
            message = failure.message if failure else ENGINE_DID_NOT_RETURN
            collector.observe(await record(Notice("stopped_after_answer", message)))
        return None
    return failure or collector.find_failure()


class _AttemptObserver:
    """Takes the events of one attempt: records, collects and judges each, and cancels its scope where it must end."""

    def __init__(
        self,
        record: RecordEvent,
        guards: GuardSet,
        collector: AnswerCollector,
        control: RunControl,
        scope: anyio.CancelScope,
    ) -> None:
        self.failure: Failure | None = None
        self._record = record
        self._guards = guards
        self._collector = collector
        self._control = control
        self._scope = scope
        self._event_count = 0
        self._deadline_moved_at = 0.0
        self._completion: Completion | None = None
        self._open_calls: set[str] = set()
        self._grace_end: float | None = None
        """When the engine must have returned, once its agent is done."""

    @property
    def ended_grace(self) -> bool:
        """Whether the grace period of a finished agent, and no guard, stopped the engine."""
        return self._grace_end is not None and self._grace_end < self._guards.deadline

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
            event = structs.replace(event, usage=event.usage.clamped())
        elif isinstance(event, SteeringDelivered):
            self._control.mark_delivered(event.text)
        self._collector.observe(await self._record(event))
        if not self._scope.cancel_called:  # what an engine emits while it stops does not change why it was stopped
            self._judge(event, anyio.current_time())
        self._event_count += 1
        if self._scope.cancel_called or self._event_count % CHECKPOINT_EVERY == 0:
            await anyio.lowlevel.checkpoint()

    def _judge(self, event: Event, now: float) -> None:
        if isinstance(event, ToolCalled):
            self._open_calls.add(event.call)
        elif isinstance(event, ToolReturned):
            self._open_calls.discard(event.call)
        if failure := self._guards.observe(event, now):
            self.fail(failure)
            self._scope.cancel()
        elif (
            now > self._deadline_moved_at + DEADLINE_UPDATE_INTERVAL
            or self._grace_end is not None
            or not isinstance(event, EPHEMERAL_EVENTS)
        ):
            self._move_deadline(now)

    def _move_deadline(self, now: float) -> None:
        self._deadline_moved_at = now
        if not self._is_done:
            self._grace_end = None
        elif self._grace_end is None:
            self._grace_end = now + DRAIN_TIMEOUT
        deadline = min(self._guards.deadline, self._grace_end or NO_DEADLINE)
        if deadline != self._scope.deadline:
            self._scope.deadline = deadline

    @property
    def _is_done(self) -> bool:
        """Whether the agent has answered, runs no tool, and its engine will not report that itself later."""
        return (
            self._completion is not Completion.PENDING and not self._open_calls and self._collector.has_final_answer
        )
