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
from retinue.guards.guard_set import GuardSet
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
from retinue.model.runs import NO_DEADLINE, RunSpec
from retinue.runtime.active_run import ActiveRun
from retinue.runtime.budgets import RunClock, RunRequestBudget
from retinue.support.tasks import BackgroundTasks

CHECKPOINT_EVERY = 32
"""Events between two checkpoints: a model that never waits must not starve deadlines and sibling runs."""
TICK_INTERVAL = 1.0
"""Seconds between two checks whether this process could run."""
MIN_SUSPENSION = 0.5
"""Seconds by which a timer must be late to count: less is ordinary load."""
GRACE_TIMEOUT = 2.0
"""Seconds an engine has to return once its agent is done."""
READ_PASSES = 25
"""Passes of the event loop without an event after which an engine has emitted all it had received."""
STORE_INTERVAL = 0.001
"""Seconds between two checks whether an event has been stored."""
MAX_READ_PASSES = 50_000
"""Passes after a deadline in which an engine may still emit what it has received."""
MAX_READ_TIME = 1.0
"""Seconds after a deadline in which an engine may still emit what it has received."""

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
            if isinstance(event, ToolCalled | ToolReturned):
                for notice in self._run.file_changes.observe(self._run.spec.run, event):
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


# -- the timer -----------------------------------------------------------------------------------


class EmitCounter:
    """Counts the events an engine emits; the block around it emits one."""

    def __init__(self) -> None:
        self.started = 0
        self.ended = 0

    def __enter__(self) -> None:
        self.started += 1

    def __exit__(self, *_: object) -> None:
        self.ended += 1


class DeadlineTimer:
    """Cancels the scope of an attempt when the deadline of its guards, or of its ending engine, has passed.

    It is fair: time in which this process could not run does not count. A timer that fires late was held up by a
    suspended process (SIGSTOP, Ctrl-Z, a paused container) or a machine that could not run it. Ticks bound the part
    of such a time that is not seen, and what an agent has written by then is read before its deadline is applied.
    """

    def __init__(
        self,
        guards: GuardSet,
        scope: anyio.CancelScope,
        emitted: EmitCounter,
        on_suspension: Callable[[float], Awaitable[None]],
    ) -> None:
        self.grace_end: float | None = None
        """When the engine must have returned, once its agent is done."""
        self._guards = guards
        self._scope = scope
        self._emitted = emitted
        self._on_suspension = on_suspension
        self._tick = anyio.CancelScope()

    @property
    def deadline(self) -> float:
        return min(self._guards.deadline, NO_DEADLINE if self.grace_end is None else self.grace_end)

    def start_grace(self) -> None:
        """Give the engine a short time to return, from the first call on."""
        if self.grace_end is None:
            self.grace_end = anyio.current_time() + GRACE_TIMEOUT

    def wake_by_deadline(self) -> None:
        """Check at the deadline, which may be earlier than it was. A later one is seen at the next check."""
        if (deadline := self.deadline) < self._tick.deadline:
            self._tick.deadline = deadline

    async def run(self) -> None:
        """Cancel the scope once the deadline has passed."""
        while True:
            due = min(self.deadline, anyio.current_time() + TICK_INTERVAL)
            with anyio.CancelScope(deadline=due) as self._tick:
                await anyio.sleep_forever()
            suspended = anyio.current_time() - self._tick.deadline
            if suspended >= MIN_SUSPENSION:
                self._exclude(suspended)
                await self._on_suspension(suspended)
            if anyio.current_time() >= self.deadline:
                await self._await_received_events()
            if anyio.current_time() >= self.deadline:
                self._scope.cancel()
                return

    def _exclude(self, suspended: float) -> None:
        now = anyio.current_time()
        self._guards.exclude(suspended, now)
        if self.grace_end is not None:
            self.grace_end = min(self.grace_end + suspended, now + GRACE_TIMEOUT)

    async def _await_received_events(self) -> None:
        """Return once the engine has emitted what its agent had written when the deadline passed; bounded."""
        latest, quiet, seen = anyio.current_time() + MAX_READ_TIME, 0, self._emitted.started
        for _ in range(MAX_READ_PASSES):
            if self._emitted.started > self._emitted.ended:
                await anyio.sleep(STORE_INTERVAL)  # an event is being stored
            else:
                await anyio.lowlevel.checkpoint()
            quiet, seen = (quiet + 1 if self._emitted.ended == seen else 0), self._emitted.started
            if quiet >= READ_PASSES or anyio.current_time() >= latest:
                return
