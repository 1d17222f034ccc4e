"""The `fanout` toolset: delegate named tasks, and read their output and sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import structs

from retinue.config.settings import Settings
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.events import RunEnded
from retinue.model.tasks import CallContext, FileSlice, Mode, Plan, Task
from retinue.output.truncate import LineRange, select_lines
from retinue.output.untrusted_text import map_strings, sanitize_text, strip_control_characters
from retinue.runtime.model_choice import drop_unlisted_choices
from retinue.runtime.orchestrator import Orchestrator
from retinue.sessions.store import SessionState, SessionSummary
from retinue.toolsets import inputs
from retinue.toolsets.base import OnPartialResult, OrchestratedToolset, RunTool, ToolDefinition, ToolResult
from retinue.toolsets.fanout.texts import NO_PROFILES, SESSION_NOT_FOUND_TEXT, FanoutTexts
from retinue.toolsets.fanout.windows import COMPLETED, ERROR, MAX_NAME_CHARS, RUNNING, SHOWN_ID_LENGTH, LiveWindows
from retinue.toolsets.inputs import (
    CHOICE_FIELDS,
    CHOICE_NOUNS,
    JsonObject,
    decode_choices,
    decode_output_schema,
    offered_choices,
    unapplied_notices,
    worktree_notices,
)
from retinue.transcripts.fanout import find_latest_text, render_transcript

PATH_SCHEMA = {"type": "string", "description": "Relative to the task's cwd, or absolute"}
LINE_SCHEMA = {"type": "integer", "minimum": 1}


def _slice_schema(**lines: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {"path": PATH_SCHEMA, **lines}, "required": ["path"]}


FILES_SCHEMA: JsonObject = {
    "type": "array",
    "description": "Files to read and put before the prompt: a path, a range of lines (1-indexed, inclusive), "
    "the first or the last lines. 1 MB per file at most.",
    "items": {
        "anyOf": [
            {"type": "string"},
            _slice_schema(start=LINE_SCHEMA, end=LINE_SCHEMA),
            {**_slice_schema(head=LINE_SCHEMA), "required": ["path", "head"]},
            {**_slice_schema(tail=LINE_SCHEMA), "required": ["path", "tail"]},
        ]
    },
}

TASK_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "description": "Display name of this sub-agent"},
        "prompt": {"type": "string", "minLength": 1, "description": "The task, with all the context it needs"},
        "cwd": {"type": "string", "description": "Working directory: an absolute path without '..' segments"},
        "profile": {"type": "string", "description": "Profile for this task; overrides the top-level one"},
        "timeout": {"type": "number", "minimum": 1, "description": "Seconds (default: 600)"},
        "resume": {"type": "string", "description": "ID of an earlier session to continue"},
        "files": FILES_SCHEMA,
    },
    "required": ["name", "prompt"],
}

FILE_PROPERTIES = {"path": PATH_SCHEMA, **dict.fromkeys(("start", "end", "head", "tail"), LINE_SCHEMA)}
DELEGATE_FIELDS = {"tasks": {"type": "array"}, "profile": {"type": "string"}}
FIELD_NOUNS = {"tasks": "an array of tasks", "files": "an array of files", **CHOICE_NOUNS}
TASK_FIELDS: JsonObject = {**TASK_SCHEMA["properties"], **CHOICE_FIELDS}


def make_delegate_schema(settings: Settings) -> JsonObject:
    task = {**TASK_SCHEMA, "properties": {**TASK_SCHEMA["properties"], **offered_choices(settings)}}
    return {
        "type": "object",
        "properties": {
            "tasks": {
                "type": "array",
                "items": task,
                "minItems": 1,
                "maxItems": settings.max_tasks,
                "description": "Tasks to execute in parallel",
            },
            "profile": {"type": "string", "description": "Default profile of all tasks"},
        },
        "required": ["tasks"],
    }


SESSION_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "sessionId": {"type": "string", "description": "The session ID returned by delegate_to_subagents"}
    },
    "required": ["sessionId"],
}
OUTPUT_SCHEMA: JsonObject = {
    **SESSION_SCHEMA,
    "properties": {
        **SESSION_SCHEMA["properties"],
        "start": {**LINE_SCHEMA, "description": "First line to return, counted from 1 (default: 1)"},
        "lines": {**LINE_SCHEMA, "description": "How many lines to return at most (default: all)"},
    },
}
EMPTY_SCHEMA: JsonObject = {"type": "object", "properties": {}}

DESCRIPTIONS: Mapping[str, str] = {
    "delegate_to_subagents": (
        "Spawn one or more parallel sub-agents to work on separate tasks concurrently. Each works in its own context "
        "and sees nothing of this conversation: give it everything it needs. Returns a status and a session ID per "
        "task; fetch the results with get_subagent_output, the whole transcript with get_subagent_session, and pass "
        "a session ID as resume to continue a session. list_subagent_profiles lists the profiles."
    ),
    "get_subagent_output": "Retrieve the final assistant text output from a completed sub-agent session.",
    "get_subagent_session": (
        "Retrieve the complete session transcript, including all messages, tool calls, and tool results."
    ),
    "list_subagent_profiles": "List all available named sub-agent profiles and their configurations.",
}

NO_TEXT = "(no text output from sub-agent)"
NO_MESSAGES = "(no messages in session)"
STATUSES: Mapping[SessionState, str] = {
    SessionState.QUEUED: RUNNING,
    SessionState.RUNNING: RUNNING,
    SessionState.COMPLETED: COMPLETED,
    SessionState.ERROR: ERROR,
}


class FanoutToolset(OrchestratedToolset):
    """`delegate_to_subagents`, `get_subagent_output`, `get_subagent_session`, `list_subagent_profiles`."""

    name = "fanout"

    def __init__(self, orchestrator: Orchestrator, home: str) -> None:
        super().__init__(orchestrator)

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        tools = (self._delegate, self._read_output, self._read_session, self._list_profiles)
        return {name: partial(self._answer_call, name, run) for name, run in zip(DESCRIPTIONS, tools, strict=True)}

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        try:
            settings = self._orchestrator.authorize(call).settings
        except RefusedError:
            return ()
        schemas = (make_delegate_schema(settings), OUTPUT_SCHEMA, SESSION_SCHEMA, EMPTY_SCHEMA)
        return tuple(
            ToolDefinition(name=name, description=DESCRIPTIONS[name], input_schema=schema, run=run)
            for (name, run), schema in zip(self.handlers.items(), schemas, strict=True)
        )

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        return FanoutTexts(self._orchestrator, call).render_redacted_failure(failure)

    def tool_session_id(self, session: str) -> str | None:
        return session[:SHOWN_ID_LENGTH]

    async def _answer_call(
        self, tool: str, run: RunTool, arguments: Any, call: CallContext, update: OnPartialResult | None = None
    ) -> ToolResult:
        try:
            return await run(arguments, call, update)
        except RefusedError as refusal:
            return self.refusal_result(refusal.failure, call, tool)

    async def _delegate(self, arguments: Any, call: CallContext, update: OnPartialResult | None) -> ToolResult:
        """Run the tasks and return a line for each when all have ended; a failed task is an answer, too."""
        admitted = self._orchestrator.authorize(call)
        decoded = Plan(tasks=_decode_tasks(arguments), mode=Mode.PARALLEL)
        plan, ignored_choices = drop_unlisted_choices(decoded, admitted.settings)
        notices = (*inputs.ignored_notice(_find_unknown_fields(arguments)), *ignored_choices)
        noted_call = structs.replace(call, notices=(*call.notices, *notices))
        max_lines = admitted.settings.max_lines_per_window
        windows = LiveWindows(plan.tasks, FanoutTexts(self._orchestrator, call), max_lines)
        results, progress = await self.follow_plan(
            plan, noted_call, windows.render_partial, update, windows.set_specs, admitted=admitted
        )
        answer = windows.render_final(progress, results)
        late = (*unapplied_notices(plan, results), *worktree_notices(results))
        return self.append_notices(answer, (*notices, *late))

    async def _read_output(self, arguments: Any, call: CallContext, _: OnPartialResult | None) -> ToolResult:
        """Return the last text of the session's latest run, or some lines of it."""
        settings = self._orchestrator.authorize(call).settings
        fields, notices = _decode_flat_input(OUTPUT_SCHEMA, arguments, "get_subagent_output")
        found = await self._find_session(fields["sessionId"])
        ended = await self._orchestrator.find_run_end(found.session)
        text = await self._find_latest_text(found, ended)
        details = {**_session_details(found), "runCount": found.runs, "maxLines": settings.max_lines_per_window}
        if ended and ended.finalized and ended.finalized.structured is not None:
            details["structured"] = map_strings(ended.finalized.structured, strip_control_characters)
        text = sanitize_text(text) if text.strip() else NO_TEXT
        if "start" in fields or "lines" in fields:
            part = _select_lines(text, fields.get("start"), fields.get("lines"))
            details |= {"firstLine": part.first, "lastLine": part.last, "totalLines": part.total}
            text = _render_range(part)
        return self.append_notices(ToolResult(text=text, details=details), notices)

    async def _read_session(self, arguments: Any, call: CallContext, _: OnPartialResult | None) -> ToolResult:
        """Return the transcript of all runs of a session."""
        settings = self._orchestrator.authorize(call).settings
        fields, notices = _decode_flat_input(SESSION_SCHEMA, arguments, "get_subagent_session")
        found = await self._find_session(fields["sessionId"])
        is_running = STATUSES[found.latest.state] == RUNNING
        text, messages = await render_transcript(
            self._orchestrator.read_events(found.session),
            live=is_running,
            describe_failure=FanoutTexts(self._orchestrator, call).render_failure,
        )
        details = {
            **_session_details(found),
            "messageCount": messages,
            "exitCode": None if is_running else found.latest.exit_code,
            "model": found.model,
            "runCount": found.runs,
            "maxLines": settings.max_lines_per_window,
        }
        return self.append_notices(ToolResult(text=text or NO_MESSAGES, details=details), notices)

    async def _list_profiles(self, arguments: Any, call: CallContext, _: OnPartialResult | None) -> ToolResult:
        """Return the available profiles, a line each."""
        self._orchestrator.authorize(call)
        notices = _decode_flat_input(EMPTY_SCHEMA, arguments, "list_subagent_profiles")[1]
        found = FanoutTexts(self._orchestrator, call).render_profiles()
        if found:
            listed = ToolResult(text="\n".join(found.values()), details={"count": len(found), "profiles": found})
        else:
            listed = ToolResult(text=NO_PROFILES, details={"count": 0})
        return self.append_notices(listed, notices)

    async def _find_session(self, name: str) -> SessionSummary:
        """Return the session with this id.

        Raises:
            RefusedError: `session_not_found`.
        """
        found = await self._orchestrator.find_session(name)
        if found is None:
            message = SESSION_NOT_FOUND_TEXT.format("Session", name)
            raise refuse(ErrorCode.SESSION_NOT_FOUND, message)
        return found

    async def _find_latest_text(self, found: SessionSummary, ended: RunEnded | None) -> str:
        if ended is None:
            return await find_latest_text(self._orchestrator.read_events(found.session, run=found.latest.run))
        return ended.text if ended.answer.is_text else ""


# -- input -------------------------------------------------------------------------------------------


def _decode_flat_input(schema: JsonObject, arguments: Any, tool: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields of a tool that takes no nested input, and the notice on those it ignores.

    Raises:
        RefusedError: `invalid_input`, naming the field.
    """
    given = inputs.require_object(arguments, tool)
    fields = inputs.decode_fields(schema["properties"], given, required=schema.get("required", ()))
    return fields, inputs.ignored_notice(inputs.unknown_fields(schema["properties"], given))


def _decode_tasks(arguments: Any) -> tuple[Task, ...]:
    """Return the tasks of a `delegate_to_subagents` call.

    Raises:
        RefusedError: `invalid_input`, naming the field.
    """
    given = inputs.require_object(arguments, "delegate_to_subagents")
    fields = inputs.decode_fields(DELEGATE_FIELDS, given, required=("tasks",), nouns=FIELD_NOUNS)
    return tuple(
        _decode_task(task, f"tasks[{number}]", fields.get("profile")) for number, task in enumerate(fields["tasks"])
    )


def _decode_task(given: Any, where: str, profile: str | None) -> Task:
    if not isinstance(given, dict):
        raise inputs.invalid_input(f"Parameter {where} must be an object with name and prompt")
    given = decode_output_schema(given, f"{where}.")
    fields = inputs.decode_fields(
        TASK_FIELDS, given, required=TASK_SCHEMA["required"], where=f"{where}.", nouns=FIELD_NOUNS
    )
    return Task(
        name=fields["name"],
        prompt=fields["prompt"],
        agent=fields.get("profile") or profile,
        cwd=fields.get("cwd"),
        timeout=fields.get("timeout"),
        session=fields.get("resume"),
        files=tuple(
            _decode_file(file, f"{where}.files[{number}]") for number, file in enumerate(fields.get("files", ()))
        ),
        **decode_choices(fields),
    )


def _decode_file(given: Any, where: str) -> FileSlice:
    if isinstance(given, str):
        given = {"path": given}
    if not isinstance(given, dict):
        raise inputs.invalid_input(f"Parameter {where} must be a path, or an object with a path")
    return FileSlice(**inputs.decode_fields(FILE_PROPERTIES, given, required=("path",), where=f"{where}."))


def _find_unknown_fields(arguments: JsonObject) -> Iterator[str]:
    yield from inputs.unknown_fields(DELEGATE_FIELDS, arguments)
    for number, task in enumerate(arguments["tasks"]):
        yield from inputs.unknown_fields(TASK_FIELDS, task, f"tasks[{number}].")
        for index, file in enumerate(task.get("files") or ()):
            if isinstance(file, dict):
                yield from inputs.unknown_fields(FILE_PROPERTIES, file, f"tasks[{number}].files[{index}].")


# -- results -----------------------------------------------------------------------------------------


def _select_lines(text: str, start: int | None, count: int | None) -> LineRange:
    try:
        return select_lines(text, start, count)
    except IndexError as error:
        raise inputs.invalid_input(f"Parameter {error}") from None


def _render_range(part: LineRange) -> str:
    """Return the lines, and below them which ones they are and how to read on."""
    more = f". Continue with start: {part.last + 1}" if part.last < part.total else ""
    return f"{part.text}\n\n[Lines {part.first} to {part.last} of {part.total}{more}]"


def _session_details(found: SessionSummary) -> dict[str, Any]:
    return {
        "sessionId": found.session[:SHOWN_ID_LENGTH],
        "status": STATUSES[found.latest.state],
        "taskName": sanitize_text(found.name)[:MAX_NAME_CHARS],
    }
