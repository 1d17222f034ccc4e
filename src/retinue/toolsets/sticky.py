"""The `sticky` toolset: one agent, one task, a session to continue; the answer is what the agent finalized."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from retinue.config.directories import session_uuid, sticky_session_dir
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.results import AnswerStatus, Finalization, RunResult
from retinue.model.tasks import CallContext, Plan, Task
from retinue.output.untrusted_text import sanitize_text
from retinue.runtime.orchestrator import Orchestrator
from retinue.runtime.progress import CallProgress
from retinue.toolsets.base import (
    REFUSAL_CODES,
    JsonObject,
    OnPartialResult,
    OrchestratedToolset,
    RunTool,
    Sanitize,
    ToolDefinition,
    ToolResult,
    add_skipped_file,
    cache_sanitized,
    compute_exit_status,
    decode_fields,
    find_newest_text,
    ignored_notice,
    invalid_input,
    require_object,
    storage_warning,
    to_display_items,
    unknown_fields,
)

SESSION_ID_PATTERN = r"[A-Za-z0-9-]{8,64}"

SCHEMA: JsonObject = {
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
"""Advice added to the message of a failure."""

AGENT_ERROR_EXIT_CODE = 1
"""Exit status of a run that completed although its agent reported an error."""


class StickyToolset(OrchestratedToolset):
    """One tool, `subagent {agent, task, sessionId?}`."""

    name = "sticky"

    def __init__(self, orchestrator: Orchestrator, home: str) -> None:
        super().__init__(orchestrator)
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
        agents = self.list_agents(call)
        if not agents:
            return ()
        description = "\n".join([DESCRIPTION, "", "Agents:", *agents])
        return (ToolDefinition(name="subagent", description=description, input_schema=SCHEMA, run=self.run_subagent),)

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        return self.redact(add_skipped_file(failure, failure.message)) + NEW_SESSION_HINTS.get(failure.code, "")

    def tool_session_id(self, session: str) -> str | None:
        return session_uuid(session)

    async def run_subagent(
        self, arguments: Any, call: CallContext, update: OnPartialResult | None = None
    ) -> ToolResult:
        """Run one task and return its answer when it is finalized; a failure is an answer, too."""
        render = partial(_render_partial, clean=cache_sanitized(sanitize_text))
        try:
            self._orchestrator.authorize(call)
            plan = Plan(tasks=(_decode_task(arguments),))
            notices = ignored_notice(unknown_fields(SCHEMA["properties"], arguments), SUPPORTED)
            sticky_call = self._with_sticky_sessions(call, notices)
            (result,) = await self.run_plan(plan, sticky_call, render, update)
        except RefusedError as refusal:
            return self.refusal_result(refusal.failure, call, "subagent")
        return self._render_answer(result, sticky_call, notices)

    def _with_sticky_sessions(self, call: CallContext, notices: tuple[str, ...]) -> CallContext:
        """Return the call with finalized runs and sessions that belong to their agent and directory."""
        return structs.replace(
            call,
            finalize=True,
            scoped_sessions=True,
            native_folder=str(sticky_session_dir(Path(self._home), call.cwd)),
            notices=(*call.notices, *notices),
        )

    def _render_answer(self, result: RunResult, call: CallContext, notices: tuple[str, ...]) -> ToolResult:
        failure = result.failure
        if failure is None:
            assert result.finalized is not None  # runs of this toolset complete in no other way
            return self.append_notices(_finalized_result(result, result.finalized), notices)
        # A later attempt may not have started; the answers of the earlier ones are kept.
        if failure.code in REFUSAL_CODES and result.answer is AnswerStatus.NONE:
            return self.refusal_result(failure, call, "subagent")
        return self.append_notices(_failed_result(result, failure), notices)


def _decode_task(arguments: Any) -> Task:
    given = require_object(arguments, "subagent", " with agent and task")
    fields = decode_fields(SCHEMA["properties"], given, required=SCHEMA["required"])
    session = fields.get("sessionId")
    if session is not None and not re.fullmatch(SESSION_ID_PATTERN, session):
        raise invalid_input(
            "Parameter sessionId must be 8 to 64 letters, digits and hyphens, as an earlier answer gave it. "
            "Leave it out to begin a new session."
        )
    return Task(agent=fields["agent"], prompt=fields["task"], session=session)


def _finalized_result(result: RunResult, finalization: Finalization) -> ToolResult:
    """Return what the agent reported of its task; the run completed even if that is an error."""
    finalized = {
        name: sanitize_text(value) for name in ("status", "result", "error") if (value := getattr(finalization, name))
    }
    is_success = finalization.status == "SUCCESS"
    if is_success:
        parts = [finalized["result"]]
    else:
        parts = _add_section(finalized["error"], "Partial findings:", finalized.get("result"))
    return ToolResult(
        text=_render_text(finalization.status, result.session, [*parts, *storage_warning([result])]),
        details={"sessionId": session_uuid(result.session), "finalized": finalized},
        exit_code=0 if is_success else AGENT_ERROR_EXIT_CODE,
    )


def _failed_result(result: RunResult, failure: Failure) -> ToolResult:
    message = sanitize_text(failure.message)
    is_text = result.answer in {AnswerStatus.PARTIAL, AnswerStatus.FINAL}
    parts = _add_section(message, "Partial output:", sanitize_text(result.text) if is_text else None)
    return ToolResult(
        text=_render_text("ERROR", result.session, [*parts, *storage_warning([result])]),
        details={
            "sessionId": session_uuid(result.session),
            "error": {"code": str(failure.code), "message": message},
        },
        is_error=True,
        exit_code=compute_exit_status([result]),
    )


def _add_section(message: str, heading: str, text: str | None) -> list[str]:
    return [message, heading, text] if text else [message]


def _render_partial(progress: CallProgress, *, clean: Sanitize) -> ToolResult:
    view = next(iter(progress.runs.values()))
    text = find_newest_text(view)
    return ToolResult(
        text=_render_text("RUNNING", view.session, [clean(text) if text else "(running...)"]),
        details={
            "sessionId": session_uuid(view.session),
            "streaming": {"displayItems": to_display_items(view.display_items(), clean), "attempt": view.attempt},
        },
    )


def _render_text(status: str, session: str, parts: list[str]) -> str:
    """Return the text with a header, for clients that hide structured details."""
    # Two spaces at its end keep a line of markdown apart from the next.
    header = f"**Status:** {status}  \n**Session ID:** `{session_uuid(session)}`"
    return "\n\n".join([header, "---", *parts])
