"""The `single` toolset: one agent, one task, one answer; a failure is an answer, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from retinue.model.errors import ErrorCode, Failure
from retinue.model.results import REFUSED_EXIT_CODE, RunResult, Usage, compute_exit_status
from retinue.model.runs import ToolUse
from retinue.model.tasks import CallContext, Mode
from retinue.output.redaction.redactor import sanitize_for_display
from retinue.output.truncate import read_on, truncate_text
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
from retinue.toolsets.inputs import JsonObject, invalid_input, structured_details, worktree_notices

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "agent": {"type": "string", "minLength": 1, "description": "Name of the agent to delegate to"},
        "task": {"type": "string", "minLength": 1, "description": "The focused task, with all the context it needs"},
    },
    "required": ["agent", "task"],
    "additionalProperties": False,
}

DESCRIPTION = (
    "Delegate one focused task to a specialised agent that works in its own context and returns its findings. "
    "Give it everything it needs: it does not see this conversation."
)

ERROR_CODES: Mapping[ErrorCode, str] = {
    ErrorCode.INVALID_INPUT: "INVALID_INPUT",
    ErrorCode.DISABLED: "SUBAGENTS_DISABLED",
    ErrorCode.UNKNOWN_AGENT: "UNKNOWN_AGENT",
    ErrorCode.AGENT_DISABLED: "SUBAGENT_DISABLED",
    ErrorCode.AGENT_UNTRUSTED: "SUBAGENT_DISABLED",
    ErrorCode.DEPTH_EXCEEDED: "SUBAGENT_DEPTH_EXCEEDED",
    ErrorCode.TIMEOUT: "SUBAGENT_TIMEOUT",
    ErrorCode.IDLE_TIMEOUT: "SUBAGENT_TIMEOUT",
    ErrorCode.OUTPUT_LIMIT: "SUBAGENT_OUTPUT_TRUNCATED",
}
FAILED_CODE = "SUBAGENT_FAILED"
TRUNCATED_CODE = "SUBAGENT_OUTPUT_TRUNCATED"


class SingleToolset(SubagentToolset):
    """One tool, `subagent {agent, task}`."""

    name = "single"
    description = DESCRIPTION
    schema = SCHEMA
    needs_agents = False

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        return self.sanitize(self._orchestrator.redact(_render_failure(failure)))

    def check_unknown_fields(self, names: Iterable[str]) -> tuple[str, ...]:
        for name in names:
            raise invalid_input(f"Unknown parameter: {name}. Supported parameters: agent, task")
        return ()

    def render_partial(self, view: RunView, clean: Sanitize) -> ToolResult:
        text = find_newest_text(view)
        return ToolResult(
            text=clean(text) if text else "(running...)",
            details={
                "mode": "single",
                "results": [],
                "streaming": {
                    "displayItems": to_display_items(view.display_items(), clean),
                    "usage": _render_usage(view.usage),
                    "turnCount": view.turns,
                },
            },
        )

    def refusal_result(self, failure: Failure, call: CallContext, tool: str) -> ToolResult:
        mode = "management" if failure.code is ErrorCode.DEPTH_EXCEEDED else "single"
        message = self.sanitize(self._orchestrator.redact(add_skipped_file(failure, failure.message)))
        details = {"mode": mode, "results": [], "error": _error_details(failure, message)}
        return ToolResult(text=message, details=details, exit_code=REFUSED_EXIT_CODE)

    def completed_result(self, result: RunResult) -> ToolResult:
        output = self.sanitize(result.text, result.spec.cwd)
        cut = truncate_text(output, rest=_describe_rest(result))
        details = self._render_details(result, output)
        if cut.truncated:
            details["error"] = {"code": TRUNCATED_CODE, "message": f"Output truncated: showing {cut.extent}"}
        return ToolResult(text="\n\n".join(filter(None, [cut.text, *self._notices(result)])), details=details)

    def failed_result(self, result: RunResult, failure: Failure) -> ToolResult:
        message = self.sanitize(_render_failure(failure), result.spec.cwd)
        output = self.sanitize(result.text, result.spec.cwd)
        details = self._render_details(result, output, error=message)
        details["error"] = _error_details(failure, message)
        text = "\n\n".join([*_failure_sections(result, message, output), *self._notices(result)])
        return ToolResult(text=text, details=details, exit_code=compute_exit_status([result]))

    def _render_details(self, result: RunResult, output: str, error: str | None = None) -> dict[str, Any]:
        single: dict[str, Any] = {
            "agent": result.spec.agent.name,
            "task": result.spec.task,
            "exitCode": result.exit_code,
            "usage": _render_usage(result.usage),
        }
        optional = {"error": error, "sessionFile": result.session_file, "output": output}
        single |= {name: value for name, value in optional.items() if value}
        if any(isinstance(item, ToolUse) for item in result.items) or len(result.items) > 1:
            single["displayItems"] = to_display_items(result.items, partial(self.sanitize, cwd=result.spec.cwd))
        structured = structured_details([result], Mode.SINGLE)
        return {"mode": "single", "runId": result.spec.run[:8], "results": [single], **structured}

    def _notices(self, result: RunResult) -> tuple[str, ...]:
        return (*map(self.sanitize, worktree_notices([result])), *storage_warning([result]))

    def sanitize(self, text: str, cwd: str = "") -> str:
        return sanitize_for_display(sanitize_text(text), self._home, cwd)


def _error_details(failure: Failure, message: str) -> dict[str, str]:
    return {"code": ERROR_CODES.get(failure.code, FAILED_CODE), "message": message}


def _render_failure(failure: Failure) -> str:
    """Return the failure in the words of the toolset; failures it has no words for keep their message."""
    limit = round(float(failure.detail.get("timeout", 0)) * 1000)
    elapsed = round(float(failure.detail.get("elapsed", 0)) * 1000)
    match failure.code:
        case ErrorCode.TIMEOUT:
            message = f"Subagent exceeded maximum runtime after {limit}ms."
            return f"{message} The run took {elapsed}ms." if elapsed else message
        case ErrorCode.IDLE_TIMEOUT:
            return f"Subagent timed out after {limit}ms without activity."
        case ErrorCode.ABORTED:
            return "Subagent execution was cancelled by user."
        case _:
            return failure.message


def _failure_sections(result: RunResult, error: str, output: str) -> list[str]:
    sections = [f"Subagent failed with exit code {result.exit_code}."]
    if len(result.actual.attempts) > 1:
        sections.append(f"Attempts: {len(result.actual.attempts)}.")
    sections.append(f"Error:\n{error}")
    if output:
        is_partial = result.answer.is_text
        cut = truncate_text(output, rest=_describe_rest(result))
        sections.append(f"{'Partial output' if is_partial else 'Last captured output'}:\n{cut.text}")
    if result.session_file:
        sections.append(f"Session file:\n{result.session_file}")
    return sections


def _describe_rest(result: RunResult) -> Callable[[int], str]:
    """Return the function that names the place of a truncated answer's rest."""

    def describe(line: int) -> str:
        if not result.actual.saved:
            return (
                "[The remaining output is only in the details of this result, because the session could not be "
                "stored.]"
            )
        return f"[Read the remaining output with: {read_on(result.session[:8], line)}]"

    return describe


def _render_usage(usage: Usage) -> dict[str, Any]:
    """Return the usage with 0 for unknown costs: readers of this toolset expect numbers."""
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "cost": usage.cost or 0,
        "turns": usage.turns,
    }
