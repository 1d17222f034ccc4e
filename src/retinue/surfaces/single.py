"""The `single` surface: seeds 000 and 001. One agent, one task, one answer; it never throws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from retinue.orchestrator import Orchestrator
from retinue.output.frame import neutralise, plain
from retinue.output.sanitise import for_reader
from retinue.output.truncate import read_on, truncated
from retinue.progress import KEPT_ITEMS, Progress
from retinue.results import AnswerKind, RunResult
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
    display_items,
    exit_status,
    required_text,
    storage_warning,
    streamed,
    unreadable_input,
)
from retinue.types import Call, Code, Failure, Plan, Refused, Task, ToolUse, Usage, refused

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "agent": {"type": "string", "minLength": 1, "description": "Name of the agent to delegate to"},
        "task": {"type": "string", "minLength": 1, "description": "The focused task, with all the context it needs"},
    },
    "required": ["agent", "task"],
    "additionalProperties": False,
}

ABOUT = (
    "Delegate one focused task to a specialised agent that works in its own context and returns its findings. "
    "Give it everything it needs: it does not see this conversation."
)

CODES: Mapping[Code, str] = {
    Code.INVALID_INPUT: "INVALID_INPUT",
    Code.DISABLED: "SUBAGENTS_DISABLED",
    Code.UNKNOWN_AGENT: "UNKNOWN_AGENT",
    Code.AGENT_DISABLED: "SUBAGENT_DISABLED",
    Code.AGENT_UNTRUSTED: "SUBAGENT_DISABLED",
    Code.DEPTH_EXCEEDED: "SUBAGENT_DEPTH_EXCEEDED",
    Code.TIMEOUT: "SUBAGENT_TIMEOUT",
    Code.IDLE_TIMEOUT: "SUBAGENT_TIMEOUT",
    Code.OUTPUT_LIMIT: "SUBAGENT_OUTPUT_TRUNCATED",
}
FAILED = "SUBAGENT_FAILED"
TRUNCATED = "SUBAGENT_OUTPUT_TRUNCATED"


class Single:
    """One tool, `subagent {agent, task}`."""

    name = "single"

    def __init__(self, orchestrator: Orchestrator, home: str) -> None:
        self._orchestrator = orchestrator
        self._home = home

    @property
    def calls(self) -> Mapping[str, ToolRun]:
        return {"subagent": self.subagent}

    def tools(self, call: Call) -> tuple[Tool, ...]:
        if call.lineage.depth > 0:
            return ()  # seed 000: a child never registers the tool, whatever depth the settings allow
        try:
            self._orchestrator.admit(call)
        except Refused:
            return ()
        return (Tool(name="subagent", description=self._description(call), input_schema=SCHEMA, run=self.subagent),)

    def unreadable(self, tool: str, problem: str, call: Call) -> ToolResult:
        return self._refusal(unreadable_input(self._orchestrator, tool, problem, call))

    def failure_text(self, failure: Failure, call: Call) -> str:
        return self._clean(self._orchestrator.masked(_sentence(failure)))

    def tool_session_id(self, session: str) -> str | None:
        return None

    async def subagent(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """Delegates one task and answers when it is done; a failure is an answer too."""
        try:
            self._orchestrator.admit(call)
            task = _decoded(arguments)
        except Refused as refusal:
            return self._refusal(refusal.failure)

        async def work() -> ToolResult:
            try:
                (result,) = await self._orchestrator.carry_out(Plan(tasks=(task,)), call)
            except Refused as refusal:
                return self._refusal(refusal.failure)
            return self._answer(result)

        # Every partial result repeats the texts before it: each is cleaned once.
        clean = lru_cache(maxsize=2 * KEPT_ITEMS)(partial(self._clean, cwd=call.cwd))
        return await streamed(self._orchestrator, call, work, partial(_partial, clean=clean), update)

    def _description(self, call: Call) -> str:
        return "\n".join([ABOUT, "", "Agents:", *agent_lines(self._orchestrator, call)])

    def _answer(self, result: RunResult) -> ToolResult:
        failure = result.failure
        if failure is None:
            return self._completed(result)
        # A later attempt may not have started; what the earlier ones said is kept.
        if failure.code in BEFORE_THE_RUN and result.answer is AnswerKind.NONE:
            return self._refusal(failure)
        return self._failed(result, failure)

    def _refusal(self, failure: Failure) -> ToolResult:
        """The answer to a call of which nothing was started. It may quote its input, which no record has masked."""
        mode = "management" if failure.code is Code.DEPTH_EXCEEDED else "single"
        message = self._clean(self._orchestrator.masked(add_skipped_file(failure, failure.message)))
        error = {"code": CODES.get(failure.code, FAILED), "message": message}
        return ToolResult(text=message, details={"mode": mode, "results": [], "error": error}, exit_code=REFUSED)

    def _completed(self, result: RunResult) -> ToolResult:
        output = self._clean(result.text, result.spec.cwd)
        cut = truncated(output, rest=_rest(result))
        details = self._details(result, output)
        if cut.truncated:
            message = f"Output truncated: showing {cut.extent}"
            details["error"] = {"code": TRUNCATED, "message": message}
        return ToolResult(text=_with_warning(cut.text, result), details=details)

    def _failed(self, result: RunResult, failure: Failure) -> ToolResult:
        message = self._clean(_sentence(failure), result.spec.cwd)
        output = self._clean(result.text, result.spec.cwd)
        details = self._details(result, output, error=message)
        details["error"] = {"code": CODES.get(failure.code, FAILED), "message": message}
        text = _with_warning(_failure_text(result, message, output), result)
        return ToolResult(text=text, details=details, exit_code=exit_status([result]))

    def _details(self, result: RunResult, output: str, error: str | None = None) -> dict[str, Any]:
        single: dict[str, Any] = {
            "agent": result.spec.agent.name,
            "task": result.spec.task,
            "exitCode": result.exit_code,
            "usage": _usage(result.usage),
        }
        if error:
            single["error"] = error
        if result.session_file:
            single["sessionFile"] = result.session_file
        if output:
            single["output"] = output
        if any(isinstance(item, ToolUse) for item in result.items) or len(result.items) > 1:
            single["displayItems"] = display_items(result.items, partial(self._clean, cwd=result.spec.cwd))
        return {"mode": "single", "runId": result.spec.run[:8], "results": [single]}

    def _clean(self, text: str, cwd: str = "") -> str:
        return for_reader(neutralise(plain(text)), self._home, cwd)


def _decoded(arguments: Any) -> Task:
    """The task of the input, checked field by field so that the sentence names the field."""
    if not isinstance(arguments, dict):
        raise refused(Code.INVALID_INPUT, "The input of subagent must be an object with agent and task")
    task = Task(agent=required_text(arguments, "agent"), prompt=required_text(arguments, "task"))
    for name in arguments:
        if name not in SCHEMA["properties"]:
            raise refused(Code.INVALID_INPUT, f"Unknown parameter: {name}. Supported parameters: agent, task")
    return task


def _partial(progress: Progress, *, clean: Clean) -> ToolResult:
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
                "displayItems": display_items(items, clean),
                "usage": _usage(view.usage),
                "turnCount": view.turns,
            },
        },
    )


def _sentence(failure: Failure) -> str:
    """The failure in this surface's words; what a seed does not name stands as the core says it."""
    limit = round(float(failure.detail.get("timeout", 0)) * 1000)
    elapsed = round(float(failure.detail.get("elapsed", 0)) * 1000)
    match failure.code:
        case Code.TIMEOUT:
            message = f"Subagent exceeded maximum runtime after {limit}ms."
            return f"{message} The run took {elapsed}ms." if elapsed else message
        case Code.IDLE_TIMEOUT:
            return f"Subagent timed out after {limit}ms without activity."
        case Code.ABORTED:
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
        partial = result.answer in (AnswerKind.PARTIAL, AnswerKind.FINAL)
        cut = truncated(output, rest=_rest(result))
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


def _usage(usage: Usage) -> dict[str, Any]:
    """Seed 001's usage: numbers throughout, zero where nothing is known."""
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "cost": usage.cost or 0,
        "turns": usage.turns,
    }
