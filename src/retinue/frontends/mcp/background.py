"""Long work that depends on no open call: started, looked at, waited for, steered and cancelled by id.

Five tools in the form of a surface, on the terms of `single`. The id is that of the session: what came of the work is
in the store, stays until it is read, and survives a restart of the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from retinue.app import Retinue
from retinue.events import RunEnded
from retinue.frontends.mcp.answers import FIRST_LOOK
from retinue.frontends.mcp.background_words import (
    ABOUT,
    ENDED,
    PATIENCE,
    SCHEMAS,
    SHOWN_ID,
    answer_of,
    decoded,
    doing,
    never_ran,
    seconds,
    told,
)
from retinue.frontends.mcp.following import Doing, Followed, Follower
from retinue.output.frame import neutralise, plain
from retinue.sessions.store import SessionSummary
from retinue.surfaces.base import REFUSED, Tool, ToolResult, ToolRun, Update, required_text
from retinue.types import Call, Code, Failure, Plan, Refused, refused

LOOK = 0.5
"""Seconds between two looks at a run of another process."""
ELSEWHERE = "at work, as another call or process asked it to"
STOPPING = 10.0
"""Seconds a cancelled run has to end: as long as a stubborn process tree takes."""


class Work:
    """Something this server carries out and that has not ended."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.begun, self.over = anyio.Event(), anyio.Event()
        self.followed: Followed | None = None
        self.run: Doing | None = None
        """Once it is recorded."""
        self.refusal: Failure | None = None


class Background:
    """`subagent_start`, `subagent_status`, `subagent_wait`, `subagent_steer`, `subagent_cancel`."""

    name = "background"

    def __init__(self, retinue: Retinue, follower: Follower, group: TaskGroup) -> None:
        self._retinue = retinue
        self._follower = follower
        self._group = group
        self._works: dict[str, Work] = {}
        """By the session of each."""

    @property
    def calls(self) -> Mapping[str, ToolRun]:
        return {
            "subagent_start": self.start,
            "subagent_status": self.status,
            "subagent_wait": self.wait,
            "subagent_steer": self.steer,
            "subagent_cancel": self.cancel,
        }

    def tools(self, call: Call) -> tuple[Tool, ...]:
        if not self._retinue.surface("single").tools(self._retinue.call("single")):
            return ()  # where nothing may be dispatched, nothing may be started
        return tuple(
            Tool(name=name, description=ABOUT[name], input_schema=SCHEMAS[name], run=run)
            for name, run in self.calls.items()
        )

    def unreadable(self, tool: str, problem: str, call: Call) -> ToolResult:
        return self._refusal(Failure(Code.INVALID_INPUT, f"The input of {tool} is not a JSON object: {problem}"))

    # -- the tools ---------------------------------------------------------------------------------

    async def start(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """Begins a run and answers with its id as soon as it is recorded."""

        async def answer() -> ToolResult:
            plan, work = Plan(tasks=(decoded(arguments),)), Work()
            self._group.start_soon(self._carry_out, plan, self._lasting(call), work)
            try:
                await work.begun.wait()
                with anyio.move_on_after(FIRST_LOOK):
                    await work.over.wait()
            except anyio.get_cancelled_exc_class():
                work.scope.cancel()  # nobody would ever know its id
                raise
            if refusal := work.refusal or never_ran(work.run):
                raise Refused(refusal)
            assert work.run is not None
            return answer_of(work.run)

        return await self._answered(answer)

    async def status(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """What a run is doing, or how it ended."""

        async def answer() -> ToolResult:
            return doing(await self._found(arguments))

        return await self._answered(answer)

    async def wait(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """The result of a run, waited for within a bound."""

        async def answer() -> ToolResult:
            patience, run = seconds(arguments), await self._found(arguments)
            return answer_of(await self._ended(run, call, PATIENCE if patience is None else patience))

        return await self._answered(answer)

    async def steer(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """Says something to the agent of a run of this server while it works."""

        async def answer() -> ToolResult:
            run = await self._found(arguments)
            text = required_text(arguments, "text")
            if run.ended:
                raise refused(Code.CONFLICT, f"{run.session[:SHOWN_ID]} {ENDED}", "ended")
            await self._retinue.steer(run.run, text)
            return told(run)

        return await self._answered(answer)

    async def cancel(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """Stops a run of this server and returns when it has ended."""

        async def answer() -> ToolResult:
            run = await self._found(arguments)
            if run.ended is None and not self._retinue.stop(run.run):
                shown = run.session[:SHOWN_ID]
                raise refused(
                    Code.SESSION_BUSY,
                    f"{shown} is carried out by another process and was not stopped. "
                    f"`retinue cancel {shown}` stops it.",
                )
            return answer_of(await self._ended(run, call, STOPPING))

        return await self._answered(answer)

    # -- the work ----------------------------------------------------------------------------------

    def _lasting(self, call: Call) -> Call:
        """A call like this one that outlasts it, on the terms of `single`."""
        own = self._retinue.call("single")
        lineage = structs.replace(own.lineage, root=call.lineage.root)
        return structs.replace(own, lineage=lineage, roots=call.roots)

    async def _carry_out(self, plan: Plan, call: Call, work: Work) -> None:
        def begun(run: Doing) -> None:
            work.run = run
            self._works[run.session] = work
            work.begun.set()

        with self._follower.following(call.lineage.parent_call, begun) as work.followed:
            try:
                with work.scope:
                    await self._retinue.carry_out(plan, call)
            except Refused as refusal:
                work.refusal = refusal.failure
            finally:
                self._follower.catch_up()
                if work.run:
                    del self._works[work.run.session]
                work.over.set()
                work.begun.set()

    async def _ended(self, run: Doing, call: Call, patience: float) -> Doing:
        """The run once it has ended, or as far as it has come when patience does; the call tells of it meanwhile."""
        looker = self._follower.of(call.lineage.parent_call)
        with anyio.move_on_after(patience):
            if (work := self._works.get(run.session)) and work.followed:
                with work.followed.seen_by(looker):
                    await work.over.wait()
            while run.ended is None:
                await anyio.sleep(LOOK)
                run = await self._known(run.session)
        looker.note(run)
        return run

    async def _found(self, arguments: Any) -> Doing:
        """The run that the input names.

        Raises:
            Refused: `invalid_input` or `session_not_found`.
        """
        if not isinstance(arguments, dict):
            raise refused(Code.INVALID_INPUT, "The input must be an object with id")
        return await self._known(required_text(arguments, "id"))

    async def _known(self, name: str) -> Doing:
        summary = await self._retinue.session(name)
        if summary is None:
            raise refused(Code.SESSION_NOT_FOUND, f'There is no work of the id "{name}". subagent_start returns ids.')
        work = self._works.get(summary.session)
        return work.run if work and work.run else await self._stored(summary)

    async def _stored(self, summary: SessionSummary) -> Doing:
        ended = await self._ending(summary.session)
        if ended is None:  # its process may be gone, and nobody has noticed
            await self._retinue.recover()
            ended = await self._ending(summary.session)
        return Doing(
            run=summary.latest.run,
            session=summary.session,
            name=summary.name,
            agent=summary.agent,
            words=ELSEWHERE,
            ended=ended,
        )

    async def _ending(self, session: str) -> RunEnded | None:
        last = await self._retinue.tail(session, 1)
        return last[0].event if last and isinstance(last[0].event, RunEnded) else None

    async def _answered(self, answer: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        try:
            return await answer()
        except Refused as refusal:
            return self._refusal(refusal.failure)

    def _refusal(self, failure: Failure) -> ToolResult:
        """The answer to a call that did nothing. It may quote its input, which no record has masked."""
        message = neutralise(plain(self._retinue.masked(failure.message)))
        details = {"error": {"code": str(failure.code), "message": message}}
        return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED)
