"""The `sticky` toolset: one agent, one task, a session to continue; the answer is what the agent finalized."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import structs

from retinue.config.directories import session_uuid, sticky_session_dir
from retinue.model.errors import ErrorCode, Failure
from retinue.model.results import RunResult, compute_exit_status
from retinue.model.tasks import CallContext, Mode, Task
from retinue.output.untrusted_text import sanitize_text
from retinue.runtime.progress import RunView
from retinue.toolsets.base import (
    Sanitize,
    SubagentToolset,
    ToolResult,
    add_skipped_file,
    find_newest_text,
    storage_warning,
    to_display_items,
)
from retinue.toolsets.inputs import JsonObject, ignored_notice, invalid_input, structured_details, worktree_notices

SESSION_ID_PATTERN = r"[A-Za-z0-9-]{8,64}"

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "agent": {"type": "string", "minLength": 1, "description": "Name of the agent to delegate to"},
        "task": {"type": "string", "minLength": 1, "description": "The focused task, with all the context it needs"},
        "sessionId": {
            "type": "string",
            "pattern": f"^({SESSION_ID_PATTERN})?$",
            "description": "The Session ID of an earlier answer of the same agent, to continue with its context; "
            "leave it out to start a new session",
        },
    },
    "required": ["agent", "task"],
}
SUPPORTED = ", ".join(SCHEMA["properties"])

DESCRIPTION = (
    "Delegate one focused task to a specialised agent that works in its own context and reports a finalized result. "
    "Give it everything it needs: it does not see this conversation. Every answer names a session; pass its id as "
    "sessionId to continue with the same agent."
)
NEW_SESSION_HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.SESSION_NOT_FOUND: " Leave out sessionId to start a new session."
}
"""Advice added to the message of a failure."""

AGENT_ERROR_EXIT_CODE = 1
"""Exit status of a run that completed although its agent reported an error."""


class StickyToolset(SubagentToolset):
    """One tool, `subagent {agent, task, sessionId?}`."""

    name = "sticky"
    description = DESCRIPTION
    schema = SCHEMA

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        return self.redact(add_skipped_file(failure, failure.message)) + NEW_SESSION_HINTS.get(failure.code, "")

    def tool_session_id(self, session: str) -> str | None:
        return session_uuid(session)

    def make_task(self, fields: JsonObject) -> Task:
        session = fields.get("sessionId")
        if session is not None and not re.fullmatch(SESSION_ID_PATTERN, session):
            raise invalid_input(
                "Parameter sessionId must be 8 to 64 letters, digits and hyphens, from an earlier answer. Leave it "
                "out to start a new session."
            )
        return Task(agent=fields["agent"], prompt=fields["task"], session=session)

    def check_unknown_fields(self, names: Iterable[str]) -> tuple[str, ...]:
        return ignored_notice(names, SUPPORTED)

    def prepare_call(self, call: CallContext) -> CallContext:
        """Return the call with finalized runs and sessions that belong to their agent and directory."""
        native_folder = str(sticky_session_dir(Path(self._home), call.cwd))
        return structs.replace(call, finalize=True, scoped_sessions=True, native_folder=native_folder)

    def render_partial(self, view: RunView, clean: Sanitize) -> ToolResult:
        text = find_newest_text(view)
        return ToolResult(
            text=_render_text("RUNNING", view.session, [clean(text) if text else "(running...)"]),
            details={
                "sessionId": session_uuid(view.session),
                "streaming": {"displayItems": to_display_items(view.display_items(), clean), "attempt": view.attempt},
            },
        )

    def completed_result(self, result: RunResult) -> ToolResult:
        """Return what the agent reported of its task; the run completed even if that is an error."""
        finalization = result.finalized
        assert finalization is not None  # runs of this toolset complete in no other way
        finalized = {
            name: sanitize_text(value)
            for name in ("status", "result", "error")
            if (value := getattr(finalization, name))
        }
        is_success = finalization.status == "SUCCESS"
        if is_success:
            parts = [finalized["result"]]
        else:
            parts = _add_section(finalized["error"], "Partial findings:", finalized.get("result"))
        return ToolResult(
            text=_render_text(finalization.status, result.session, [*parts, *_notices(result)]),
            details={
                "sessionId": session_uuid(result.session),
                "finalized": finalized,
                **structured_details([result], Mode.SINGLE),
            },
            exit_code=0 if is_success else AGENT_ERROR_EXIT_CODE,
        )

    def failed_result(self, result: RunResult, failure: Failure) -> ToolResult:
        message = sanitize_text(failure.message)
        is_text = result.answer.is_text
        parts = _add_section(message, "Partial output:", sanitize_text(result.text) if is_text else None)
        return ToolResult(
            text=_render_text("ERROR", result.session, [*parts, *_notices(result)]),
            details={
                "sessionId": session_uuid(result.session),
                "error": {"code": str(failure.code), "message": message},
            },
            is_error=True,
            exit_code=compute_exit_status([result]),
        )


def _notices(result: RunResult) -> tuple[str, ...]:
    return (*worktree_notices([result]), *storage_warning([result]))


def _add_section(message: str, heading: str, text: str | None) -> list[str]:
    return [message, heading, text] if text else [message]


def _render_text(status: str, session: str, parts: list[str]) -> str:
    """Return the text with a header, for clients that hide structured details."""
    # Two spaces at its end keep a line of markdown apart from the next.
    header = f"**Status:** {status}  \n**Session ID:** `{session_uuid(session)}`"
    return "\n\n".join([header, "---", *parts])
