"""Commands of the API: start runs and plans; cancel, resume, extend and steer runs.

A run continues after its request was answered, and ends with the server at the latest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from msgspec import structs

from retinue.client import Retinue
from retinue.ipc.client import ProcessUnreachableError
from retinue.ipc.federation import cancel_remote, describe_unreachable, extend_remote, steer_remote
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.runs import RunSpec
from retinue.model.sandbox import SandboxMode, SandboxPolicy, SandboxReport
from retinue.model.tasks import CallContext, FileSlice, Mode, Plan, Task
from retinue.servers.http import schemas
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.idempotency import KeyStore
from retinue.servers.http.inputs import (
    ExtendBody,
    ResumeBody,
    RunSettingsInput,
    StartPlanBody,
    StartRunBody,
    SteerBody,
    to_task,
)
from retinue.servers.http.queries import RunQueries
from retinue.sessions.store import LeaseOwner, SessionState

CommandResult = TypeVar("CommandResult")

START_POLL_INTERVAL = 0.1
"""Seconds a start waits for a run that fails at once, so that the response has the failure."""
STOP_TIMEOUT = 12.0
"""Seconds a cancelled run has to end: longer than a stubborn process tree takes."""
COMMAND_TIMEOUT = 30.0
"""Seconds another process has to execute a command; it may be suspended."""
NO_REPLY_MESSAGE = "The process received the request and did not answer; it may be suspended."
MAX_PLANS = 200
"""Plans in memory; the oldest that have ended are dropped first."""
EVENT_TIMEOUT = 1.0
"""Seconds until the end of a run has also arrived by the event bus."""
DEFAULT_AGENT = "default"
"""The agent name of runs without an agent, which have the engine's own prompt and tools."""


TaskState = Literal["waiting", "skipped", "queued", "running", "completed", "error"]
STATES: Mapping[SessionState, TaskState] = {
    SessionState.QUEUED: "queued",
    SessionState.RUNNING: "running",
    SessionState.COMPLETED: "completed",
    SessionState.ERROR: "error",
}


class RunningPlan:
    """The runs of a plan that have started, in the order of its tasks."""

    def __init__(self, plan: Plan, name: str, created: float) -> None:
        self.id = name
        self.refusal: Failure | None = None
        """The reason why nothing was started."""
        self.started, self.ended = anyio.Event(), anyio.Event()
        self._plan = plan
        self._created = created
        self._runs: list[str] = []
        self._rows: dict[str, schemas.RunRow] = {}

    @property
    def is_ended(self) -> bool:
        return self.ended.is_set()

    @property
    def has_started(self) -> bool:
        """Return whether a run of the plan was recorded."""
        return bool(self._rows)

    def set_runs(self, runs: Iterable[str]) -> None:
        """Set the ids of all runs of the plan."""
        self._runs = list(runs)

    def add_row(self, row: schemas.RunRow) -> None:
        """Add the row of a run that was recorded."""
        self._rows[row.run] = row
        if row.run not in self._runs:
            self._runs.append(row.run)
        self.started.set()

    def end(self) -> None:
        self.ended.set()
        self.started.set()

    def list_rows(self, feed: EventFeed) -> list[schemas.RunRow]:
        """Return the current rows of the runs that have started."""
        return [row for run in self._runs if (row := self._find_row(run, feed))]

    def to_state(self, feed: EventFeed) -> schemas.PlanState:
        """Return the state of the plan and of each task."""
        rows = [self._find_row(run, feed) for run in self._runs]
        tasks = []
        for number, task in enumerate(self._plan.tasks):
            row = rows[number] if number < len(rows) else None
            state: TaskState = STATES[row.state] if row else "skipped" if self.is_ended else "waiting"
            run = row.run if row else None
            tasks.append(schemas.PlanTask(agent=task.agent, task=task.prompt, run=run, state=state))
        return schemas.PlanState(
            plan=self.id,
            mode="chain" if self._plan.mode is Mode.CHAIN else "parallel",
            state=self._overall_state(tasks),
            created=self._created,
            tasks=tuple(tasks),
        )

    def _overall_state(self, tasks: list[schemas.PlanTask]) -> Literal["running", "completed", "error"]:
        if not self.is_ended:
            return "running"
        return "completed" if all(task.state == "completed" for task in tasks) else "error"

    def _find_row(self, run: str, feed: EventFeed) -> schemas.RunRow | None:
        """Return the row of a run; the last known one if the feed has dropped it."""
        if row := feed.find_row(run):
            self._rows[run] = row
        return self._rows.get(run)


class RunCommands:
    """The commands, executed with the rights of the user."""

    def __init__(self, retinue: Retinue, feed: EventFeed, queries: RunQueries, group: TaskGroup) -> None:
        self._retinue = retinue
        self._feed = feed
        self._queries = queries
        self._group = group
        self._plans: dict[str, RunningPlan] = {}
        self._keys = KeyStore(retinue.state / "requests")
        self._keyed_starts: dict[str, anyio.Event] = {}
        """The starts in progress, by idempotency key."""

    # -- starting ----------------------------------------------------------------------------------

    async def start(self, body: StartRunBody, idempotency_key: str | None = None) -> schemas.StartResponse:
        """Start a run, and return when it is recorded; return the run of an earlier request with the same key.

        Raises:
            RefusedError: nothing was started.
            HttpError: the key belongs to another request.
        """
        if idempotency_key is None:
            return schemas.StartResponse(run=await self._start_run(body))
        while running := self._keyed_starts.get(idempotency_key):
            await running.wait()
        self._keyed_starts[idempotency_key] = ended = anyio.Event()
        try:
            return schemas.StartResponse(run=await self._start_once(body, idempotency_key))
        finally:
            del self._keyed_starts[idempotency_key]
            ended.set()

    async def _start_run(self, body: StartRunBody, root: str | None = None) -> schemas.RunRow:
        plan = Plan(tasks=(self._resolve_cwd(to_task(body)),))
        (row,) = await self._start_plan_runs(plan, self._make_call("single", body, root=root))
        return row

    async def _start_once(self, body: StartRunBody, key: str) -> schemas.RunRow:
        claimed = await anyio.to_thread.run_sync(self._keys.claim, key, msgspec.json.encode(body))
        try:
            run = claimed.run or await self._queries.find_first_run(claimed.start.root)
            if run:
                return await self._queries.load_row(run)
            try:
                row = await self._start_run(body, claimed.start.root)
            except RefusedError:
                claimed.forget()
                raise
            with suppress(OSError):  # the run is found by its conversation
                await anyio.to_thread.run_sync(claimed.record_run, row.run)
            return row
        finally:
            claimed.close()

    async def resume(self, name: str, body: ResumeBody) -> schemas.StartResponse:
        """Start another run in the session of a run.

        Raises:
            RefusedError: `session_not_found`, `session_busy`, or any other reason against the start.
        """
        summary, _ = await self._queries.find_run(name)
        had_none = summary.agent == DEFAULT_AGENT and DEFAULT_AGENT not in self._retinue.roster().names()
        task = Task(
            prompt=body.task,
            agent=None if had_none else summary.agent,
            session=summary.session,
            cwd=summary.cwd if _is_folder(summary.cwd) else None,
            timeout=body.timeout,
            files=tuple(FileSlice(path=path) for path in body.files),
        )
        # It stays in its conversation.
        call = self._with_engine(summary.engine, self._make_call("single", body, root=summary.root or None))
        (row,) = await self._start_plan_runs(Plan(tasks=(task,)), call)
        return schemas.StartResponse(run=row)

    async def start_plan(self, body: StartPlanBody) -> schemas.StartPlanResponse:
        """Start a plan, and return when its first runs are recorded.

        Raises:
            RefusedError: nothing was started.
        """
        mode = Mode(body.mode)
        plan = Plan(tasks=tuple(self._resolve_cwd(to_task(step)) for step in body.tasks), mode=mode)
        running = RunningPlan(plan, os.urandom(16).hex(), time.time())
        call = self._make_call("fanout" if mode is Mode.PARALLEL else "nested", body)
        rows = await self._start_plan_runs(plan, call, running)
        self._store_plan(running)
        return schemas.StartPlanResponse(plan=running.id, runs=tuple(rows))

    def list_plans(self) -> schemas.PlanList:
        """Return the plans of this server, newest first."""
        return schemas.PlanList(plans=tuple(plan.to_state(self._feed) for plan in reversed(self._plans.values())))

    def find_plan(self, name: str) -> schemas.PlanState:
        """Return a plan of this server.

        Raises:
            RefusedError: `session_not_found`.
        """
        if name not in self._plans:
            raise refuse(
                ErrorCode.SESSION_NOT_FOUND, "Plan not found on this server. `GET /api/v1/plans` lists the plans."
            )
        return self._plans[name].to_state(self._feed)

    def _store_plan(self, running: RunningPlan) -> None:
        self._plans[running.id] = running
        if len(self._plans) > MAX_PLANS:
            over = next((name for name, each in self._plans.items() if each.is_ended), next(iter(self._plans)))
            del self._plans[over]

    def _resolve_cwd(self, task: Task) -> Task:
        cwd = str(Path(self._retinue.cwd, task.cwd)) if task.cwd else None
        return structs.replace(task, cwd=cwd)

    def _make_call(self, toolset: str, settings: RunSettingsInput, *, root: str | None = None) -> CallContext:
        """Return a call in a new conversation, so that runs started by hand do not share a spawn limit."""
        try:
            call = self._retinue.call(toolset, **settings.set_values())
        except ValueError as error:
            raise refuse(ErrorCode.INVALID_INPUT, f"{error}. Nothing was started.") from error
        lineage = structs.replace(call.lineage, root=root or os.urandom(16).hex())
        sandbox = SandboxPolicy(report=SandboxReport(mode=SandboxMode(settings.sandbox or SandboxMode.OFF)))
        return structs.replace(call, lineage=lineage, sandbox=sandbox)

    def _with_engine(self, engine: str, call: CallContext) -> CallContext:
        """Return the call on the engine of a session, unless the call names another or that engine is missing."""
        kind = self._retinue.engines.get(engine)
        if kind is None or "engine" in call.settings or kind.not_installed_reason():
            return call
        return structs.replace(call, settings={**call.settings, "engine": engine})

    async def _start_plan_runs(
        self, plan: Plan, call: CallContext, running: RunningPlan | None = None
    ) -> list[schemas.RunRow]:
        """Run a plan in the background, and return the rows of its first runs once they are recorded."""
        running = running or RunningPlan(plan, "", time.time())
        self._group.start_soon(self._run_plan, plan, call, running)
        await running.started.wait()
        if running.refusal:
            raise RefusedError(running.refusal)
        with anyio.move_on_after(START_POLL_INTERVAL):
            await running.ended.wait()
        return running.list_rows(self._feed)

    async def _run_plan(self, plan: Plan, call: CallContext, running: RunningPlan) -> None:
        def on_started(specs: Sequence[RunSpec]) -> None:
            running.set_runs(spec.run for spec in specs)

        with self._feed.watch_call(call.lineage.parent_call, running.add_row):
            try:
                results = await self._retinue.run_plan(plan, call, on_started)
                with anyio.move_on_after(EVENT_TIMEOUT):
                    for result in results:
                        await self._feed.wait_ended(result.run)
                if not running.has_started:
                    running.refusal = next((each.failure for each in results if each.failure), None)
            except RefusedError as refusal:
                running.refusal = refusal.failure
            finally:
                running.end()

    # -- live runs ---------------------------------------------------------------------------------

    async def cancel(self, name: str) -> schemas.StopResponse:
        """Cancel a run of any process, and return when it has ended.

        Raises:
            RefusedError: the process of the run cannot be reached.
        """
        _, run = await self._queries.find_run(name)
        if self._retinue.stop(run):
            row = None
            with anyio.move_on_after(STOP_TIMEOUT):
                row = await self._feed.wait_final_row(run)
            return schemas.StopResponse(run=run, found=True, failure=row.failure if row else None)
        if (owner := await self._find_owner(run)) is None:
            return schemas.StopResponse(run=run, found=False, failure=None)
        done = await _send_command(owner, cancel_remote(owner))
        return schemas.StopResponse(run=run, found=done.found, failure=done.failure)

    async def extend(self, name: str, body: ExtendBody) -> schemas.ExtendResponse:
        """Give a live run of any process more time.

        Raises:
            RefusedError: the timeout was not changed.
        """
        _, run = await self._queries.find_run(name)
        if owner := await self._find_owner(run):
            done = await _send_command(owner, extend_remote(owner, body.seconds))
            if done.failure:
                raise RefusedError(done.failure)
            return schemas.ExtendResponse(run=run, timeout=done.timeout or 0.0)
        return schemas.ExtendResponse(run=run, timeout=await self._retinue.extend(run, body.seconds))

    async def steer(self, name: str, body: SteerBody) -> schemas.SteerResponse:
        """Send a message to the agent of a live run of any process.

        Raises:
            RefusedError: the message was not sent.
        """
        _, run = await self._queries.find_run(name)
        if owner := await self._find_owner(run):
            done = await _send_command(owner, steer_remote(owner, body.text))
            if done.failure:
                raise RefusedError(done.failure)
        else:
            await self._retinue.steer(run, body.text)
        return schemas.SteerResponse(run=run, accepted=True)

    async def _find_owner(self, run: str) -> LeaseOwner | None:
        """Return the process that executes a run, if it is another process."""
        live_run = self._feed.live.get(run)
        if live_run and live_run.is_own:
            return None
        return next((owner for owner in await self._retinue.owners() if owner.run == run), None)


async def _send_command(owner: LeaseOwner, command: Awaitable[CommandResult]) -> CommandResult:
    """Return the reply of another process to a command.

    Raises:
        RefusedError: the process cannot be reached, or does not reply.
    """
    try:
        with anyio.move_on_after(COMMAND_TIMEOUT):
            return await command
    except ProcessUnreachableError as problem:
        raise RefusedError(Failure(ErrorCode.UNSUPPORTED, describe_unreachable(owner, str(problem)))) from problem
    raise RefusedError(Failure(ErrorCode.UNSUPPORTED, describe_unreachable(owner, NO_REPLY_MESSAGE)))


def _is_folder(path: str) -> bool:
    return bool(path) and Path(path).is_dir()
