"""The background tools: agents that are started, inspected, awaited, steered and cancelled by id.

Five tools in the form of a toolset, with the settings of `single`. The id is that of the session: results
are in the session store and survive a restart of the server.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from retinue.client import Retinue
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.events import RunEnded
from retinue.model.results import REFUSAL_CODES, AnswerStatus
from retinue.model.tasks import CallContext, Plan, Task
from retinue.output.untrusted_text import defang_markup, strip_control_characters, to_one_line, wrap_untrusted
from retinue.servers.mcp.call_tracker import CallTracker, TrackedCall, TrackedRun
from retinue.servers.mcp.jobs import CANCELLED, COMPLETED, FAILED, WORKING, Job, JobRegistry
from retinue.sessions.store import SessionSummary
from retinue.support.formatting import pluralize
from retinue.toolsets.base import OnPartialResult, RunTool, ToolDefinition, ToolResult, refusal_result
from retinue.toolsets.inputs import JsonObject, decode_fields, invalid_input, require_object, require_text

SHOWN_ID_LENGTH = 16
"""Characters of a session id that clients get."""
DEFAULT_WAIT = 30.0
"""Seconds a call waits by default: less than most hosts wait for a tool."""
MAX_WAIT = 600.0
RUN_ENDED_MESSAGE = (
    "has ended; the message was not sent. Call subagent_start with this id to continue with its context."
)
MAX_STATUS_CHARS = 200

POLL_INTERVAL = 0.5
"""Seconds between two checks of a run of another process."""
RUNNING_ELSEWHERE = "running, started by another call or process"
STOP_TIMEOUT = 10.0
"""Seconds a cancelled run has to end: as long as a stubborn process tree takes."""

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
            "id": {"type": "string", "description": "An earlier id, to continue with its context"},
            "timeout": {"type": "number", "minimum": 1, "description": "Timeout in seconds"},
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
                "description": f"Seconds to wait at most (default: {DEFAULT_WAIT:g})",
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
    "subagent_status": "Get the state of a background agent without waiting.",
    "subagent_wait": "Wait for a background agent, at most for a given time, and return its result.",
    "subagent_steer": "Send a message to a running background agent; the agent sees it before its next model call.",
    "subagent_cancel": "Cancel a background agent; its partial output is kept.",
}


# -- input -----------------------------------------------------------------------------------------


def decode_start(arguments: Any) -> Task:
    """Return the task of `subagent_start`.

    Raises:
        RefusedError: `invalid_input`, naming the field.
    """
    arguments = require_object(arguments, "subagent_start", " with agent and task")
    properties = SCHEMAS["subagent_start"]["properties"]
    texts = {name: properties[name] for name in ("id", "agent", "task")}
    fields = decode_fields(texts, arguments, required=("agent", "task"))
    return Task(
        agent=fields["agent"],
        prompt=fields["task"],
        session=fields.get("id"),
        timeout=_decode_seconds(arguments, "timeout", low=1.0),
    )


def decode_wait(arguments: Any) -> float:
    """Return how many seconds `subagent_wait` may take.

    Raises:
        RefusedError: `invalid_input`, naming the field.
    """
    found = _decode_seconds(arguments, "seconds", low=0.0) if isinstance(arguments, dict) else None
    return DEFAULT_WAIT if found is None else min(found, MAX_WAIT)


def _decode_seconds(arguments: Mapping[str, Any], name: str, *, low: float) -> float | None:
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value < math.inf:
        raise invalid_input(f"Parameter {name} must be a number of seconds, at least {low:g}")
    return float(value)


# -- results ---------------------------------------------------------------------------------------


def start_failure(run: TrackedRun | None) -> Failure | None:
    """Return the failure of a run that was recorded but could not start; None if it started."""
    ended = run.ended if run else None
    if ended is None or ended.failure is None or ended.answer is not AnswerStatus.NONE:
        return None
    return ended.failure if ended.failure.code in REFUSAL_CODES else None


def status_result(run: TrackedRun) -> ToolResult:
    """Return the status of a run without its answer."""
    if run.ended:
        state = _end_state(run.ended)
        return _make_result(run, state, f"{state} after {run.ended.elapsed:.1f}s; subagent_wait returns its output")
    summary = f"{to_one_line(run.status, MAX_STATUS_CHARS)} ({pluralize(run.tools, 'tool call')} so far)"
    return _make_result(run, WORKING, summary, doing=summary)


def steered_result(run: TrackedRun) -> ToolResult:
    """Return the confirmation that a message was sent to the agent of a run."""
    return _make_result(run, WORKING, "message sent; the agent will see it before its next model call")


def answer_result(run: TrackedRun) -> ToolResult:
    """Return the result of a run with its text marked as untrusted, or that the run is not done yet."""
    ended = run.ended
    if ended is None:
        return _make_result(run, WORKING, "running; subagent_wait returns the result when it has ended")
    state, text = _end_state(ended), defang_markup(strip_control_characters(ended.text))
    facts: dict[str, Any] = {"elapsed": round(ended.elapsed, 3)}
    if text and ended.answer.is_text:
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


# -- the toolset -----------------------------------------------------------------------------------

ToolHandler = Callable[[Any, CallContext], Awaitable[ToolResult]]


class BackgroundRun(Job):
    """A run this server started for a client."""

    def __init__(self) -> None:
        super().__init__()
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
        self._jobs: JobRegistry[BackgroundRun] = JobRegistry(group)

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        return {
            "subagent_start": self._with_refusals(self._start),
            "subagent_status": self._with_refusals(self._show_status),
            "subagent_wait": self._with_refusals(self._wait),
            "subagent_steer": self._with_refusals(self._steer),
            "subagent_cancel": self._with_refusals(self._cancel),
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

    def _with_refusals(self, run: ToolHandler) -> RunTool:
        """Return the tool with refusals as results."""

        async def run_tool(arguments: Any, call: CallContext, _: OnPartialResult | None = None) -> ToolResult:
            try:
                return await run(arguments, call)
            except RefusedError as refusal:
                return self._refused_result(refusal.failure)

        return run_tool

    def _refused_result(self, failure: Failure) -> ToolResult:
        """Return the result of a call that did nothing. It may quote its input, which no record has redacted."""
        return refusal_result(failure, defang_markup(strip_control_characters(self._retinue.redact(failure.message))))

    # -- the tools ---------------------------------------------------------------------------------

    async def _start(self, arguments: Any, call: CallContext) -> ToolResult:
        """Start a run and return its id as soon as it is recorded."""
        plan, background_run = Plan(tasks=(decode_start(arguments),)), BackgroundRun()
        await self._jobs.start(background_run, partial(self._run_plan, plan, self._detached_context(call)))
        if refusal := background_run.refusal or start_failure(background_run.run):
            raise RefusedError(refusal)
        assert background_run.run is not None
        return answer_result(background_run.run)

    async def _show_status(self, arguments: Any, call: CallContext) -> ToolResult:
        return status_result(await self._find_run(arguments))

    async def _wait(self, arguments: Any, call: CallContext) -> ToolResult:
        timeout, run = decode_wait(arguments), await self._find_run(arguments)
        return answer_result(await self._wait_ended(run, call, timeout))

    async def _steer(self, arguments: Any, call: CallContext) -> ToolResult:
        run = await self._find_run(arguments)
        text = require_text(arguments, "text")
        if run.ended:
            raise refuse(ErrorCode.CONFLICT, f"{run.session[:SHOWN_ID_LENGTH]} {RUN_ENDED_MESSAGE}", "ended")
        await self._retinue.steer(run.run, text)
        return steered_result(run)

    async def _cancel(self, arguments: Any, call: CallContext) -> ToolResult:
        """Stop a run of this server and return when it has ended."""
        run = await self._find_run(arguments)
        if run.ended is None and not self._retinue.stop(run.run):
            shown = run.session[:SHOWN_ID_LENGTH]
            raise refuse(
                ErrorCode.SESSION_BUSY,
                f"{shown} belongs to another process and was not cancelled. Cancel it: retinue cancel {shown}",
            )
        return answer_result(await self._wait_ended(run, call, STOP_TIMEOUT))

    # -- the runs ----------------------------------------------------------------------------------

    def _detached_context(self, call: CallContext) -> CallContext:
        """Return a context like that of the call, with the settings of `single`, that outlasts the call."""
        own = self._retinue.call("single")
        lineage = structs.replace(own.lineage, root=call.lineage.root)
        return structs.replace(own, lineage=lineage, roots=call.roots)

    async def _run_plan(self, plan: Plan, call: CallContext, background_run: BackgroundRun) -> None:
        def on_started(run: TrackedRun) -> None:
            background_run.run = run
            self._jobs.active[run.session] = background_run
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
                    del self._jobs.active[background_run.run.session]

    async def _wait_ended(self, run: TrackedRun, call: CallContext, timeout: float) -> TrackedRun:
        """Return the run once it has ended or the timeout has passed; the call reports its progress meanwhile."""
        observer = self._tracker.get(call.lineage.parent_call)
        with anyio.move_on_after(timeout):
            if (job := self._jobs.active.get(run.session)) and job.tracked_call:
                with job.tracked_call.share_with(observer):
                    await job.ended.wait()
            while run.ended is None:
                await anyio.sleep(POLL_INTERVAL)
                run = await self._load_run(run.session)
        observer.update_run(run)
        return run

    async def _find_run(self, arguments: Any) -> TrackedRun:
        """Return the run that the input names.

        Raises:
            RefusedError: `invalid_input` or `session_not_found`.
        """
        if not isinstance(arguments, dict):
            raise invalid_input("The input must be an object with id")
        return await self._load_run(require_text(arguments, "id"))

    async def _load_run(self, name: str) -> TrackedRun:
        summary = await self._retinue.session(name)
        if summary is None:
            raise refuse(ErrorCode.SESSION_NOT_FOUND, f'Id "{name}" not found. subagent_start returns ids.')
        job = self._jobs.active.get(summary.session)
        return job.run if job and job.run else await self._load_stored(summary)

    async def _load_stored(self, summary: SessionSummary) -> TrackedRun:
        ended = await self._load_end(summary.session)
        if ended is None:  # its process may have died without recording the end
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
