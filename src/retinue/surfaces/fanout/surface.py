"""The four tools of `fanout`, and what each answers. Where seed 003 throws, the answer is an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import structs

from retinue.orchestrator import Orchestrator
from retinue.output.truncate import LineRange, select_lines
from retinue.results import AnswerKind, RunResult
from retinue.retelling import clean, latest_text, transcript
from retinue.sessions.store import SessionSummary, State
from retinue.surfaces.base import (
    REFUSED,
    Tool,
    ToolResult,
    ToolRun,
    Update,
    append_notices,
    followed,
    unreadable_input,
)
from retinue.surfaces.fanout.inputs import (
    NOTHING,
    OUTPUT,
    SESSION,
    decoded,
    delegate_schema,
    ignored,
    ignored_beside,
    line_range,
    object_of,
    session_id,
)
from retinue.surfaces.fanout.windows import COMPLETED, ERROR, MOST_NAME, RUNNING, SHOWN_ID, Windows
from retinue.surfaces.fanout.words import NO_PROFILES, Words
from retinue.types import Call, Code, Failure, Mode, Plan, Refused, refused

ABOUT: Mapping[str, str] = {
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
STATUSES: Mapping[State, str] = {
    State.QUEUED: RUNNING,
    State.RUNNING: RUNNING,
    State.COMPLETED: COMPLETED,
    State.ERROR: ERROR,
}


class Fanout:
    """`delegate_to_subagents`, `get_subagent_output`, `get_subagent_session`, `list_subagent_profiles`."""

    name = "fanout"

    def __init__(self, orchestrator: Orchestrator, home: str) -> None:
        self._orchestrator = orchestrator

    @property
    def calls(self) -> Mapping[str, ToolRun]:
        return {
            "delegate_to_subagents": self.delegate,
            "get_subagent_output": self.output,
            "get_subagent_session": self.session,
            "list_subagent_profiles": self.profiles,
        }

    def tools(self, call: Call) -> tuple[Tool, ...]:
        try:
            settings = self._orchestrator.admit(call).settings
        except Refused:
            return ()
        schemas = (delegate_schema(settings.max_tasks), OUTPUT, SESSION, NOTHING)
        return tuple(
            Tool(name=name, description=ABOUT[name], input_schema=schema, run=run)
            for (name, run), schema in zip(self.calls.items(), schemas, strict=True)
        )

    def unreadable(self, tool: str, problem: str, call: Call) -> ToolResult:
        return self._refusal(unreadable_input(self._orchestrator, tool, problem, call), call)

    def failure_text(self, failure: Failure, call: Call) -> str:
        return Words(self._orchestrator, call).told(failure)

    def tool_session_id(self, session: str) -> str | None:
        return session[:SHOWN_ID]

    async def delegate(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """Carries out the tasks and answers with a line each when all have ended; a failed task is an answer, too."""

        async def answer() -> ToolResult:
            settings = self._orchestrator.admit(call).settings
            tasks = decoded(arguments)
            notices = ignored(arguments)
            noted = structs.replace(call, notices=(*call.notices, *notices))
            windows = Windows(tasks, Words(self._orchestrator, call), settings.max_lines_per_window)

            async def work() -> tuple[RunResult, ...] | Refused:
                plan = Plan(tasks=tasks, mode=Mode.PARALLEL)
                try:
                    return await self._orchestrator.carry_out(plan, noted, windows.begun)
                except Refused as refusal:
                    return refusal  # raised here, it would be wrapped in a group

            results, progress = await followed(self._orchestrator, call, work, windows.partial, update)
            if isinstance(results, Refused):
                raise results
            return append_notices(self._orchestrator, windows.final(progress, results), notices)

        return await self._answered(answer, call)

    async def output(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """The last text of a session's latest run."""

        async def answer() -> ToolResult:
            settings = self._orchestrator.admit(call).settings
            name, (start, count) = session_id(arguments, "get_subagent_output"), line_range(arguments)
            found = await self._found(name)
            text = await self._latest_text(found)
            details = {**_facts(found), "runCount": found.runs, "maxLines": settings.max_lines_per_window}
            text = clean(text) if text.strip() else NO_TEXT
            if start or count:
                part = _part(text, start, count)
                details |= {"firstLine": part.first, "lastLine": part.last, "totalLines": part.total}
                text = _with_range(part)
            answered = ToolResult(text=text, details=details)
            return append_notices(self._orchestrator, answered, ignored_beside(OUTPUT, arguments))

        return await self._answered(answer, call)

    async def session(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """All that a session's runs said and did."""

        async def answer() -> ToolResult:
            settings = self._orchestrator.admit(call).settings
            found = await self._found(session_id(arguments, "get_subagent_session"))
            is_running = STATUSES[found.latest.state] == RUNNING
            text, messages = await transcript(
                self._orchestrator.history(found.session),
                live=is_running,
                sentence=Words(self._orchestrator, call).sentence,
            )
            answered = ToolResult(
                text=text or NO_MESSAGES,
                details={
                    **_facts(found),
                    "messageCount": messages,
                    "exitCode": None if is_running else found.latest.exit_code,
                    "model": found.model,
                    "runCount": found.runs,
                    "maxLines": settings.max_lines_per_window,
                },
            )
            return append_notices(self._orchestrator, answered, ignored_beside(SESSION, arguments))

        return await self._answered(answer, call)

    async def profiles(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """The profiles there are, a line each."""

        async def answer() -> ToolResult:
            self._orchestrator.admit(call)
            notices = ignored_beside(NOTHING, object_of(arguments, "list_subagent_profiles"))
            found = Words(self._orchestrator, call).profiles()
            if found:
                listed = ToolResult(text="\n".join(found.values()), details={"count": len(found), "profiles": found})
            else:
                listed = ToolResult(text=NO_PROFILES, details={"count": 0})
            return append_notices(self._orchestrator, listed, notices)

        return await self._answered(answer, call)

    async def _answered(self, answer: Callable[[], Awaitable[ToolResult]], call: Call) -> ToolResult:
        try:
            return await answer()
        except Refused as refusal:
            return self._refusal(refusal.failure, call)

    async def _found(self, name: str) -> SessionSummary:
        """The session of this id.

        Raises:
            Refused: `session_not_found`.
        """
        found = await self._orchestrator.session(name)
        if found is None:
            message = f'Session "{name}" not found. The session may have expired or the ID is incorrect.'
            raise refused(Code.SESSION_NOT_FOUND, message)
        return found

    async def _latest_text(self, found: SessionSummary) -> str:
        ended = await self._orchestrator.end_of(found.session)
        if ended is None:
            return await latest_text(self._orchestrator.history(found.session, run=found.latest.run))
        return ended.text if ended.answer in {AnswerKind.FINAL, AnswerKind.PARTIAL} else ""

    def _refusal(self, failure: Failure, call: Call) -> ToolResult:
        message = self.failure_text(failure, call)
        details = {"error": {"code": str(failure.code), "message": message}}
        return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED)


def _part(text: str, start: int | None, count: int | None) -> LineRange:
    try:
        return select_lines(text, start, count)
    except IndexError as error:
        raise refused(Code.INVALID_INPUT, f"Parameter {error}") from None


def _with_range(part: LineRange) -> str:
    """Return the lines, and below them which ones they are and how to read on."""
    more = f". Read on with start: {part.last + 1}" if part.last < part.total else ""
    return f"{part.text}\n\n[Lines {part.first} to {part.last} of {part.total}{more}]"


def _facts(found: SessionSummary) -> dict[str, Any]:
    return {
        "sessionId": found.session[:SHOWN_ID],
        "status": STATUSES[found.latest.state],
        "taskName": clean(found.name)[:MOST_NAME],
    }
