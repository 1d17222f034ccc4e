"""The `sticky` surface: seed 002. One agent, one task, a session to go on with; the answer is what was finalized."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from msgspec import structs

from retinue.config.directories import session_uuid, sticky_session_dir
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.results import AnswerStatus, Finalization, RunResult
from retinue.model.tasks import CallContext, Plan, Task
from retinue.output.untrusted_text import defang_markup, strip_control_characters
from retinue.runtime.orchestrator import Orchestrator
from retinue.runtime.progress import MAX_ITEMS, CallProgress
from retinue.toolsets.base import (
    REFUSAL_CODES,
    REFUSED_EXIT_CODE,
    OnPartialResult,
    RunTool,
    Sanitize,
    ToolDefinition,
    ToolResult,
    add_skipped_file,
    append_notices,
    compute_exit_status,
    ignored_notice,
    invalid_json_failure,
    optional_text,
    render_agent_lines,
    require_text,
    storage_warning,
    to_display_items,
    with_partial_results,
)

SESSION_ID_PATTERN = r"[A-Za-z0-9-]{8,64}"

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "agent": {"type": "string", "minLength": 1, "description": "Name of the agent to delegate to"},
        "task": {"type": "string", "minLength": 1, "description": "The focused task, with all the context it needs"},
        "sessionId": {
            "type": "string",
            "pattern": f"^({SESSION_ID_PATTERN})?$",
            "description": "The Session ID of an earlier answer of the same agent, to go on with its context; "
            "leave it out to begin a new session",
        },
    },
    "required": ["agent", "task"],
}
SUPPORTED = ", ".join(SCHEMA["properties"])

DESCRIPTION = (
    "Delegate one focused task to a specialised agent that works in its own context and reports a finalized result. "
    "Give it everything it needs: it does not see this conversation. Every answer names a session; pass its id as "
    "sessionId to go on with the same agent where it stopped."
)
NEW_SESSION_HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.SESSION_NOT_FOUND: " Leave out sessionId to begin a new session."
}
"""What this tool's caller can do beside what the core says."""

AGENT_ERROR_EXIT_CODE = 1
"""Exit status of a run that completed, and whose agent says that its task did not."""


class StickyToolset:
    """One tool, `subagent {agent, task, sessionId?}`."""

    name = "sticky"

    def __init__(self, orchestrator: Orchestrator, home: str) -> None:
        self._orchestrator = orchestrator
        self._home = home

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        return {"subagent": self.run_subagent}

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        if call.lineage.depth > 0:
            return ()  # a child never registers the tool, whatever depth the settings allow
        try:
            self._orchestrator.authorize(call)
        except RefusedError:
            return ()
        agents = render_agent_lines(self._orchestrator, call)
        if not agents:
            return ()
        description = "\n".join([DESCRIPTION, "", "Agents:", *agents])
        return (ToolDefinition(name="subagent", description=description, input_schema=SCHEMA, run=self.run_subagent),)

    def invalid_json_result(self, tool: str, problem: str, call: CallContext) -> ToolResult:
        return self._refusal_result(invalid_json_failure(self._orchestrator, tool, problem, call))

    def failure_text(self, failure: Failure, call: CallContext | None = None) -> str:
        message = add_skipped_file(failure, failure.message)
        return _sanitize(self._orchestrator.redact(message)) + NEW_SESSION_HINTS.get(failure.code, "")

    def tool_session_id(self, session: str) -> str | None:
        return session_uuid(session)

    async def run_subagent(
        self, arguments: Any, call: CallContext, update: OnPartialResult | None = None
    ) -> ToolResult:
        """Delegates one task and answers when it is finalized; a failure is an answer too."""
        try:
            self._orchestrator.authorize(call)
            task = _decode_task(arguments)
        except RefusedError as refusal:
            return self._refusal_result(refusal.failure)
        notices = ignored_notice((name for name in arguments if name not in SCHEMA["properties"]), SUPPORTED)
        plan, call = Plan(tasks=(task,)), self._with_sticky_sessions(call, notices)

        async def work() -> ToolResult:
            try:
                (result,) = await self._orchestrator.run_plan(plan, call)
            except RefusedError as refusal:
                return self._refusal_result(refusal.failure)
            return self._render_answer(result, notices)

        # Every partial result repeats the texts before it: each is cleaned once.
        clean = lru_cache(maxsize=2 * MAX_ITEMS)(_sanitize)
        return await with_partial_results(
            self._orchestrator, call, work, partial(_render_partial, clean=clean), update
        )

    def _with_sticky_sessions(self, call: CallContext, notices: tuple[str, ...]) -> CallContext:
        """The call on this surface's terms: finalized, its sessions where seed 002 keeps them and for whom."""
        return structs.replace(
            call,
            finalize=True,
            scoped_sessions=True,
            native_folder=str(sticky_session_dir(Path(self._home), call.cwd)),
            notices=(*call.notices, *notices),
        )

    def _render_answer(self, result: RunResult, notices: tuple[str, ...]) -> ToolResult:
        failure = result.failure
        if failure is None:
            assert result.finalized is not None  # this surface's runs complete in no other way
            return append_notices(self._orchestrator, _finalized_result(result, result.finalized), notices)
        # A later attempt may not have started; what the earlier ones said is kept.
        if failure.code in REFUSAL_CODES and result.answer is AnswerStatus.NONE:
            return self._refusal_result(failure)
        return append_notices(self._orchestrator, _failed_result(result, failure), notices)

    def _refusal_result(self, failure: Failure) -> ToolResult:
        """The answer to a call of which nothing was started. It may quote its input, which no record has masked."""
        message = self.failure_text(failure)
        details = {"error": {"code": str(failure.code), "message": message}}
        return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED_EXIT_CODE)


def _decode_task(arguments: Any) -> Task:
    """The task of the input, checked field by field so that the sentence names the field."""
    if not isinstance(arguments, dict):
        raise refuse(ErrorCode.INVALID_INPUT, "The input of subagent must be an object with agent and task")
    agent, task = require_text(arguments, "agent"), require_text(arguments, "task")
    session = optional_text(arguments, "sessionId")
    if session is not None and not re.fullmatch(SESSION_ID_PATTERN, session):
        raise refuse(
            ErrorCode.INVALID_INPUT,
            "Parameter sessionId must be 8 to 64 letters, digits and hyphens, as an earlier answer gave it. "
            "Leave it out to begin a new session.",
        )
    return Task(agent=agent, prompt=task, session=session)


# -- answers ---------------------------------------------------------------------------------------


def _finalized_result(result: RunResult, finalization: Finalization) -> ToolResult:
    """What the agent says of its task. An error of the agent is an answer of a run that completed."""
    finalized = {
        name: _sanitize(value) for name in ("status", "result", "error") if (value := getattr(finalization, name))
    }
    is_success = finalization.status == "SUCCESS"
    parts = [finalized["result"]] if is_success else _append_findings(finalized["error"], finalized.get("result"))
    return ToolResult(
        text=_render_text(finalization.status, result.session, [*parts, *_warnings(result)]),
        details={"sessionId": session_uuid(result.session), "finalized": finalized},
        exit_code=0 if is_success else AGENT_ERROR_EXIT_CODE,
    )


def _append_findings(error: str, findings: str | None) -> list[str]:
    return [error, "Partial findings:", findings] if findings else [error]


def _failed_result(result: RunResult, failure: Failure) -> ToolResult:
    message = _sanitize(failure.message)
    is_text = result.text and result.answer in {AnswerStatus.PARTIAL, AnswerStatus.FINAL}
    parts = [message, "Partial output:", _sanitize(result.text)] if is_text else [message]
    return ToolResult(
        text=_render_text("ERROR", result.session, [*parts, *_warnings(result)]),
        details={
            "sessionId": session_uuid(result.session),
            "error": {"code": str(failure.code), "message": message},
        },
        is_error=True,
        exit_code=compute_exit_status([result]),
    )


def _warnings(result: RunResult) -> tuple[str, ...]:
    return tuple(filter(None, [storage_warning([result])]))


def _render_partial(progress: CallProgress, *, clean: Sanitize) -> ToolResult:
    """The same header while the run goes on, with its newest text; programs see its items and its attempt."""
    view = next(iter(progress.runs.values()))
    items = view.display_items()
    texts = [item for item in (*items, view.partial) if isinstance(item, str) and item]
    return ToolResult(
        text=_render_text("RUNNING", view.session, [clean(texts[-1]) if texts else "(running...)"]),
        details={
            "sessionId": session_uuid(view.session),
            "streaming": {"displayItems": to_display_items(items, clean), "attempt": view.attempt},
        },
    )


def _render_text(status: str, session: str, parts: list[str]) -> str:
    """Seed 002's header, for clients that hide structured metadata, and what follows it."""
    # Two spaces at its end keep a line of markdown apart from the next.
    header = f"**Status:** {status}  \n**Session ID:** `{session_uuid(session)}`"
    return "\n\n".join([header, "---", *parts])


def _sanitize(text: str) -> str:
    """Child text as it may leave; verbatim but for what is no text, or would pass for another's."""
    return defang_markup(strip_control_characters(text))
