"""A plan carried out: slots, chain and parallel, the record of every run, and the hold others have on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import anyio
from msgspec import Struct, structs

from retinue.agents.registry import AgentSet
from retinue.engines.base import Emit
from retinue.guards.budget import RUN_NOT_STARTED, Budget
from retinue.guards.guard_set import create_guards
from retinue.guards.spawns import SpawnCount
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.events import Notice, RunEnded, RunQueued, RunStarted, SteeringDelivered
from retinue.model.results import ExecutionReport, RunResult, compute_exit_code
from retinue.model.runs import CallbackAddress, RemovedTool, RunSpec, Secret
from retinue.model.tasks import CallContext, Mode, Plan
from retinue.model.tool_names import is_delegation
from retinue.output.redaction.redactor import Redactor
from retinue.output.untrusted_text import to_one_line
from retinue.prompts.compose import prepend_blocks, render_step_prompt
from retinue.runtime.attempts import AttemptLog, run_attempts
from retinue.runtime.budgets import ConversationBudgets
from retinue.runtime.concurrency import MAX_BEGUN, Intake, RunLimiter, RunSlot
from retinue.runtime.delegation import DelegatingRun, DelegationRegistry, Share, create_token, with_prompt_as_ancestor
from retinue.runtime.event_bus import EventBus, EventSubscription
from retinue.runtime.executor import Executor
from retinue.runtime.planner import AdmittedCall, PlannedRun, Planner
from retinue.runtime.recorder import Recorder, shown_spec
from retinue.runtime.run_registry import ActiveRuns
from retinue.runtime.supervisor import ExecuteSpec, RunControl
from retinue.runtime.validation import busy_session
from retinue.sessions.messages import load_messages
from retinue.sessions.store import RunRecord, SessionStore, SessionSummary, StoredEvents

FINAL_WRITE_TIMEOUT = 5.0
"""Seconds to write down the end of a run whose caller is gone."""

CLOSE_TIMEOUT = 10.0
"""Seconds the last runs have to end when everything closes: as long as a stubborn process tree takes."""

OnRunsStarted = Callable[[Sequence[RunSpec]], None]
"""Is told the runs of a plan, in the order of its tasks, before the first of them starts."""

NO_CALLBACK_SOCKET = (
    "The agent's tools to delegate were left out: there is no socket by which it could reach this process. One needs "
    "a private folder with a short path in XDG_RUNTIME_DIR or TMPDIR."
)

STEERING_NOT_DELIVERED = "The run ended before its agent was given what it was told: {}"
MAX_QUOTED_CHARS = 200
"""Characters of what was said to an agent in vain."""

ABORTED = Failure(ErrorCode.ABORTED, "Stopped before it was done; what it had was kept. Resume the session to go on.")


NOT_BEGUN = Failure(ErrorCode.ABORTED, "The call was stopped before it started.")


class _RunContext(Struct, frozen=True):
    """Where a run stands among others: what it shares, what it spends, and as what it delegates."""

    share: Share
    budget: Budget
    child_context: CallContext | None


class Orchestrator:
    """The one place where runs are begun, counted, stopped and written down."""

    def __init__(
        self, planner: Planner, executor: Executor, store: SessionStore, bus: EventBus, redactor: Redactor
    ) -> None:
        self._planner = planner
        self._executor = executor
        self._store = store
        self._bus = bus
        self._redactor = redactor
        self._limiters: dict[int, RunLimiter] = {}
        self._intake = Intake()
        self._call_controls: set[RunControl] = set()
        self.active_runs = ActiveRuns(executor, store)
        """The runs that have not ended, for whoever stops, steers or extends them."""
        self._call_ended = anyio.Event()
        self.budgets = ConversationBudgets(store)
        self._own_spawns = SpawnCount()
        """Of calls by the agent below which this whole process runs, if it does."""
        self.delegation = DelegationRegistry()
        """The runs that may delegate at this moment."""

    def authorize(self, call: CallContext) -> AdmittedCall:
        """What holds for a call that may dispatch at all; see `Planner.admit`."""
        return self._planner.authorize(call)

    def load_agents(self, call: CallContext) -> AgentSet:
        """Who can be called from where the call is made."""
        return self._planner.load_agents(call)

    def redact(self, text: str) -> str:
        """The text as it may leave."""
        return self._redactor.redact(text)[0]

    def subscribe(self, *, deltas: bool = True) -> EventSubscription:
        """The events of all runs from now on."""
        return self._bus.subscribe(deltas=deltas)

    @property
    def active_run_ids(self) -> tuple[str, ...]:
        """Ids of the runs that have not ended."""
        return tuple(self.active_runs)

    async def find_session(self, name: str) -> SessionSummary | None:
        """The session that an id, or a prefix of at least 8 digits, of it or of one of its runs names.

        Raises:
            Refused: `storage`: there is one, and it cannot be read.
        """
        session = await self._store.find(name)
        return await self._store.summary(session) if session else None

    def read_events(self, session: str, *, run: str | None = None) -> StoredEvents:
        """The events of a session, or of one of its runs, from the first."""
        return self._store.events(session, run=run)

    async def find_run_end(self, session: str) -> RunEnded | None:
        """How the latest run of a session ended; None if it has not. Its cost does not grow with the session.

        Raises:
            Refused: `storage`.
        """
        last = await self._store.tail(session, 1)
        return last[0].event if last and isinstance(last[0].event, RunEnded) else None

    async def run_plan(
        self, plan: Plan, call: CallContext, on_started: OnRunsStarted | None = None
    ) -> tuple[RunResult, ...]:
        """Carries the plan out and returns a result per run, in the order of its tasks.

        A chain stops at its first failure: then there are fewer results than tasks, and `begun` hears of none.

        Raises:
            Refused: the whole call was refused; nothing was started.
        """
        admitted = self._planner.authorize(call)
        planned = await self._planner.plan(plan, admitted)
        root = call.lineage.root
        if not self.budgets.is_loaded(root) or any(task.spec.resumes for task in planned):
            await self.budgets.load_from_store(root)
        parent = self.delegation.get(call.lineage.parent_run)
        share = self._share(call, admitted, parent)
        if share.is_counted:
            share.spawns.add(len(planned), admitted.settings.max_spawns)
        with self.budgets.in_use(root):
            if parent:
                async with parent.releasing_slot():
                    return await self._dispatch(plan, planned, share, on_started)
            max_begun = max(MAX_BEGUN, 2 * admitted.settings.max_concurrency)
            return await self._dispatch(plan, planned, share, on_started, max_begun)

    def _share(self, call: CallContext, admitted: AdmittedCall, parent: DelegatingRun | None) -> Share:
        if parent:
            return structs.replace(parent.share, is_counted=True)
        slots, is_counted = self._limiter_for(admitted.settings.max_concurrency), call.lineage.depth > 0
        return Share(slots, self._own_spawns if is_counted else SpawnCount(), is_counted)

    def stop(self, run: str, failure: Failure = ABORTED) -> bool:
        """Stops a live run; whether there was one of this id."""
        return self.active_runs.stop(run, failure)

    def stop_all(self, failure: Failure = ABORTED) -> int:
        """Stops every call: its live runs, and those it has not begun; how many were live."""
        for control in self._call_controls:
            control.stop(failure)
        self.active_runs.stop_all(failure)
        return len(self.active_runs)

    async def close(self) -> None:
        """Stops what is left and waits until it has ended; bounded."""
        self.stop_all()
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            while self._call_controls:
                self._call_ended = anyio.Event()
                await self._call_ended.wait()

    def _limiter_for(self, size: int) -> RunLimiter:
        if size not in self._limiters:
            self._limiters[size] = RunLimiter(size)
        return self._limiters[size]

    async def _dispatch(
        self,
        plan: Plan,
        planned: list[PlannedRun],
        share: Share,
        on_started: OnRunsStarted | None,
        max_begun: int | None = None,
    ) -> tuple[RunResult, ...]:
        """Carry the plan out; a root call waits until no more than `max_begun` runs have begun with its own."""
        call_control, entered = RunControl(), 0
        self._call_controls.add(call_control)
        try:
            if max_begun is not None:
                with call_control.cancellable():
                    await self._intake.enter(len(planned), max_begun)
                    entered = len(planned)
                if call_control.failure:
                    raise RefusedError(NOT_BEGUN)
            if plan.mode is Mode.CHAIN:
                return await self._run_chain(planned, share, call_control)
            return await self._run_parallel(planned, share, call_control, on_started)
        finally:
            if entered:
                self._intake.leave(entered)
            self._call_controls.discard(call_control)
            self._call_ended.set()

    async def _run_parallel(
        self, planned: list[PlannedRun], share: Share, call_control: RunControl, on_started: OnRunsStarted | None
    ) -> tuple[RunResult, ...]:
        planned = [
            structs.replace(task, spec=_with_ids(task.spec, self._store)) if task.is_recorded else task
            for task in planned
        ]
        if on_started:
            on_started([task.spec for task in planned])
        if len(planned) == 1:
            return (await self._run(planned[0], planned[0].spec.prompt, share, call_control),)
        results: dict[int, RunResult] = {}

        async def run_task(number: int, task: PlannedRun) -> None:
            results[number] = await self._run(task, task.spec.prompt, share, call_control)

        async with anyio.create_task_group() as group:
            for number, task in enumerate(planned):
                group.start_soon(run_task, number, task)
        return tuple(results[number] for number in range(len(planned)))

    async def _run_chain(
        self, planned: list[PlannedRun], share: Share, call_control: RunControl
    ) -> tuple[RunResult, ...]:
        first, waiting = planned[0].spec, [*planned]
        results: list[RunResult] = []
        try:
            while waiting and not (results and (results[-1].failure or call_control.failure)):
                step = waiting.pop(0)
                try:
                    prompt = render_step_prompt(step.spec.prompt, first.task, results)
                except ValueError as error:
                    prompt = step.spec.prompt
                    step = structs.replace(step, failure=Failure(ErrorCode.INVALID_INPUT, str(error), "prompt_size"))
                identified = structs.replace(step, spec=_with_ids(step.spec, self._store))
                results.append(await self._run(identified, prompt, share, call_control))
        finally:
            share.give_back(len(waiting))
        return tuple(results)

    async def _run(self, planned: PlannedRun, prompt: str, share: Share, call_control: RunControl) -> RunResult:
        """One run from its acceptance to its recorded end; whoever is cancelled meanwhile leaves an ended run."""
        if planned.failure and not planned.spec.run:
            share.give_back(1)
            return self._refused(planned.spec, planned.failure)
        spec, child_context, prompt = (
            planned.spec,
            planned.child_context,
            prepend_blocks(planned.read_blocks(), prompt),
        )
        if prompt is not spec.prompt:
            spec = structs.replace(spec, prompt=prompt)
            child_context = child_context and with_prompt_as_ancestor(child_context, spec)
        try:
            record = await self._store.open_record(spec)
        except RefusedError as lost:  # another took the session since it was planned
            share.give_back(1)
            is_busy = lost.failure.code is ErrorCode.SESSION_BUSY
            why = busy_session(planned.asked_session) if is_busy else lost.failure
            return self._refused(structs.replace(spec, run=""), why)
        control = RunControl(call_control.failure)
        if child_context and not planned.failure:
            spec = self._with_callback(spec)
        redactor = self._redactor.with_secrets(secret.reveal() for secret in _collect_secrets(spec))
        recorder, log = Recorder(spec, record, self._bus, redactor), AttemptLog(spec)
        context = _RunContext(share, self._create_budget(spec), child_context)
        queued = recorder.redact(RunQueued.of(spec))
        cancelled: BaseException | None = None
        with self.active_runs.register(spec, control, recorder.record):
            try:
                if planned.failure:
                    await recorder.record_redacted(queued)
                failure = planned.failure or await self._execute_run(log, recorder, queued, control, context)
            except anyio.get_cancelled_exc_class() as error:
                cancelled, failure = error, control.failure or ABORTED
        if control.timeout:
            log.extend_limits(control.timeout, control.extension)
        for message in control.undelivered:
            # Masked first: a secret that is cut or put on one line is not known for one any more.
            quoted = to_one_line(recorder.redact(SteeringDelivered(message.text)).text, MAX_QUOTED_CHARS)
            log.observe(await recorder.record(Notice("steer_missed", STEERING_NOT_DELIVERED.format(quoted))))
        result = recorder.result(log.make_result(failure, context.budget.child_usage), queued)
        with anyio.move_on_after(FINAL_WRITE_TIMEOUT, shield=True):
            try:
                await recorder.record_redacted(RunEnded.of(result))
            finally:
                await record.release()
        if cancelled:
            raise cancelled
        return _with_storage_status(result, record)

    def _refused(self, spec: RunSpec, failure: Failure) -> RunResult:
        """The result of a task that was not started and left nothing behind."""
        shown = shown_spec(spec, *map(self.redact, (spec.name, spec.agent.name, spec.task)))
        shown_failure = structs.replace(failure, message=self.redact(failure.message))
        actual = ExecutionReport(limits=shown.limits, saved=False)
        return RunResult(spec=shown, failure=shown_failure, exit_code=compute_exit_code(failure), actual=actual)

    async def _execute_run(
        self, log: AttemptLog, recorder: Recorder, queued: RunQueued, control: RunControl, context: _RunContext
    ) -> Failure | None:
        """The run from its place in the queue to its last attempt; why it failed."""
        slot = context.share.slots.slot()
        try:
            if failure := await _acquire_slot(slot, recorder, queued, control, context.budget):
                return failure
            log.start_clock()
            for notice in log.spec.notices:
                await recorder.record(Notice("planning", notice))
            guards = create_guards(log.spec.limits, anyio.current_time(), context.budget)
            control.attach_guards(guards)
            execute = self._execute_attempt(log.spec, context, slot)
            load_history = partial(load_messages, self._store, log.spec.session)
            return await run_attempts(log, execute, recorder.record, guards, control, load_history)
        finally:
            slot.release()

    def _with_callback(self, spec: RunSpec) -> RunSpec:
        """The spec with where it calls home; where it cannot, without the tools that would."""
        if address := self.delegation.get_address():
            return structs.replace(spec, callback=CallbackAddress(address, create_token()))
        tools = tuple(tool for tool in spec.grant.tools if not is_delegation(tool))
        removed = tuple(RemovedTool(tool, "home") for tool in spec.grant.tools if is_delegation(tool))
        grant = structs.replace(spec.grant, tools=tools, removed=(*spec.grant.removed, *removed))
        return structs.replace(spec, grant=grant, notices=(*spec.notices, NO_CALLBACK_SOCKET))

    def _create_budget(self, spec: RunSpec) -> Budget:
        parent = self.delegation.get(spec.lineage.parent_run)
        return Budget(spec.limits, parent.budget if parent else self.budgets.budget(spec.lineage.root))

    def _execute_attempt(self, spec: RunSpec, context: _RunContext, slot: RunSlot) -> ExecuteSpec:
        """Execute one attempt, registered for delegation if the run may delegate."""
        child_context, callback, budget = context.child_context, spec.callback, context.budget
        if (child_context is None or callback is None) and not budget.limits_cost:
            return self._executor.execute

        async def execute(attempted: RunSpec, emit: Emit) -> None:
            work = partial(
                self._executor.execute, structs.replace(attempted, limits=budget.remaining(attempted.limits)), emit
            )
            if child_context is None or callback is None:
                await work()
            else:
                if not slot.is_held:  # the attempt before gave it away, and ended before it had one again
                    await slot.acquire()
                await self.delegation.run_registered(
                    DelegatingRun(spec.run, callback.token, child_context, slot, context.share, budget), work
                )

        return execute


async def _acquire_slot(
    slot: RunSlot, recorder: Recorder, queued: RunQueued, control: RunControl, budget: Budget
) -> Failure | None:
    """Why the run is not to work: it was stopped, or nothing is left to spend. None: it is started on its slot."""
    failure = control.failure or budget.exceeded_failure(RUN_NOT_STARTED)
    if not failure and slot.try_acquire():
        await recorder.record_start(queued)
        return control.failure
    await recorder.record_redacted(queued)
    if not failure:
        with control.cancellable():
            await slot.acquire()
        failure = control.failure or budget.exceeded_failure(RUN_NOT_STARTED)
    if not failure:
        await recorder.record(RunStarted())
    return failure or control.failure


def _with_ids(spec: RunSpec, store: SessionStore) -> RunSpec:
    """The spec with ids of its own: a session's first run has the session's id, later ones have theirs."""
    if spec.resumes:
        return structs.replace(spec, run=store.claim(spec.session))
    run = store.claim()
    return structs.replace(spec, run=run, session=run)


def _collect_secrets(spec: RunSpec) -> tuple[Secret, ...]:
    return (*spec.secrets.values(), *([spec.callback.token] if spec.callback else ()))


def _with_storage_status(result: RunResult, record: RunRecord) -> RunResult:
    """The result with whether all of it is in the store, and if not, why."""
    actual = structs.replace(result.actual, saved=record.fault is None)
    if record.fault and record.fault.message not in actual.notices:
        actual = structs.replace(actual, notices=(*actual.notices, record.fault.message))
    return structs.replace(result, actual=actual)
