"""The `single` surface: seeds 000 and 001. One agent, one task, one answer; it never throws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.results import AnswerStatus, RunResult, Usage
from retinue.model.runs import ToolUse
from retinue.model.tasks import CallContext, Plan, Task
from retinue.output.redaction.redactor import sanitize_for_display
from retinue.output.truncate import read_on, truncate_text
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
    compute_exit_status,
    invalid_json_failure,
    render_agent_lines,
    require_text,
    storage_warning,
    to_display_items,
    with_partial_results,
)

SCHEMA: Mapping[str, Any] = {
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


class SingleToolset:
    """One tool, `subagent {agent, task}`."""

    name = "single"

    def __init__(self, orchestrator: Orchestrator, home: str) -> None:
        self._orchestrator = orchestrator
        self._home = home

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        return {"subagent": self.run_subagent}

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        if call.lineage.depth > 0:
            return ()  # seed 000: a child never registers the tool, whatever depth the settings allow
        try:
            self._orchestrator.authorize(call)
        except RefusedError:
            return ()
        return (
            ToolDefinition(
                name="subagent",
                description=self._render_description(call),
                input_schema=SCHEMA,
                run=self.run_subagent,
            ),
        )

    def invalid_json_result(self, tool: str, problem: str, call: CallContext) -> ToolResult:
        return self._refusal_result(invalid_json_failure(self._orchestrator, tool, problem, call))

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        return self._sanitize(self._orchestrator.redact(_render_failure(failure)))

    def tool_session_id(self, session: str) -> str | None:
        return None

    async def run_subagent(
        self, arguments: Any, call: CallContext, update: OnPartialResult | None = None
    ) -> ToolResult:
        """Delegates one task and answers when it is done; a failure is an answer too."""
        try:
            self._orchestrator.authorize(call)
            task = _decode_task(arguments)
        except RefusedError as refusal:
            return self._refusal_result(refusal.failure)

        async def work() -> ToolResult:
            try:
                (result,) = await self._orchestrator.run_plan(Plan(tasks=(task,)), call)
            except RefusedError as refusal:
                return self._refusal_result(refusal.failure)
            return self._render_answer(result)

        # Every partial result repeats the texts before it: each is cleaned once.
        clean = lru_cache(maxsize=2 * MAX_ITEMS)(partial(self._sanitize, cwd=call.cwd))
        return await with_partial_results(
            self._orchestrator, call, work, partial(_render_partial, clean=clean), update
        )

    def _render_description(self, call: CallContext) -> str:
        return "\n".join([DESCRIPTION, "", "Agents:", *render_agent_lines(self._orchestrator, call)])

    def _render_answer(self, result: RunResult) -> ToolResult:
        failure = result.failure
        if failure is None:
            return self._completed_result(result)
        # A later attempt may not have started; what the earlier ones said is kept.
        if failure.code in REFUSAL_CODES and result.answer is AnswerStatus.NONE:
            return self._refusal_result(failure)
        return self._failed_result(result, failure)

    def _refusal_result(self, failure: Failure) -> ToolResult:
        """The answer to a call of which nothing was started. It may quote its input, which no record has masked."""
        mode = "management" if failure.code is ErrorCode.DEPTH_EXCEEDED else "single"
        message = self._sanitize(self._orchestrator.redact(add_skipped_file(failure, failure.message)))
        error = {"code": ERROR_CODES.get(failure.code, FAILED_CODE), "message": message}
        return ToolResult(
            text=message, details={"mode": mode, "results": [], "error": error}, exit_code=REFUSED_EXIT_CODE
        )

    def _completed_result(self, result: RunResult) -> ToolResult:
        output = self._sanitize(result.text, result.spec.cwd)
        cut = truncate_text(output, rest=_rest(result))
        details = self._render_details(result, output)
        if cut.truncated:
            message = f"Output truncated: showing {cut.extent}"
            details["error"] = {"code": TRUNCATED_CODE, "message": message}
        return ToolResult(text=_with_warning(cut.text, result), details=details)

    def _failed_result(self, result: RunResult, failure: Failure) -> ToolResult:
        message = self._sanitize(_render_failure(failure), result.spec.cwd)
        output = self._sanitize(result.text, result.spec.cwd)
        details = self._render_details(result, output, error=message)
        details["error"] = {"code": ERROR_CODES.get(failure.code, FAILED_CODE), "message": message}
        text = _with_warning(_failure_text(result, message, output), result)
        return ToolResult(text=text, details=details, exit_code=compute_exit_status([result]))

    def _render_details(self, result: RunResult, output: str, error: str | None = None) -> dict[str, Any]:
        single: dict[str, Any] = {
            "agent": result.spec.agent.name,
            "task": result.spec.task,
            "exitCode": result.exit_code,
            "usage": _render_usage(result.usage),
        }
        if error:
            single["error"] = error
        if result.session_file:
            single["sessionFile"] = result.session_file
        if output:
            single["output"] = output
        if any(isinstance(item, ToolUse) for item in result.items) or len(result.items) > 1:
            single["displayItems"] = to_display_items(result.items, partial(self._sanitize, cwd=result.spec.cwd))
        return {"mode": "single", "runId": result.spec.run[:8], "results": [single]}

    def _sanitize(self, text: str, cwd: str = "") -> str:
        return sanitize_for_display(defang_markup(strip_control_characters(text)), self._home, cwd)


def _decode_task(arguments: Any) -> Task:
    """The task of the input, checked field by field so that the sentence names the field."""
    if not isinstance(arguments, dict):
        raise refuse(ErrorCode.INVALID_INPUT, "The input of subagent must be an object with agent and task")
    task = Task(agent=require_text(arguments, "agent"), prompt=require_text(arguments, "task"))
    for name in arguments:
        if name not in SCHEMA["properties"]:
            raise refuse(ErrorCode.INVALID_INPUT, f"Unknown parameter: {name}. Supported parameters: agent, task")
    return task


def _render_partial(progress: CallProgress, *, clean: Sanitize) -> ToolResult:
    """Seed 001's streaming shape."""
    view = next(iter(progress.runs.values()))
    items = view.display_items()
    texts = [item for item in (*items, view.partial) if isinstance(item, str) and item]
    return ToolResult(
        text=clean(texts[-1]) if texts else "(running...)",
        details={
            "mode": "single",
            "results": [],
            "streaming": {
                "displayItems": to_display_items(items, clean),
                "usage": _render_usage(view.usage),
                "turnCount": view.turns,
            },
        },
    )


def _render_failure(failure: Failure) -> str:
    """The failure in this surface's words; what a seed does not name stands as the core says it."""
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


def _with_warning(text: str, result: RunResult) -> str:
    return "\n\n".join(filter(None, [text, storage_warning([result])]))


def _failure_text(result: RunResult, error: str, output: str) -> str:
    sections = [f"Subagent failed with exit code {result.exit_code}."]
    if len(result.actual.attempts) > 1:
        sections.append(f"Attempts: {len(result.actual.attempts)}.")
    sections.append(f"Error:\n{error}")
    if output:
        partial = result.answer in (AnswerStatus.PARTIAL, AnswerStatus.FINAL)
        cut = truncate_text(output, rest=_rest(result))
        sections.append(f"{'Partial output' if partial else 'Last captured output'}:\n{cut.text}")
    if result.session_file:
        sections.append(f"Session file:\n{result.session_file}")
    return "\n\n".join(sections)


def _rest(result: RunResult) -> Callable[[int], str]:
    """Return what a truncated answer says of where the rest of it is."""

    def rest(line: int) -> str:
        if not result.actual.saved:
            return "[The rest is only in the details of this result: the session could not be stored.]"
        return f"[Read the rest with: {read_on(result.session[:8], line)}]"

    return rest


def _render_usage(usage: Usage) -> dict[str, Any]:
    """Seed 001's usage: numbers throughout, zero where nothing is known."""
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "cost": usage.cost or 0,
        "turns": usage.turns,
    }
