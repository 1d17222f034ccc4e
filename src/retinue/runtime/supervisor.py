"""One attempt at a run, under its guards. A failed run is a return value, never an exception.

Every event is stored and published first, then judged by the guards. A failure or a deadline cancels the scope the
engine runs in; cancellation is the only stop signal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
from msgspec import structs

from retinue.engines.base import Completion, Emit, EngineError
from retinue.model.errors import Failure
from retinue.model.events import (
    EPHEMERAL_EVENTS,
    Event,
    Finalized,
    MessageEnded,
    Notice,
    SteeringDelivered,
    ToolCalled,
    ToolReturned,
)
from retinue.model.runs import RunSpec
from retinue.runtime.active_run import ActiveRun
from retinue.runtime.budgets import RunClock, RunRequestBudget
from retinue.runtime.deadline_timer import GRACE_TIMEOUT, DeadlineTimer, EmitCounter
from retinue.support.tasks import BackgroundTasks

CHECKPOINT_EVERY = 32
"""Events between two checkpoints: a model that never waits must not starve deadlines and sibling runs."""
ENGINE_DID_NOT_RETURN = f"The agent answered, but its engine did not return within {GRACE_TIMEOUT:g}s and was ended."
SUSPENDED = "Retinue itself could not run for {:.0f}s (suspended, or an overloaded machine); no timeout counts them."

ExecuteSpec = Callable[[RunSpec, Emit], Awaitable[None]]


async def run_attempt(run: ActiveRun, spec: RunSpec, execute: ExecuteSpec) -> Failure | None:
    """Execute the spec once and return why it failed, or None; its answer is in the run's last collector."""
    spec = structs.replace(
        spec, limits=run.budget.remaining(spec.limits), budget=RunRequestBudget(run.budget, RunClock(run))
    )
    error: Failure | None = None
    with run.control.cancellable() as scope:
        observer = _AttemptObserver(run, scope)
        async with BackgroundTasks(observer.timer.run):
            try:
                await execute(spec, observer.emit)
            except EngineError as raised:
                error = raised.failure

    # An engine that is being stopped may fail while it stops: the reason is why it was stopped.
    was_stopped = scope.cancelled_caught or (error is not None and scope.cancel_called)
    failure = observer.failure or run.control.failure
    if not failure and not was_stopped:
        failure = error
    elif not failure and not observer.ended_grace:
        failure = run.guards.expire()
    collector = run.collectors[-1]
    if collector.has_final_answer or (was_stopped and not failure):
        # A complete answer is never thrown away, whatever ended the engine after it.
        if failure or was_stopped:
            message = failure.message if failure else ENGINE_DID_NOT_RETURN
            await run.record(Notice("stopped_after_answer", message))
        return None
    return failure or collector.find_failure()


class _AttemptObserver:
    """Receives the events of one attempt: records, collects and judges each, and cancels the scope if it must end."""

    def __init__(self, run: ActiveRun, scope: anyio.CancelScope) -> None:
        self.failure: Failure | None = None
        self._run = run
        self._guards = run.guards
        self._collector = run.collectors[-1]
        self._scope = scope
        self._emitted = EmitCounter()
        self.timer = DeadlineTimer(run.guards, scope, self._emitted, self._report_suspension)
        self._completion: Completion | None = None
        self._open_calls: set[str] = set()

    @property
    def ended_grace(self) -> bool:
        """True if the grace period of a finished agent, and no guard, stopped the engine."""
        return self.timer.grace_end is not None and self.timer.grace_end < self._guards.deadline

    async def emit(self, event: Event | Completion) -> None:
        with self._emitted:
            if isinstance(event, Completion):
                self._completion = event
                self._update_grace()
                await anyio.lowlevel.checkpoint()
                return
            if isinstance(event, MessageEnded):
                event = structs.replace(event, usage=event.usage.clamped())
            elif isinstance(event, SteeringDelivered):
                self._run.mark_delivered(event.text)
            elif isinstance(event, Finalized):
                event = self._run.check_finalization(event)
            self._collector.observe(await self._run.recorder.record(event))
            if not self._scope.cancel_called:  # events of an engine that is stopping do not change why it was stopped
                self._judge(event, anyio.current_time())
            elif isinstance(event, MessageEnded):
                self._run.budget.add(event.turn)  # spent, though the run has been stopped
            if isinstance(event, ToolCalled) and (
                notice := self._run.file_writers.add(self._run.spec.run, event.name, event.args)
            ):
                await self._run.record(Notice("same_file", notice))
            if self._scope.cancel_called or self._emitted.started % CHECKPOINT_EVERY == 0:
                await anyio.lowlevel.checkpoint()

    def _judge(self, event: Event, now: float) -> None:
        if isinstance(event, ToolCalled | ToolReturned):
            self._run.observe_finalize_call(event)
            (self._open_calls.add if isinstance(event, ToolCalled) else self._open_calls.discard)(event.call)
        if failure := self._guards.observe(event, now):
            # The first failure is the cause; later ones are its consequences.
            self.failure = self.failure or failure
            self._scope.cancel()
        elif self.timer.grace_end is not None or not isinstance(event, EPHEMERAL_EVENTS):
            self._update_grace()

    def _update_grace(self) -> None:
        if self._is_done:
            self.timer.start_grace()
        else:
            self.timer.grace_end = None
        self.timer.wake_by_deadline()

    async def _report_suspension(self, seconds: float) -> None:
        await self._run.record(Notice("suspended", SUSPENDED.format(seconds)))

    @property
    def _is_done(self) -> bool:
        """True if the agent has answered, runs no tool, and its engine will not report the end itself later."""
        return (
            self._completion is not Completion.PENDING and not self._open_calls and self._collector.has_final_answer
        )
