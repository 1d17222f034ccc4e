"""What the API does: starts runs and plans, stops, continues, extends and steers them.

Whatever is started goes on when its request has been answered, and ends with the server at the latest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from retinue.client import Retinue
from retinue.ipc.client import ProcessUnreachableError
from retinue.ipc.federation import cancel_remote, describe_unreachable, extend_remote, steer_remote
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.runs import RunSpec
from retinue.model.tasks import CallContext, FileSlice, Mode, Plan, Task
from retinue.servers.http.details import (
    ExtendResponse,
    PlanList,
    PlanState,
    StartPlanResponse,
    StartResponse,
    SteerResponse,
    StopResponse,
)
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.inputs import (
    ExtendBody,
    ResumeBody,
    RunSettingsInput,
    StartPlanBody,
    StartRunBody,
    SteerBody,
)
from retinue.servers.http.plans import RunningPlan
from retinue.servers.http.queries import RunQueries
from retinue.servers.http.schemas import RunRow
from retinue.sessions.store import LeaseOwner

CommandResult = TypeVar("CommandResult")

START_POLL_INTERVAL = 0.1
"""Seconds in which what cannot even begin is told with the answer."""
STOP_TIMEOUT = 12.0
"""Seconds a cancelled run has to end: longer than a stubborn process tree takes."""
COMMAND_TIMEOUT = 30.0
"""Seconds another process has to carry out an order: it may be stopped in the middle of it."""
NO_REPLY_MESSAGE = "It has the order and does not say what came of it: it may be stopped."
MAX_PLANS = 200
"""That are remembered; the oldest that have ended are forgotten first."""
EVENT_TIMEOUT = 1.0
"""Seconds in which the end of a run has come by the bus, too."""
DEFAULT_AGENT = "default"
"""What a run is called that had no agent: the engine's own prompt and tools."""


class RunCommands:
    """Acts as the user."""

    def __init__(self, retinue: Retinue, feed: EventFeed, queries: RunQueries, group: TaskGroup) -> None:
        self._retinue = retinue
        self._feed = feed
        self._queries = queries
        self._group = group
        self._plans: dict[str, RunningPlan] = {}

    # -- starting ----------------------------------------------------------------------------------

    async def start(self, body: StartRunBody) -> StartResponse:
        """Begins a run; returns when it is recorded.

        Raises:
            Refused: nothing was started.
        """
        plan = Plan(tasks=(self._resolve_cwd(body.to_task()),))
        (row,) = await self._start_plan_runs(plan, self._make_call("single", body))
        return StartResponse(run=row)

    async def resume(self, name: str, body: ResumeBody) -> StartResponse:
        """Begins another run in a session.

        Raises:
            Refused: `session_not_found`, `session_busy`, or what else speaks against it.
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
        # It stays in the conversation it came from.
        call = self._with_engine(summary.engine, self._make_call("single", body, root=summary.root or None))
        (row,) = await self._start_plan_runs(Plan(tasks=(task,)), call)
        return StartResponse(run=row)

    async def start_plan(self, body: StartPlanBody) -> StartPlanResponse:
        """Begins a plan; returns when its first runs are recorded.

        Raises:
            Refused: nothing was started.
        """
        mode = Mode(body.mode)
        plan = Plan(tasks=tuple(self._resolve_cwd(step.to_task()) for step in body.tasks), mode=mode)
        running = RunningPlan(plan, os.urandom(16).hex(), time.time())
        call = self._make_call("fanout" if mode is Mode.PARALLEL else "nested", body)
        rows = await self._start_plan_runs(plan, call, running)
        self._store_plan(running)
        return StartPlanResponse(plan=running.id, runs=tuple(rows))

    def list_plans(self) -> PlanList:
        """The plans of this server, the newest first."""
        return PlanList(plans=tuple(self._plan_state(each) for each in reversed(self._plans.values())))

    def find_plan(self, name: str) -> PlanState:
        """One of them.

        Raises:
            Refused: `session_not_found`.
        """
        if name not in self._plans:
            raise refuse(
                ErrorCode.SESSION_NOT_FOUND, "This server has started no such plan. `GET /api/v1/plans` lists them."
            )
        return self._plan_state(self._plans[name])

    def _plan_state(self, running: RunningPlan) -> PlanState:
        return running.to_state(self._feed)

    def _store_plan(self, running: RunningPlan) -> None:
        self._plans[running.id] = running
        if len(self._plans) > MAX_PLANS:
            over = next((name for name, each in self._plans.items() if each.is_ended), next(iter(self._plans)))
            del self._plans[over]

    def _resolve_cwd(self, task: Task) -> Task:
        cwd = str(Path(self._retinue.cwd, task.cwd)) if task.cwd else None
        return structs.replace(task, cwd=cwd)

    def _make_call(self, surface: str, settings: RunSettingsInput, *, root: str | None = None) -> CallContext:
        """A call in a conversation of its own: what a user starts by hand does not share a limit on spawning."""
        try:
            call = self._retinue.call(surface, **settings.set_values())
        except ValueError as error:
            raise refuse(ErrorCode.INVALID_INPUT, f"{error}. Nothing was started.") from error
        return structs.replace(call, lineage=structs.replace(call.lineage, root=root or os.urandom(16).hex()))

    def _with_engine(self, engine: str, call: CallContext) -> CallContext:
        """The call on the engine a session had, where no other is asked for and this one can still be used."""
        kind = self._retinue.engines.get(engine)
        if kind is None or "engine" in call.settings or kind.not_installed_reason():
            return call
        return structs.replace(call, settings={**call.settings, "engine": engine})

    async def _start_plan_runs(
        self, plan: Plan, call: CallContext, running: RunningPlan | None = None
    ) -> list[RunRow]:
        """Carries a plan out beside us; the rows of its first runs once they are recorded."""
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

    # -- what runs ---------------------------------------------------------------------------------

    async def cancel(self, name: str) -> StopResponse:
        """Stops a run, in whatever process it is; returns when it has ended.

        Raises:
            Refused: it cannot be reached.
        """
        _, run = await self._queries.find_run(name)
        if self._retinue.stop(run):
            row = None
            with anyio.move_on_after(STOP_TIMEOUT):
                row = await self._feed.wait_final_row(run)
            return StopResponse(run=run, found=True, failure=row.failure if row else None)
        owner = await self._find_owner(run)
        if owner is None:
            return StopResponse(run=run, found=False, failure=None)
        done = await _send_command(owner, cancel_remote(owner))
        return StopResponse(run=run, found=done.found, failure=done.failure)

    async def extend(self, name: str, body: ExtendBody) -> ExtendResponse:
        """Gives a live run more time, in whatever process it is.

        Raises:
            Refused: its time is as it was.
        """
        _, run = await self._queries.find_run(name)
        if owner := await self._find_owner(run):
            done = await _send_command(owner, extend_remote(owner, body.seconds))
            if done.failure:
                raise RefusedError(done.failure)
            return ExtendResponse(run=run, timeout=done.timeout or 0.0)
        return ExtendResponse(run=run, timeout=await self._retinue.extend(run, body.seconds))

    async def steer(self, name: str, body: SteerBody) -> SteerResponse:
        """Says something to the agent of a live run, in whatever process it is.

        Raises:
            Refused: nothing was said.
        """
        _, run = await self._queries.find_run(name)
        if owner := await self._find_owner(run):
            done = await _send_command(owner, steer_remote(owner, body.text))
            if done.failure:
                raise RefusedError(done.failure)
        else:
            await self._retinue.steer(run, body.text)
        return SteerResponse(run=run, accepted=True)

    async def _find_owner(self, run: str) -> LeaseOwner | None:
        """Who carries a run out, if it is another process."""
        live_run = self._feed.live.get(run)
        if live_run and live_run.is_own:
            return None
        return next((owner for owner in await self._retinue.owners() if owner.run == run), None)


async def _send_command(owner: LeaseOwner, command: Awaitable[CommandResult]) -> CommandResult:
    """What came of an order to another process.

    Raises:
        Refused: it cannot be reached, or does not say.
    """
    try:
        with anyio.move_on_after(COMMAND_TIMEOUT):
            return await command
    except ProcessUnreachableError as problem:
        raise RefusedError(Failure(ErrorCode.UNSUPPORTED, describe_unreachable(owner, str(problem)))) from problem
    raise RefusedError(Failure(ErrorCode.UNSUPPORTED, describe_unreachable(owner, NO_REPLY_MESSAGE)))


def _is_folder(path: str) -> bool:
    return bool(path) and Path(path).is_dir()
