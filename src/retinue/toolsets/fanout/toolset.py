"""The fanout toolset: delegate named tasks, and read their output and sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from msgspec import structs

from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.results import AnswerStatus, RunResult
from retinue.model.tasks import CallContext, FileSlice, Mode, Plan, Task
from retinue.output.truncate import LineRange, select_lines
from retinue.runtime.orchestrator import Orchestrator
from retinue.sessions.store import SessionState, SessionSummary
from retinue.toolsets.base import (
    REFUSED_EXIT_CODE,
    OnPartialResult,
    RunTool,
    ToolDefinition,
    ToolResult,
    append_notices,
    follow_call,
    ignored_notice,
    invalid_json_failure,
)
from retinue.toolsets.fanout.texts import NO_PROFILES, FailureTexts
from retinue.toolsets.fanout.windows import COMPLETED, ERROR, MAX_NAME_CHARS, RUNNING, SHOWN_ID_LENGTH, LiveWindows
from retinue.transcripts.fanout import find_latest_text, render_transcript, sanitize_text

PATH_SCHEMA = {"type": "string", "description": "Relative to the task's cwd, or absolute"}
LINE_SCHEMA = {"type": "integer", "minimum": 1}


def _slice_schema(**lines: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": {"path": PATH_SCHEMA, **lines}, "required": ["path"]}


FILES_SCHEMA: Mapping[str, Any] = {
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

TASK_SCHEMA: Mapping[str, Any] = {
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

FILE_FIELDS = ("path", "start", "end", "head", "tail")


def make_delegate_schema(max_tasks: int) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": {
            "tasks": {
                "type": "array",
                "items": TASK_SCHEMA,
                "minItems": 1,
                "maxItems": max_tasks,
                "description": "Tasks to execute in parallel",
            },
            "profile": {"type": "string", "description": "Default profile of all tasks"},
        },
        "required": ["tasks"],
    }


SESSION_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "sessionId": {"type": "string", "description": "The session ID returned by delegate_to_subagents"}
    },
    "required": ["sessionId"],
}
OUTPUT: Mapping[str, Any] = {
    **SESSION_SCHEMA,
    "properties": {
        **SESSION_SCHEMA["properties"],
        "start": {**LINE_SCHEMA, "description": "First line to return, counted from 1 (default: 1)"},
        "lines": {**LINE_SCHEMA, "description": "How many lines to return at most (default: all)"},
    },
}
EMPTY_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}


def decode_tasks(arguments: Any) -> tuple[Task, ...]:
    """The tasks of a call.

    Raises:
        Refused: `invalid_input`, naming the field.
    """
    fields = require_object(arguments, "delegate_to_subagents")
    profile = _decode_optional_text(fields, "profile", "")
    tasks = fields.get("tasks")
    if tasks is None:
        raise _missing_field_error("tasks")
    if not isinstance(tasks, list):
        raise _wrong_type_error("tasks", "an array of tasks")
    return tuple(_decode_task(task, f"tasks[{number}]", profile) for number, task in enumerate(tasks))


def decode_session_id(arguments: Any, tool: str) -> str:
    """The id of the session that is asked for.

    Raises:
        Refused: the same.
    """
    return _require_text(require_object(arguments, tool), "sessionId", "")


def line_range(arguments: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the first line and the number of lines that are asked for; None where one is not given.

    Raises:
        Refused: the same.
    """
    return _decode_line(arguments.get("start"), "start"), _decode_line(arguments.get("lines"), "lines")


def require_object(arguments: Any, tool: str) -> Mapping[str, Any]:
    if not isinstance(arguments, dict):
        raise refuse(ErrorCode.INVALID_INPUT, f"The input of {tool} must be an object")
    return arguments


def describe_ignored_fields(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """What is to be known of input that means nothing here."""
    return ignored_notice(_find_unknown_fields(arguments))


def ignored_beside(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the notice on fields that this schema does not have."""
    return ignored_notice(name for name in arguments if name not in schema["properties"])


def _find_unknown_fields(arguments: Mapping[str, Any]) -> Iterator[str]:
    yield from (str(name) for name in arguments if name not in {"tasks", "profile"})
    for number, task in enumerate(arguments["tasks"]):
        yield from (f"tasks[{number}].{name}" for name in task if name not in TASK_SCHEMA["properties"])
        for place, file in enumerate(task.get("files") or ()):
            if isinstance(file, dict):
                yield from (f"tasks[{number}].files[{place}].{name}" for name in file if name not in FILE_FIELDS)


# -- fields ------------------------------------------------------------------------------------------


def _decode_task(fields: Any, where: str, profile: str | None) -> Task:
    if not isinstance(fields, dict):
        raise _wrong_type_error(where, "an object with name and prompt")
    return Task(
        name=_require_text(fields, "name", where),
        prompt=_require_text(fields, "prompt", where),
        agent=_decode_optional_text(fields, "profile", where) or profile,
        cwd=_decode_optional_text(fields, "cwd", where),
        timeout=_decode_number(fields.get("timeout"), f"{where}.timeout"),
        session=_decode_optional_text(fields, "resume", where),
        files=_decode_files(fields.get("files"), f"{where}.files"),
    )


def _decode_files(given: Any, where: str) -> tuple[FileSlice, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise _wrong_type_error(where, "an array of files")
    return tuple(_decode_file(file, f"{where}[{number}]") for number, file in enumerate(given))


def _decode_file(given: Any, where: str) -> FileSlice:
    if isinstance(given, str):
        given = {"path": given}
    if not isinstance(given, dict):
        raise _wrong_type_error(where, "a path, or an object with a path")
    lines = {name: _decode_line(given.get(name), f"{where}.{name}") for name in FILE_FIELDS[1:]}
    return FileSlice(path=_require_text(given, "path", where), **lines)


def _decode_line(value: Any, where: str) -> int | None:
    number = _decode_number(value, where)
    if number is None:
        return None
    if number != number // 1 or number < 1:
        raise _wrong_type_error(where, "a whole number, at least 1")
    return int(number)


def _decode_number(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type_error(where, "a number")
    return value


def _require_text(fields: Mapping[str, Any], name: str, where: str) -> str:
    value = _decode_optional_text(fields, name, where)
    if value is None:
        raise _missing_field_error(_qualify_name(name, where))
    return value


def _decode_optional_text(fields: Mapping[str, Any], name: str, where: str) -> str | None:
    """The field; none where it is empty: models fill in what they leave out."""
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong_type_error(_qualify_name(name, where), "a string")
    return value or None


def _qualify_name(name: str, where: str) -> str:
    return f"{where}.{name}" if where else name


def _missing_field_error(name: str) -> RefusedError:
    return refuse(ErrorCode.INVALID_INPUT, f"Missing required parameter: {name}")


def _wrong_type_error(name: str, what: str) -> RefusedError:
    return refuse(ErrorCode.INVALID_INPUT, f"Parameter {name} must be {what}")


DESCRIPTIONS: Mapping[str, str] = {
    "delegate_to_subagents": (
        "Spawn one or more parallel sub-agents to work on separate tasks concurrently. Each works in its own context "
        "and sees nothing of this conversation: give it everything it needs. Returns a status and a session ID per "
        "task; fetch the results with get_subagent_output, the whole transcript with get_subagent_session, and pass "
        "a session ID as resume to go on. list_subagent_profiles tells which profiles there are."
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


class FanoutToolset:
    """`delegate_to_subagents`, `get_subagent_output`, `get_subagent_session`, `list_subagent_profiles`."""

    name = "fanout"

    def __init__(self, orchestrator: Orchestrator, home: str) -> None:
        self._orchestrator = orchestrator

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        return {
            "delegate_to_subagents": self.delegate,
            "get_subagent_output": self.read_output,
            "get_subagent_session": self.read_session,
            "list_subagent_profiles": self.list_profiles,
        }

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        try:
            settings = self._orchestrator.authorize(call).settings
        except RefusedError:
            return ()
        schemas = (make_delegate_schema(settings.max_tasks), OUTPUT, SESSION_SCHEMA, EMPTY_SCHEMA)
        return tuple(
            ToolDefinition(name=name, description=DESCRIPTIONS[name], input_schema=schema, run=run)
            for (name, run), schema in zip(self.handlers.items(), schemas, strict=True)
        )

    def invalid_json_result(self, tool: str, problem: str, call: CallContext) -> ToolResult:
        return self._refusal_result(invalid_json_failure(self._orchestrator, tool, problem, call), call)

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        return FailureTexts(self._orchestrator, call).render_redacted_failure(failure)

    def tool_session_id(self, session: str) -> str | None:
        return session[:SHOWN_ID_LENGTH]

    async def delegate(self, arguments: Any, call: CallContext, update: OnPartialResult | None = None) -> ToolResult:
        """Carries out the tasks and answers with a line each when all have ended; a failed task is an answer, too."""

        async def answer() -> ToolResult:
            settings = self._orchestrator.authorize(call).settings
            tasks = decode_tasks(arguments)
            notices = describe_ignored_fields(arguments)
            noted = structs.replace(call, notices=(*call.notices, *notices))
            windows = LiveWindows(tasks, FailureTexts(self._orchestrator, call), settings.max_lines_per_window)

            async def work() -> tuple[RunResult, ...] | RefusedError:
                plan = Plan(tasks=tasks, mode=Mode.PARALLEL)
                try:
                    return await self._orchestrator.run_plan(plan, noted, windows.set_specs)
                except RefusedError as refusal:
                    return refusal  # raised here, it would be wrapped in a group

            results, progress = await follow_call(self._orchestrator, call, work, windows.render_partial, update)
            if isinstance(results, RefusedError):
                raise results
            return append_notices(self._orchestrator, windows.render_final(progress, results), notices)

        return await self._answer(answer, call)

    async def read_output(
        self, arguments: Any, call: CallContext, update: OnPartialResult | None = None
    ) -> ToolResult:
        """The last text of a session's latest run."""

        async def answer() -> ToolResult:
            settings = self._orchestrator.authorize(call).settings
            name, (start, count) = decode_session_id(arguments, "get_subagent_output"), line_range(arguments)
            found = await self._find_session(name)
            text = await self._find_latest_text(found)
            details = {**_session_details(found), "runCount": found.runs, "maxLines": settings.max_lines_per_window}
            text = sanitize_text(text) if text.strip() else NO_TEXT
            if start or count:
                part = _part(text, start, count)
                details |= {"firstLine": part.first, "lastLine": part.last, "totalLines": part.total}
                text = _with_range(part)
            answered = ToolResult(text=text, details=details)
            return append_notices(self._orchestrator, answered, ignored_beside(OUTPUT, arguments))

        return await self._answer(answer, call)

    async def read_session(
        self, arguments: Any, call: CallContext, update: OnPartialResult | None = None
    ) -> ToolResult:
        """All that a session's runs said and did."""

        async def answer() -> ToolResult:
            settings = self._orchestrator.authorize(call).settings
            found = await self._find_session(decode_session_id(arguments, "get_subagent_session"))
            is_running = STATUSES[found.latest.state] == RUNNING
            text, messages = await render_transcript(
                self._orchestrator.read_events(found.session),
                live=is_running,
                describe_failure=FailureTexts(self._orchestrator, call).render_failure,
            )
            answered = ToolResult(
                text=text or NO_MESSAGES,
                details={
                    **_session_details(found),
                    "messageCount": messages,
                    "exitCode": None if is_running else found.latest.exit_code,
                    "model": found.model,
                    "runCount": found.runs,
                    "maxLines": settings.max_lines_per_window,
                },
            )
            return append_notices(self._orchestrator, answered, ignored_beside(SESSION_SCHEMA, arguments))

        return await self._answer(answer, call)

    async def list_profiles(
        self, arguments: Any, call: CallContext, update: OnPartialResult | None = None
    ) -> ToolResult:
        """The profiles there are, a line each."""

        async def answer() -> ToolResult:
            self._orchestrator.authorize(call)
            notices = ignored_beside(EMPTY_SCHEMA, require_object(arguments, "list_subagent_profiles"))
            found = FailureTexts(self._orchestrator, call).render_profiles()
            if found:
                listed = ToolResult(text="\n".join(found.values()), details={"count": len(found), "profiles": found})
            else:
                listed = ToolResult(text=NO_PROFILES, details={"count": 0})
            return append_notices(self._orchestrator, listed, notices)

        return await self._answer(answer, call)

    async def _answer(self, answer: Callable[[], Awaitable[ToolResult]], call: CallContext) -> ToolResult:
        try:
            return await answer()
        except RefusedError as refusal:
            return self._refusal_result(refusal.failure, call)

    async def _find_session(self, name: str) -> SessionSummary:
        """The session of this id.

        Raises:
            Refused: `session_not_found`.
        """
        found = await self._orchestrator.find_session(name)
        if found is None:
            message = f'Session "{name}" not found. The session may have expired or the ID is incorrect.'
            raise refuse(ErrorCode.SESSION_NOT_FOUND, message)
        return found

    async def _find_latest_text(self, found: SessionSummary) -> str:
        ended = await self._orchestrator.find_run_end(found.session)
        if ended is None:
            return await find_latest_text(self._orchestrator.read_events(found.session, run=found.latest.run))
        return ended.text if ended.answer in {AnswerStatus.FINAL, AnswerStatus.PARTIAL} else ""

    def _refusal_result(self, failure: Failure, call: CallContext) -> ToolResult:
        message = self.failure_text(failure, call)
        details = {"error": {"code": str(failure.code), "message": message}}
        return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED_EXIT_CODE)


def _part(text: str, start: int | None, count: int | None) -> LineRange:
    try:
        return select_lines(text, start, count)
    except IndexError as error:
        raise refuse(ErrorCode.INVALID_INPUT, f"Parameter {error}") from None


def _with_range(part: LineRange) -> str:
    """Return the lines, and below them which ones they are and how to read on."""
    more = f". Read on with start: {part.last + 1}" if part.last < part.total else ""
    return f"{part.text}\n\n[Lines {part.first} to {part.last} of {part.total}{more}]"


def _session_details(found: SessionSummary) -> dict[str, Any]:
    return {
        "sessionId": found.session[:SHOWN_ID_LENGTH],
        "status": STATUSES[found.latest.state],
        "taskName": sanitize_text(found.name)[:MAX_NAME_CHARS],
    }
