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

from retinue.app import Retinue
from retinue.control.client import Unreachable
from retinue.frontends.elsewhere import cancelled, extended, steered, unreachable
from retinue.frontends.http.hub import Hub
from retinue.frontends.http.inputs import Extend, Resume, Settings, Start, StartPlan, Steer
from retinue.frontends.http.outcomes import (
    Begun,
    Extended,
    PlanBegun,
    Plans,
    PlanState,
    Steered,
    Stopped,
)
from retinue.frontends.http.plans import RunningPlan
from retinue.frontends.http.reading import Reader
from retinue.frontends.http.values import RunRow
from retinue.sessions.owner import Owner
from retinue.types import Call, Code, Failure, FileSlice, Mode, Plan, Refused, RunSpec, Task, refused

Done = TypeVar("Done")

FIRST_LOOK = 0.1
"""Seconds in which what cannot even begin is told with the answer."""
STOPPING = 12.0
"""Seconds a cancelled run has to end: longer than a stubborn process tree takes."""
OBEYING = 30.0
"""Seconds another process has to carry out an order: it may be stopped in the middle of it."""
SILENT = "It has the order and does not say what came of it: it may be stopped."
MOST_PLANS = 200
"""That are remembered; the oldest that have ended are forgotten first."""
TOLD = 1.0
"""Seconds in which the end of a run has come by the bus, too."""
NOBODY = "default"
"""What a run is called that had no agent: the engine's own prompt and tools."""


class Actor:
    """Acts as the user."""

    def __init__(self, retinue: Retinue, hub: Hub, reader: Reader, group: TaskGroup) -> None:
        self._retinue = retinue
        self._hub = hub
        self._reader = reader
        self._group = group
        self._plans: dict[str, RunningPlan] = {}

    # -- starting ----------------------------------------------------------------------------------

    async def start(self, asked: Start) -> Begun:
        """Begins a run; returns when it is recorded.

        Raises:
            Refused: nothing was started.
        """
        plan = Plan(tasks=(self._placed(asked.asked()),))
        (row,) = await self._begun(plan, self._call("single", asked))
        return Begun(run=row)

    async def resume(self, name: str, asked: Resume) -> Begun:
        """Begins another run in a session.

        Raises:
            Refused: `session_not_found`, `session_busy`, or what else speaks against it.
        """
        summary, _ = await self._reader.find(name)
        had_none = summary.agent == NOBODY and NOBODY not in self._retinue.roster().names()
        task = Task(
            prompt=asked.task,
            agent=None if had_none else summary.agent,
            session=summary.session,
            cwd=summary.cwd if _is_folder(summary.cwd) else None,
            timeout=asked.timeout,
            files=tuple(FileSlice(path=path) for path in asked.files),
        )
        # It stays in the conversation it came from.
        call = self._on(summary.engine, self._call("single", asked, root=summary.root or None))
        (row,) = await self._begun(Plan(tasks=(task,)), call)
        return Begun(run=row)

    async def start_plan(self, asked: StartPlan) -> PlanBegun:
        """Begins a plan; returns when its first runs are recorded.

        Raises:
            Refused: nothing was started.
        """
        mode = Mode(asked.mode)
        plan = Plan(tasks=tuple(self._placed(step.asked()) for step in asked.tasks), mode=mode)
        running = RunningPlan(plan, os.urandom(16).hex(), time.time())
        call = self._call("fanout" if mode is Mode.PARALLEL else "nested", asked)
        rows = await self._begun(plan, call, running)
        self._remember(running)
        return PlanBegun(plan=running.id, runs=tuple(rows))

    def plans(self) -> Plans:
        """The plans of this server, the newest first."""
        return Plans(plans=tuple(self._state(each) for each in reversed(self._plans.values())))

    def plan(self, name: str) -> PlanState:
        """One of them.

        Raises:
            Refused: `session_not_found`.
        """
        if name not in self._plans:
            raise refused(
                Code.SESSION_NOT_FOUND, "This server has started no such plan. `GET /api/v1/plans` lists them."
            )
        return self._state(self._plans[name])

    def _state(self, running: RunningPlan) -> PlanState:
        return running.state(self._hub)

    def _remember(self, running: RunningPlan) -> None:
        self._plans[running.id] = running
        if len(self._plans) > MOST_PLANS:
            over = next((name for name, each in self._plans.items() if each.is_over), next(iter(self._plans)))
            del self._plans[over]

    def _placed(self, task: Task) -> Task:
        cwd = str(Path(self._retinue.cwd, task.cwd)) if task.cwd else None
        return structs.replace(task, cwd=cwd)

    def _call(self, surface: str, asked: Settings, *, root: str | None = None) -> Call:
        """A call in a conversation of its own: what a user starts by hand does not share a limit on spawning."""
        try:
            call = self._retinue.call(surface, **asked.given())
        except ValueError as error:
            raise refused(Code.INVALID_INPUT, f"{error}. Nothing was started.") from error
        return structs.replace(call, lineage=structs.replace(call.lineage, root=root or os.urandom(16).hex()))

    def _on(self, engine: str, call: Call) -> Call:
        """The call on the engine a session had, where no other is asked for and this one can still be used."""
        kind = self._retinue.engines.get(engine)
        if kind is None or "engine" in call.settings or kind.missing():
            return call
        return structs.replace(call, settings={**call.settings, "engine": engine})

    async def _begun(self, plan: Plan, call: Call, running: RunningPlan | None = None) -> list[RunRow]:
        """Carries a plan out beside us; the rows of its first runs once they are recorded."""
        running = running or RunningPlan(plan, "", time.time())
        self._group.start_soon(self._carry_out, plan, call, running)
        await running.begun.wait()
        if running.refusal:
            raise Refused(running.refusal)
        with anyio.move_on_after(FIRST_LOOK):
            await running.over.wait()
        return running.rows(self._hub)

    async def _carry_out(self, plan: Plan, call: Call, running: RunningPlan) -> None:
        def begun(specs: Sequence[RunSpec]) -> None:
            running.note(spec.run for spec in specs)

        with self._hub.meeting(call.lineage.parent_call, running.met):
            try:
                results = await self._retinue.carry_out(plan, call, begun)
                with anyio.move_on_after(TOLD):
                    for result in results:
                        await self._hub.known(result.run)
                if not running.has_begun:
                    running.refusal = next((each.failure for each in results if each.failure), None)
            except Refused as refusal:
                running.refusal = refusal.failure
            finally:
                running.end()

    # -- what runs ---------------------------------------------------------------------------------

    async def cancel(self, name: str) -> Stopped:
        """Stops a run, in whatever process it is; returns when it has ended.

        Raises:
            Refused: it cannot be reached.
        """
        _, run = await self._reader.find(name)
        if self._retinue.stop(run):
            row = None
            with anyio.move_on_after(STOPPING):
                row = await self._hub.ended(run)
            return Stopped(run=run, found=True, failure=row.failure if row else None)
        owner = await self._owner(run)
        if owner is None:
            return Stopped(run=run, found=False, failure=None)
        done = await _obeyed(owner, cancelled(owner))
        return Stopped(run=run, found=done.found, failure=done.failure)

    async def extend(self, name: str, asked: Extend) -> Extended:
        """Gives a live run more time, in whatever process it is.

        Raises:
            Refused: its time is as it was.
        """
        _, run = await self._reader.find(name)
        if owner := await self._owner(run):
            done = await _obeyed(owner, extended(owner, asked.seconds))
            if done.failure:
                raise Refused(done.failure)
            return Extended(run=run, timeout=done.timeout or 0.0)
        return Extended(run=run, timeout=await self._retinue.extend(run, asked.seconds))

    async def steer(self, name: str, asked: Steer) -> Steered:
        """Says something to the agent of a live run, in whatever process it is.

        Raises:
            Refused: nothing was said.
        """
        _, run = await self._reader.find(name)
        if owner := await self._owner(run):
            done = await _obeyed(owner, steered(owner, asked.text))
            if done.failure:
                raise Refused(done.failure)
        else:
            await self._retinue.steer(run, asked.text)
        return Steered(run=run, accepted=True)

    async def _owner(self, run: str) -> Owner | None:
        """Who carries a run out, if it is another process."""
        told = self._hub.live.get(run)
        if told and told.is_own:
            return None
        return next((owner for owner in await self._retinue.owners() if owner.run == run), None)


async def _obeyed(owner: Owner, order: Awaitable[Done]) -> Done:
    """What came of an order to another process.

    Raises:
        Refused: it cannot be reached, or does not say.
    """
    try:
        with anyio.move_on_after(OBEYING):
            return await order
    except Unreachable as problem:
        raise Refused(Failure(Code.UNSUPPORTED, unreachable(owner, str(problem)))) from problem
    raise Refused(Failure(Code.UNSUPPORTED, unreachable(owner, SILENT)))


def _is_folder(path: str) -> bool:
    return bool(path) and Path(path).is_dir()
