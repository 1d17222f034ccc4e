"""The `sticky` surface: seed 002. One agent, one task, a session to go on with; the answer is what was finalized."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from msgspec import structs

from retinue.folders import session_uuid, sticky_folder
from retinue.orchestrator import Orchestrator
from retinue.output.frame import neutralise, plain
from retinue.progress import KEPT_ITEMS, Progress
from retinue.results import AnswerKind, Finalization, RunResult
from retinue.surfaces.base import (
    BEFORE_THE_RUN,
    REFUSED,
    Clean,
    Tool,
    ToolResult,
    ToolRun,
    Update,
    add_skipped_file,
    agent_lines,
    append_notices,
    display_items,
    exit_status,
    ignored_notice,
    optional_text,
    required_text,
    storage_warning,
    streamed,
    unreadable_input,
)
from retinue.types import Call, Code, Failure, Plan, Refused, Task, refused

SESSION_ID = r"[A-Za-z0-9-]{8,64}"

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "agent": {"type": "string", "minLength": 1, "description": "Name of the agent to delegate to"},
        "task": {"type": "string", "minLength": 1, "description": "The focused task, with all the context it needs"},
        "sessionId": {
            "type": "string",
            "pattern": f"^({SESSION_ID})?$",
            "description": "The Session ID of an earlier answer of the same agent, to go on with its context; "
            "leave it out to begin a new session",
        },
    },
    "required": ["agent", "task"],
}
SUPPORTED = ", ".join(SCHEMA["properties"])

ABOUT = (
    "Delegate one focused task to a specialised agent that works in its own context and reports a finalized result. "
    "Give it everything it needs: it does not see this conversation. Every answer names a session; pass its id as "
    "sessionId to go on with the same agent where it stopped."
)
AFRESH: Mapping[Code, str] = {Code.SESSION_NOT_FOUND: " Leave out sessionId to begin a new session."}
"""What this tool's caller can do beside what the core says."""

AGENT_ERROR = 1
"""Exit status of a run that completed, and whose agent says that its task did not."""


class Sticky:
    """One tool, `subagent {agent, task, sessionId?}`."""

    name = "sticky"

    def __init__(self, orchestrator: Orchestrator, home: str) -> None:
        self._orchestrator = orchestrator
        self._home = home

    @property
    def calls(self) -> Mapping[str, ToolRun]:
        return {"subagent": self.subagent}

    def tools(self, call: Call) -> tuple[Tool, ...]:
        if call.lineage.depth > 0:
            return ()  # a child never registers the tool, whatever depth the settings allow
        try:
            self._orchestrator.admit(call)
        except Refused:
            return ()
        agents = agent_lines(self._orchestrator, call)
        if not agents:
            return ()
        description = "\n".join([ABOUT, "", "Agents:", *agents])
        return (Tool(name="subagent", description=description, input_schema=SCHEMA, run=self.subagent),)

    def unreadable(self, tool: str, problem: str, call: Call) -> ToolResult:
        return self._refusal(unreadable_input(self._orchestrator, tool, problem, call))

    def failure_text(self, failure: Failure, call: Call | None = None) -> str:
        message = add_skipped_file(failure, failure.message)
        return _clean(self._orchestrator.masked(message)) + AFRESH.get(failure.code, "")

    def tool_session_id(self, session: str) -> str | None:
        return session_uuid(session)

    async def subagent(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """Delegates one task and answers when it is finalized; a failure is an answer too."""
        try:
            self._orchestrator.admit(call)
            task = _decoded(arguments)
        except Refused as refusal:
            return self._refusal(refusal.failure)
        notices = ignored_notice((name for name in arguments if name not in SCHEMA["properties"]), SUPPORTED)
        plan, call = Plan(tasks=(task,)), self._sticky(call, notices)

        async def work() -> ToolResult:
            try:
                (result,) = await self._orchestrator.carry_out(plan, call)
            except Refused as refusal:
                return self._refusal(refusal.failure)
            return self._answer(result, notices)

        # Every partial result repeats the texts before it: each is cleaned once.
        clean = lru_cache(maxsize=2 * KEPT_ITEMS)(_clean)
        return await streamed(self._orchestrator, call, work, partial(_partial, clean=clean), update)

    def _sticky(self, call: Call, notices: tuple[str, ...]) -> Call:
        """The call on this surface's terms: finalized, its sessions where seed 002 keeps them and for whom."""
        return structs.replace(
            call,
            finalize=True,
            scoped_sessions=True,
            native_folder=str(sticky_folder(Path(self._home), call.cwd)),
            notices=(*call.notices, *notices),
        )

    def _answer(self, result: RunResult, notices: tuple[str, ...]) -> ToolResult:
        failure = result.failure
        if failure is None:
            assert result.finalized is not None  # this surface's runs complete in no other way
            return append_notices(self._orchestrator, _finalized(result, result.finalized), notices)
        # A later attempt may not have started; what the earlier ones said is kept.
        if failure.code in BEFORE_THE_RUN and result.answer is AnswerKind.NONE:
            return self._refusal(failure)
        return append_notices(self._orchestrator, _failed(result, failure), notices)

    def _refusal(self, failure: Failure) -> ToolResult:
        """The answer to a call of which nothing was started. It may quote its input, which no record has masked."""
        message = self.failure_text(failure)
        details = {"error": {"code": str(failure.code), "message": message}}
        return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED)


def _decoded(arguments: Any) -> Task:
    """The task of the input, checked field by field so that the sentence names the field."""
    if not isinstance(arguments, dict):
        raise refused(Code.INVALID_INPUT, "The input of subagent must be an object with agent and task")
    agent, task = required_text(arguments, "agent"), required_text(arguments, "task")
    session = optional_text(arguments, "sessionId")
    if session is not None and not re.fullmatch(SESSION_ID, session):
        raise refused(
            Code.INVALID_INPUT,
            "Parameter sessionId must be 8 to 64 letters, digits and hyphens, as an earlier answer gave it. "
            "Leave it out to begin a new session.",
        )
    return Task(agent=agent, prompt=task, session=session)


# -- answers ---------------------------------------------------------------------------------------


def _finalized(result: RunResult, said: Finalization) -> ToolResult:
    """What the agent says of its task. An error of the agent is an answer of a run that completed."""
    finalized = {name: _clean(value) for name in ("status", "result", "error") if (value := getattr(said, name))}
    is_success = said.status == "SUCCESS"
    parts = [finalized["result"]] if is_success else _with_findings(finalized["error"], finalized.get("result"))
    return ToolResult(
        text=_text(said.status, result.session, [*parts, *_warnings(result)]),
        details={"sessionId": session_uuid(result.session), "finalized": finalized},
        exit_code=0 if is_success else AGENT_ERROR,
    )


def _with_findings(error: str, findings: str | None) -> list[str]:
    return [error, "Partial findings:", findings] if findings else [error]


def _failed(result: RunResult, failure: Failure) -> ToolResult:
    message = _clean(failure.message)
    is_text = result.text and result.answer in {AnswerKind.PARTIAL, AnswerKind.FINAL}
    parts = [message, "Partial output:", _clean(result.text)] if is_text else [message]
    return ToolResult(
        text=_text("ERROR", result.session, [*parts, *_warnings(result)]),
        details={
            "sessionId": session_uuid(result.session),
            "error": {"code": str(failure.code), "message": message},
        },
        is_error=True,
        exit_code=exit_status([result]),
    )


def _warnings(result: RunResult) -> tuple[str, ...]:
    return tuple(filter(None, [storage_warning([result])]))


def _partial(progress: Progress, *, clean: Clean) -> ToolResult:
    """The same header while the run goes on, with its newest text; programs see its items and its attempt."""
    view = next(iter(progress.runs.values()))
    items = view.display_items()
    texts = [item for item in (*items, view.partial) if isinstance(item, str) and item]
    return ToolResult(
        text=_text("RUNNING", view.session, [clean(texts[-1]) if texts else "(running...)"]),
        details={
            "sessionId": session_uuid(view.session),
            "streaming": {"displayItems": display_items(items, clean), "attempt": view.attempt},
        },
    )


def _text(status: str, session: str, parts: list[str]) -> str:
    """Seed 002's header, for clients that hide structured metadata, and what follows it."""
    # Two spaces at its end keep a line of markdown apart from the next.
    header = f"**Status:** {status}  \n**Session ID:** `{session_uuid(session)}`"
    return "\n\n".join([header, "---", *parts])


def _clean(text: str) -> str:
    """Child text as it may leave; verbatim but for what is no text, or would pass for another's."""
    return neutralise(plain(text))
