"""Long work that depends on no open call: started, looked at, waited for, steered and cancelled by id.

Five tools in the form of a surface, on the terms of `single`. The id is that of the session: what came of the work is
in the store, stays until it is read, and survives a restart of the server.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from retinue.client import Retinue
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.events import RunEnded
from retinue.model.results import AnswerStatus
from retinue.model.tasks import CallContext, Plan, Task
from retinue.output.untrusted_text import defang_markup, strip_control_characters, to_one_line, wrap_untrusted
from retinue.servers.mcp.call_tracker import CallTracker, TrackedCall, TrackedRun
from retinue.servers.mcp.tool_answers import CANCELLED, COMPLETED, FAILED, START_TIMEOUT, WORKING
from retinue.sessions.store import SessionSummary
from retinue.support.formatting import pluralize
from retinue.toolsets.base import (
    REFUSAL_CODES,
    REFUSED_EXIT_CODE,
    JsonObject,
    OnPartialResult,
    RunTool,
    ToolDefinition,
    ToolResult,
    require_text,
)

SHOWN_ID_LENGTH = 16
"""Digits of a session's id."""
DEFAULT_WAIT = 30.0
"""Seconds a call waits if it does not say how long: less than most hosts wait for a tool."""
MAX_WAIT = 600.0
RUN_ENDED_MESSAGE = "has ended, and nothing was said to it. subagent_start with this id goes on with its context."
MAX_STATUS_CHARS = 200
"""Characters of what a run is doing."""

_ID: JsonObject = {"type": "string", "description": "The id that subagent_start returned"}
_ID_INPUT: JsonObject = {"type": "object", "properties": {"id": _ID}, "required": ["id"]}

SCHEMAS: Mapping[str, JsonObject] = {
    "subagent_start": {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "minLength": 1, "description": "Name of the agent to delegate to"},
            "task": {
                "type": "string",
                "minLength": 1,
                "description": "The focused task, with all the context it needs",
            },
            "id": {"type": "string", "description": "An earlier id, to go on with its context"},
            "timeout": {"type": "number", "minimum": 1, "description": "Seconds it may take"},
        },
        "required": ["agent", "task"],
    },
    "subagent_status": _ID_INPUT,
    "subagent_wait": {
        "type": "object",
        "properties": {
            "id": _ID,
            "seconds": {
                "type": "number",
                "minimum": 0,
                "maximum": MAX_WAIT,
                "description": f"How long to wait at most (default: {DEFAULT_WAIT:g})",
            },
        },
        "required": ["id"],
    },
    "subagent_steer": {
        "type": "object",
        "properties": {
            "id": _ID,
            "text": {"type": "string", "minLength": 1, "description": "What the agent should know or do differently"},
        },
        "required": ["id", "text"],
    },
    "subagent_cancel": _ID_INPUT,
}

DESCRIPTIONS: Mapping[str, str] = {
    "subagent_start": "Start an agent on a focused task in the background; returns an id at once. The agent works in "
    "its own context and does not see this conversation: give it everything it needs.",
    "subagent_status": "What a background agent is doing, without waiting.",
    "subagent_wait": "Wait until a background agent is done, for a bounded time, and return its result.",
    "subagent_steer": "Say something to a background agent while it works; it goes on with that in mind.",
    "subagent_cancel": "Stop a background agent; what it had is kept.",
}


# -- what is given ---------------------------------------------------------------------------------


def decode_start(arguments: Any) -> Task:
    """The task of `subagent_start`.

    Raises:
        Refused: `invalid_input`, naming the field.
    """
    if not isinstance(arguments, dict):
        raise refuse(ErrorCode.INVALID_INPUT, "The input of subagent_start must be an object with agent and task")
    session = arguments.get("id")
    if session is not None and not isinstance(session, str):
        raise refuse(ErrorCode.INVALID_INPUT, "Parameter id must be a string")
    return Task(
        agent=require_text(arguments, "agent"),
        prompt=require_text(arguments, "task"),
        session=session or None,
        timeout=_decode_number(arguments, "timeout", low=1.0),
    )


def decode_wait(arguments: Any) -> float | None:
    """How long `subagent_wait` may take; None if it does not say.

    Raises:
        Refused: the same.
    """
    found = _decode_number(arguments, "seconds", low=0.0) if isinstance(arguments, dict) else None
    return None if found is None else min(found, MAX_WAIT)


def _decode_number(arguments: Mapping[str, Any], name: str, *, low: float) -> float | None:
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value < math.inf:
        raise refuse(ErrorCode.INVALID_INPUT, f"Parameter {name} must be a number of seconds, at least {low:g}")
    return float(value)


# -- what is said ----------------------------------------------------------------------------------


def start_failure(run: TrackedRun | None) -> Failure | None:
    """Why a run that was recorded could not begin; None if it could."""
    ended = run.ended if run else None
    if ended is None or ended.failure is None or ended.answer is not AnswerStatus.NONE:
        return None
    return ended.failure if ended.failure.code in REFUSAL_CODES else None


def status_result(run: TrackedRun) -> ToolResult:
    """How far a run has come, without what it said."""
    if run.ended:
        state = _end_state(run.ended)
        return _make_result(run, state, f"{state} after {run.ended.elapsed:.1f}s; subagent_wait returns what it said")
    summary = f"{to_one_line(run.status, MAX_STATUS_CHARS)} ({pluralize(run.tools, 'tool call')} so far)"
    return _make_result(run, WORKING, summary, doing=summary)


def steered_result(run: TrackedRun) -> ToolResult:
    """That the agent of a run has been told something."""
    return _make_result(run, WORKING, "told; it reads that before it asks its model again")


def answer_result(run: TrackedRun) -> ToolResult:
    """What came of a run, its text framed; or that it still works."""
    ended = run.ended
    if ended is None:
        return _make_result(run, WORKING, "working; subagent_wait returns the result once it is done")
    state, text = _end_state(ended), defang_markup(strip_control_characters(ended.text))
    facts: dict[str, Any] = {"elapsed": round(ended.elapsed, 3)}
    if text and ended.answer in {AnswerStatus.FINAL, AnswerStatus.PARTIAL}:
        facts["result"] = text
    if ended.failure:
        message = defang_markup(strip_control_characters(ended.failure.message))
        facts["error"] = {"code": str(ended.failure.code), "message": message}
        summary = f"{state}: {message}"
    else:
        summary = f"{state} after {ended.elapsed:.1f}s"
    head = _make_result(run, state, summary, **facts)
    body = f"\n\n{wrap_untrusted(ended.text, run.agent)}" if ended.text else ""
    return ToolResult(text=head.text + body, details=head.details, is_error=state == FAILED)


def _make_result(run: TrackedRun, state: str, summary: str, **facts: Any) -> ToolResult:
    shown, agent = run.session[:SHOWN_ID_LENGTH], to_one_line(run.agent, MAX_STATUS_CHARS)
    return ToolResult(
        text=f"{agent} (id {shown}): {summary}", details={"id": shown, "agent": agent, "state": state, **facts}
    )


def _end_state(ended: RunEnded) -> str:
    if ended.failure is None:
        return COMPLETED
    return CANCELLED if ended.failure.code is ErrorCode.ABORTED else FAILED


POLL_INTERVAL = 0.5
"""Seconds between two looks at a run of another process."""
RUNNING_ELSEWHERE = "at work, as another call or process asked it to"
STOP_TIMEOUT = 10.0
"""Seconds a cancelled run has to end: as long as a stubborn process tree takes."""


class BackgroundRun:
    """Something this server carries out and that has not ended."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.started, self.ended = anyio.Event(), anyio.Event()
        self.tracked_call: TrackedCall | None = None
        self.run: TrackedRun | None = None
        """Once it is recorded."""
        self.refusal: Failure | None = None


class BackgroundToolset:
    """`subagent_start`, `subagent_status`, `subagent_wait`, `subagent_steer`, `subagent_cancel`."""

    name = "background"

    def __init__(self, retinue: Retinue, tracker: CallTracker, group: TaskGroup) -> None:
        self._retinue = retinue
        self._tracker = tracker
        self._group = group
        self._active: dict[str, BackgroundRun] = {}
        """By the session of each."""

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        return {
            "subagent_start": self.start,
            "subagent_status": self.status,
            "subagent_wait": self.wait,
            "subagent_steer": self.steer,
            "subagent_cancel": self.cancel,
        }

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        if not self._retinue.toolset("single").list_tools(self._retinue.call("single")):
            return ()  # where nothing may be dispatched, nothing may be started
        return tuple(
            ToolDefinition(name=name, description=DESCRIPTIONS[name], input_schema=SCHEMAS[name], run=run)
            for name, run in self.handlers.items()
        )

    def invalid_json_result(self, tool: str, problem: str, call: CallContext) -> ToolResult:
        return self._refused_result(
            Failure(ErrorCode.INVALID_INPUT, f"The input of {tool} is not a JSON object: {problem}")
        )

    # -- the tools ---------------------------------------------------------------------------------

    async def start(self, arguments: Any, call: CallContext, update: OnPartialResult | None = None) -> ToolResult:
        """Begins a run and answers with its id as soon as it is recorded."""

        async def answer() -> ToolResult:
            plan, work = Plan(tasks=(decode_start(arguments),)), BackgroundRun()
            self._group.start_soon(self._run_plan, plan, self._detached_context(call), work)
            try:
                await work.started.wait()
                with anyio.move_on_after(START_TIMEOUT):
                    await work.ended.wait()
            except anyio.get_cancelled_exc_class():
                work.scope.cancel()  # nobody would ever know its id
                raise
            if refusal := work.refusal or start_failure(work.run):
                raise RefusedError(refusal)
            assert work.run is not None
            return answer_result(work.run)

        return await self._with_refusals(answer)

    async def status(self, arguments: Any, call: CallContext, update: OnPartialResult | None = None) -> ToolResult:
        """What a run is doing, or how it ended."""

        async def answer() -> ToolResult:
            return status_result(await self._find_run(arguments))

        return await self._with_refusals(answer)

    async def wait(self, arguments: Any, call: CallContext, update: OnPartialResult | None = None) -> ToolResult:
        """The result of a run, waited for within a bound."""

        async def answer() -> ToolResult:
            timeout, run = decode_wait(arguments), await self._find_run(arguments)
            return answer_result(await self._wait_ended(run, call, DEFAULT_WAIT if timeout is None else timeout))

        return await self._with_refusals(answer)

    async def steer(self, arguments: Any, call: CallContext, update: OnPartialResult | None = None) -> ToolResult:
        """Says something to the agent of a run of this server while it works."""

        async def answer() -> ToolResult:
            run = await self._find_run(arguments)
            text = require_text(arguments, "text")
            if run.ended:
                raise refuse(ErrorCode.CONFLICT, f"{run.session[:SHOWN_ID_LENGTH]} {RUN_ENDED_MESSAGE}", "ended")
            await self._retinue.steer(run.run, text)
            return steered_result(run)

        return await self._with_refusals(answer)

    async def cancel(self, arguments: Any, call: CallContext, update: OnPartialResult | None = None) -> ToolResult:
        """Stops a run of this server and returns when it has ended."""

        async def answer() -> ToolResult:
            run = await self._find_run(arguments)
            if run.ended is None and not self._retinue.stop(run.run):
                shown = run.session[:SHOWN_ID_LENGTH]
                raise refuse(
                    ErrorCode.SESSION_BUSY,
                    f"{shown} is carried out by another process and was not stopped. "
                    f"`retinue cancel {shown}` stops it.",
                )
            return answer_result(await self._wait_ended(run, call, STOP_TIMEOUT))

        return await self._with_refusals(answer)

    # -- the work ----------------------------------------------------------------------------------

    def _detached_context(self, call: CallContext) -> CallContext:
        """A call like this one that outlasts it, on the terms of `single`."""
        own = self._retinue.call("single")
        lineage = structs.replace(own.lineage, root=call.lineage.root)
        return structs.replace(own, lineage=lineage, roots=call.roots)

    async def _run_plan(self, plan: Plan, call: CallContext, background_run: BackgroundRun) -> None:
        def on_started(run: TrackedRun) -> None:
            background_run.run = run
            self._active[run.session] = background_run
            background_run.started.set()

        with self._tracker.track(call.lineage.parent_call, on_started) as background_run.tracked_call:
            try:
                with background_run.scope:
                    await self._retinue.run_plan(plan, call)
            except RefusedError as refusal:
                background_run.refusal = refusal.failure
            finally:
                self._tracker.catch_up()
                if background_run.run:
                    del self._active[background_run.run.session]
                background_run.ended.set()
                background_run.started.set()

    async def _wait_ended(self, run: TrackedRun, call: CallContext, timeout: float) -> TrackedRun:
        """The run once it has ended, or as far as it has come when patience does; the call tells of it meanwhile."""
        observer = self._tracker.get(call.lineage.parent_call)
        with anyio.move_on_after(timeout):
            if (work := self._active.get(run.session)) and work.tracked_call:
                with work.tracked_call.share_with(observer):
                    await work.ended.wait()
            while run.ended is None:
                await anyio.sleep(POLL_INTERVAL)
                run = await self._load_run(run.session)
        observer.update_run(run)
        return run

    async def _find_run(self, arguments: Any) -> TrackedRun:
        """The run that the input names.

        Raises:
            Refused: `invalid_input` or `session_not_found`.
        """
        if not isinstance(arguments, dict):
            raise refuse(ErrorCode.INVALID_INPUT, "The input must be an object with id")
        return await self._load_run(require_text(arguments, "id"))

    async def _load_run(self, name: str) -> TrackedRun:
        summary = await self._retinue.session(name)
        if summary is None:
            raise refuse(
                ErrorCode.SESSION_NOT_FOUND, f'There is no work of the id "{name}". subagent_start returns ids.'
            )
        work = self._active.get(summary.session)
        return work.run if work and work.run else await self._load_stored(summary)

    async def _load_stored(self, summary: SessionSummary) -> TrackedRun:
        ended = await self._load_end(summary.session)
        if ended is None:  # its process may be gone, and nobody has noticed
            await self._retinue.recover()
            ended = await self._load_end(summary.session)
        return TrackedRun(
            run=summary.latest.run,
            session=summary.session,
            name=summary.name,
            agent=summary.agent,
            status=RUNNING_ELSEWHERE,
            ended=ended,
        )

    async def _load_end(self, session: str) -> RunEnded | None:
        last = await self._retinue.tail(session, 1)
        return last[0].event if last and isinstance(last[0].event, RunEnded) else None

    async def _with_refusals(self, answer: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        try:
            return await answer()
        except RefusedError as refusal:
            return self._refused_result(refusal.failure)

    def _refused_result(self, failure: Failure) -> ToolResult:
        """The answer to a call that did nothing. It may quote its input, which no record has masked."""
        message = defang_markup(strip_control_characters(self._retinue.redact(failure.message)))
        details = {"error": {"code": str(failure.code), "message": message}}
        return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED_EXIT_CODE)
