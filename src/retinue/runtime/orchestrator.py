"""Run a plan: accept its runs, give each a slot, in a chain or in parallel, and return their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
from msgspec import structs

from retinue.agents.registry import AgentSet
from retinue.engines.base import Emit
from retinue.guards.budget import Budget
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.events import RunEnded
from retinue.model.results import ExecutionReport, RunResult, compute_exit_code
from retinue.model.runs import CallbackAddress, Delegation, RemovedTool, RunSpec
from retinue.model.tasks import CallContext, Mode, Plan
from retinue.model.tool_names import is_delegation, is_mcp_tool
from retinue.output.redaction.redactor import Redactor
from retinue.prompts.compose import prepend_blocks, render_step_prompt
from retinue.runtime.active_run import ABORTED, ActiveRun, RunControl
from retinue.runtime.attempts import run_attempts
from retinue.runtime.budgets import ConversationBudgets
from retinue.runtime.concurrency import MAX_BEGUN, RunIntake, RunShare, SpawnCount
from retinue.runtime.delegation import (
    DelegatingRun,
    DelegationRegistry,
    create_token,
    move_context,
    with_prompt_as_ancestor,
)
from retinue.runtime.event_bus import EventBus, EventSubscription
from retinue.runtime.executor import Executor
from retinue.runtime.file_changes import FileChanges
from retinue.runtime.isolation import RunWorktree, enter_worktree
from retinue.runtime.planner import AdmittedCall, PlannedRun, Planner
from retinue.runtime.recorder import EventRedactor, Recorder, shown_spec
from retinue.runtime.run_registry import ActiveRuns
from retinue.runtime.supervisor import ExecuteSpec
from retinue.runtime.validation import busy_session
from retinue.sessions.store import LocalSessionStore, SessionStore, SessionSummary, StoredEvents
from retinue.worktrees.store import WorktreeStore

if TYPE_CHECKING:
    from retinue.engines.process.supervisor import ProcessSupervisor
    from retinue.model.mcp import McpServer
    from retinue.runtime.gate import RunGate
    from retinue.runtime.hooks import RunHooks

CLOSE_TIMEOUT = 10.0
"""Seconds the last runs have to end on close: as long as a stubborn process tree takes."""

OnRunsStarted = Callable[[Sequence[RunSpec]], None]
"""Receives the runs of a plan, in the order of its tasks, before the first of them starts."""

NO_CALLBACK_SOCKET = (
    "The agent's delegation tools were left out, and the tools of its MCP servers, because no socket could be "
    "created by which the agent reaches this process. Set XDG_RUNTIME_DIR or TMPDIR to a private folder with a short "
    "path."
)

NOT_BEGUN = Failure(ErrorCode.ABORTED, "The call was cancelled before it started.")


class Orchestrator:
    """Runs plans: the one place where runs are started, counted and stopped."""

    def __init__(
        self,
        planner: Planner,
        executor: Executor,
        store: SessionStore,
        bus: EventBus,
        redactor: Redactor,
        get_control_address: Callable[[], str | None],
        make_delegation: Callable[[Orchestrator, DelegatingRun], Delegation],
        worktrees: WorktreeStore,
        open_supervisor: Callable[[], Awaitable[ProcessSupervisor]],
    ) -> None:
        self._planner = planner
        self._executor = executor
        self._store = store
        self._local_store = store if isinstance(store, LocalSessionStore) else None
        self._bus = bus
        self._worktrees = worktrees
        self._open_supervisor = open_supervisor
        """Returns the supervisor of hooks and MCP servers."""
        self._redactor = redactor
        self._get_control_address = get_control_address
        self._slots: dict[int, anyio.Semaphore] = {}
        self._intake = RunIntake()
        self._call_controls: set[RunControl] = set()
        self._call_ended = anyio.Event()
        self._own_spawns = SpawnCount()
        """Counts the calls of the agent that this whole process runs below, if there is one."""
        self._file_changes = FileChanges()
        self.active_runs = ActiveRuns(executor, store)
        self.budgets = ConversationBudgets(store)
        self.gates: dict[str, RunGate] = {}
        """The gates of active runs whose tools are in another process, by run."""
        self.delegation = DelegationRegistry(partial(make_delegation, self), self._open_servers)

    def authorize(self, call: CallContext) -> AdmittedCall:
        """Return the settings and limits of a call that may dispatch at all; see `Planner.authorize`."""
        return self._planner.authorize(call)

    def load_agents(self, call: CallContext) -> AgentSet:
        """Return the agents that can be called from the directory of the call."""
        return self._planner.load_agents(call)

    def redact(self, text: str) -> str:
        """Return the text without secrets."""
        return self._redactor.redact(text)[0]

    def subscribe(self, *, deltas: bool = True) -> EventSubscription:
        """Return a subscription to the events of all runs."""
        return self._bus.subscribe(deltas=deltas)

    @property
    def active_run_ids(self) -> tuple[str, ...]:
        """Ids of the runs that have not ended."""
        return tuple(self.active_runs)

    async def find_session(self, name: str) -> SessionSummary | None:
        """Return the session that an id, or a prefix of at least 8 digits, of it or of one of its runs names.

        Raises:
            RefusedError: `storage`: the session exists and cannot be read.
        """
        session = await self._store.find(name)
        return await self._store.summary(session) if session else None

    def read_events(self, session: str, *, run: str | None = None) -> StoredEvents:
        """Return the events of a session, or of one of its runs, from the first."""
        return self._store.events(session, run=run)

    async def find_run_end(self, session: str) -> RunEnded | None:
        """Return the end of the latest run of a session, at a fixed cost; None if that run has not ended.

        Raises:
            RefusedError: `storage`.
        """
        last = await self._store.tail(session, 1)
        return last[0].event if last and isinstance(last[0].event, RunEnded) else None

    # -- stopping ----------------------------------------------------------------------------------

    def stop(self, run: str, failure: Failure = ABORTED) -> bool:
        """Stop a live run; return whether there was one of this id."""
        return self.active_runs.stop(run, failure)

    def stop_all(self, failure: Failure = ABORTED) -> int:
        """Stop every call, with the runs it has not started yet; return how many runs were live."""
        for control in self._call_controls:
            control.stop(failure)
        return self.active_runs.stop_all(failure)

    async def close(self) -> None:
        """Stop all calls and wait until they have ended; bounded."""
        self.stop_all()
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            while self._call_controls:
                self._call_ended = anyio.Event()
                await self._call_ended.wait()

    # -- a plan ------------------------------------------------------------------------------------

    async def run_plan(
        self,
        plan: Plan,
        call: CallContext,
        on_started: OnRunsStarted | None = None,
        *,
        admitted: AdmittedCall | None = None,
    ) -> tuple[RunResult, ...]:
        """Run the plan and return a result per run, in the order of its tasks.

        A chain stops at its first failure, so it may have fewer results than tasks; it does not call `on_started`.
        A call that has just been authorized, perhaps with other options, is not authorized again.

        Raises:
            RefusedError: the whole call was refused; nothing was started.
        """
        admitted = structs.replace(admitted, call=call) if admitted else self._planner.authorize(call)
        planned = await self._planner.plan(plan, admitted)
        root, settings = call.lineage.root, admitted.settings
        if not self.budgets.is_loaded(root) or any(task.spec.resumes for task in planned):
            await self.budgets.load_from_store(root)
        parent = self.delegation.get(call.lineage.parent_run)
        share = self._make_share(call, settings.max_concurrency, parent)
        if share.is_counted:
            share.spawns.add(len(planned), settings.max_spawns)
        async with AsyncExitStack() as stack:
            stack.enter_context(self.budgets.in_use(root))
            if parent:
                await stack.enter_async_context(parent.releasing_slot())
            control = stack.enter_context(self._controlled_call())
            if not parent:
                max_begun = max(MAX_BEGUN, 2 * settings.max_concurrency)
                with control.cancellable():
                    await stack.enter_async_context(self._intake.accepting(len(planned), max_begun))
                if control.failure:
                    raise RefusedError(NOT_BEGUN)
            if plan.mode is Mode.CHAIN:
                return await self._run_chain(planned, share, control)
            specs = [self._make_spec(task, task.spec.prompt) for task in planned]
            if on_started:
                on_started(specs)
            if len(specs) == 1:
                return (await self._run(planned[0], specs[0], share, control),)
            return await self._run_parallel(planned, specs, share, control)

    def _make_share(self, call: CallContext, max_concurrency: int, parent: DelegatingRun | None) -> RunShare:
        if parent:
            return structs.replace(parent.run.share, is_counted=True)
        slots = self._slots.get(max_concurrency)
        if slots is None:
            slots = self._slots[max_concurrency] = anyio.Semaphore(max_concurrency, fast_acquire=True)
        is_counted = call.lineage.depth > 0
        return RunShare(slots, self._own_spawns if is_counted else SpawnCount(), is_counted)

    @contextmanager
    def _controlled_call(self) -> Iterator[RunControl]:
        """Run a block that `stop_all` stops and `close` waits for."""
        control = RunControl()
        self._call_controls.add(control)
        try:
            yield control
        finally:
            self._call_controls.discard(control)
            self._call_ended.set()

    async def _run_parallel(
        self, planned: list[PlannedRun], specs: list[RunSpec], share: RunShare, control: RunControl
    ) -> tuple[RunResult, ...]:
        results: dict[int, RunResult] = {}

        async def run_task(number: int) -> None:
            results[number] = await self._run(planned[number], specs[number], share, control)

        async with anyio.create_task_group() as group:
            for number in range(len(planned)):
                group.start_soon(run_task, number)
        return tuple(results[number] for number in range(len(planned)))

    async def _run_chain(
        self, planned: list[PlannedRun], share: RunShare, control: RunControl
    ) -> tuple[RunResult, ...]:
        first_task, waiting = planned[0].spec.task, [*planned]
        results: list[RunResult] = []
        try:
            while waiting and not (results and (results[-1].failure or control.failure)):
                step = waiting.pop(0)
                prompt = step.spec.prompt
                try:
                    prompt = render_step_prompt(prompt, first_task, results)
                except ValueError as error:
                    step = structs.replace(step, failure=Failure(ErrorCode.INVALID_INPUT, str(error), "prompt_size"))
                results.append(await self._run(step, self._make_spec(step, prompt), share, control))
        finally:
            share.give_back(len(waiting))
        return tuple(results)

    # -- one run -----------------------------------------------------------------------------------

    def _make_spec(self, planned: PlannedRun, prompt: str) -> RunSpec:
        """Return the spec of a run that begins now, with its ids, its whole prompt and its callback address."""
        spec = planned.spec
        if planned.failure and not planned.is_recorded:
            return spec
        # The first run of a session has the session's id.
        run = self._store.claim(spec.session) if spec.resumes else self._store.claim()
        callback, grant, notices = None, spec.grant, spec.notices
        if planned.child_context and planned.delegates_by_socket and not planned.failure:
            if address := self._get_control_address():
                callback = CallbackAddress(address, create_token())
            else:
                calling = {tool for tool in grant.tools if is_delegation(tool) or is_mcp_tool(tool)}
                removed = tuple(RemovedTool(tool, "home") for tool in grant.tools if tool in calling)
                tools = tuple(tool for tool in grant.tools if tool not in calling)
                grant = structs.replace(grant, tools=tools, removed=(*grant.removed, *removed))
                notices = (*notices, NO_CALLBACK_SOCKET)
        spec = structs.replace(
            spec,
            run=run,
            session=spec.session or run,
            prompt=prepend_blocks(planned.read_blocks(), prompt),
            callback=callback,
            gate_address=self._make_gate_address(planned),
            grant=grant,
            notices=notices,
        )
        return enter_worktree(spec, self._worktrees)

    def _make_gate_address(self, planned: PlannedRun) -> CallbackAddress | None:
        if planned.failure or not (planned.has_gate and planned.delegates_by_socket):
            return None
        address = self._get_control_address()
        return CallbackAddress(address, create_token()) if address else None

    async def _run(self, planned: PlannedRun, spec: RunSpec, share: RunShare, call_control: RunControl) -> RunResult:
        """Run one planned task from acceptance to its stored end, also if the caller is cancelled meanwhile."""
        if planned.failure and not spec.run:
            share.give_back(1)
            return self._refused(spec, planned.failure)
        if not planned.failure:
            # It loads while the session is opened.
            self._executor.prepare(spec.engine)
        try:
            run = await self._open_run(planned, spec, share, call_control)
        except RefusedError as error:  # another process took the session since it was planned
            share.give_back(1)
            is_busy = error.failure.code is ErrorCode.SESSION_BUSY
            failure = busy_session(planned.asked_session) if is_busy else error.failure
            return self._refused(structs.replace(spec, run=""), failure)
        cancelled: BaseException | None = None
        with self.active_runs.register(run):
            try:
                if planned.failure:
                    await run.refuse()
                end = planned.failure or await run.start() or await run.worktree.open()
                if not end:
                    hooks = self._make_hooks(run) if spec.agent.hooks else None
                    end = await run_attempts(run, self._wrap_execution(run, hooks, planned), hooks)
            except anyio.get_cancelled_exc_class() as error:
                cancelled, end = error, run.control.failure or ABORTED
            finally:
                run.slot.release()
        result = await run.finish(end)
        if cancelled:
            raise cancelled
        return result

    def _make_hooks(self, run: ActiveRun) -> RunHooks:
        from retinue.runtime.hooks import RunHooks

        return RunHooks(run, self._open_supervisor)

    def _wrap_execution(self, run: ActiveRun, hooks: RunHooks | None, planned: PlannedRun) -> ExecuteSpec:
        """Return how to execute a run: after the hooks of its start, behind its gate, with its delegation tools."""
        execute = self.delegation.wrap(run, self._executor.execute)
        if planned.has_gate:
            from retinue.runtime.gate import with_gate

            execute = with_gate(execute, run, hooks, self.gates, by_socket=planned.delegates_by_socket)
        return hooks.wrap(execute) if hooks else execute

    async def _open_run(
        self, planned: PlannedRun, spec: RunSpec, share: RunShare, call_control: RunControl
    ) -> ActiveRun:
        """Open the session of a run and return the run.

        Raises:
            RefusedError: the session cannot be continued now.
        """
        if self._local_store:
            record = await self._local_store.open_record(spec, control=self._get_control_address())
        else:
            record = await self._store.open_record(spec)
        secrets = [*spec.secrets.values(), *(each.token for each in (spec.callback, spec.gate_address) if each)]
        values = [*(secret.reveal() for secret in secrets), *_list_server_secrets(planned.servers)]
        redactor = EventRedactor(self._redactor.with_secrets(values))
        parent = self.delegation.get(spec.lineage.parent_run)
        child_context = planned.child_context and move_context(planned.child_context, spec)
        if child_context and spec.prompt != planned.spec.prompt:
            child_context = with_prompt_as_ancestor(child_context, spec)
        return ActiveRun(
            spec,
            share=share,
            budget=Budget(spec.limits, parent.run.budget if parent else self.budgets.budget(spec.lineage.root)),
            control=RunControl(call_control.failure),
            recorder=Recorder(spec, record, self._bus, redactor),
            store=self._store,
            child_context=child_context,
            worktree=RunWorktree(self._worktrees, spec),
            file_changes=self._file_changes,
            servers=planned.servers,
            server_environment=planned.server_environment,
        )

    def _open_servers(
        self, run: ActiveRun, spec: RunSpec, emit: Emit
    ) -> AbstractAsyncContextManager[tuple[RunSpec, Emit]]:
        """Start the MCP servers of a run; what they send is redacted, their own secrets included."""
        from retinue.mcp_client.client import open_servers

        redactor = self._redactor.with_secrets(_list_server_secrets(run.servers))
        return open_servers(
            run.servers,
            spec,
            emit,
            environ=run.server_environment,
            redact=lambda text: redactor.redact(text)[0],
            open_supervisor=self._open_supervisor,
        )

    def _refused(self, spec: RunSpec, failure: Failure) -> RunResult:
        """Return the result of a task that was not started and stored nothing."""
        shown = shown_spec(spec, *map(self.redact, (spec.name, spec.agent.name, spec.task)))
        shown_failure = structs.replace(failure, message=self.redact(failure.message))
        actual = ExecutionReport(limits=shown.limits, saved=False)
        return RunResult(spec=shown, failure=shown_failure, exit_code=compute_exit_code(failure), actual=actual)


def _list_server_secrets(servers: Sequence[McpServer]) -> list[str]:
    if not servers:
        return []
    from retinue.agents.mcp_servers import list_secret_values

    return [value for server in servers for value in list_secret_values(server)]
