"""The nested toolset: `spawn_subagent` (single, chain, parallel) and `agent_info`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from msgspec import structs

from retinue.model.agents import AgentProfile, ToolPolicy
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.results import AnswerStatus, RunResult
from retinue.model.runs import RunSpec
from retinue.model.tasks import CallContext, Mode, Plan, Task
from retinue.output.untrusted_text import defang_markup, strip_control_characters, to_one_line, wrap_untrusted
from retinue.runtime.orchestrator import ABORTED, Orchestrator
from retinue.runtime.progress import MAX_ITEMS, CallProgress, RunState, RunView
from retinue.toolsets.base import (
    CANCELLED_EXIT_CODE,
    REFUSAL_CODES,
    REFUSED_EXIT_CODE,
    JsonObject,
    OnPartialResult,
    RunTool,
    Sanitize,
    ToolDefinition,
    ToolResult,
    add_skipped_file,
    append_notices,
    compute_exit_status,
    find_refusal,
    ignored_notice,
    invalid_json_failure,
    optional_text,
    render_agent_lines,
    requested_tools,
    require_text,
    storage_warning,
    with_partial_results,
)


def render_answer(results: Sequence[RunResult], plan: Plan) -> ToolResult:
    """What came of a plan: a result for each run that was begun."""
    failed = [result for result in results if result.failure]
    is_stopped = len(results) < len(plan.tasks) and not failed
    is_error = len(failed) == len(results) if plan.mode is Mode.PARALLEL else bool(failed)
    return ToolResult(
        text="\n\n".join(filter(None, [_render_text(results, plan), storage_warning(results)])),
        details={"mode": plan.mode, "results": [_result_details(result) for result in results]},
        is_error=is_error or is_stopped,
        exit_code=CANCELLED_EXIT_CODE if is_stopped else _compute_exit_code(results),
    )


def render_partial_answer(progress: CallProgress, *, mode: Mode, order: Sequence[str], clean: Sanitize) -> ToolResult:
    """The same shape while the runs go on, with the newest text of each.

    `order` has the runs of tasks that are begun at once; the steps of a chain come one after the other by themselves.
    """
    numbers = {run: number for number, run in enumerate(order or progress.runs, 1)}
    views = [progress.runs[run] for run in numbers if run in progress.runs]
    newest = [clean(_newest_text(view)) for view in views]
    blocks = [
        _render_block(numbers[view.run], view.agent, _state_name(view), text or "(running...)")
        for view, text in zip(views, newest, strict=True)
    ]
    results = [
        {
            "subagentId": view.run,
            "agent": view.agent,
            "task": view.task,
            "result": text,
            "isError": view.phase is RunState.ERROR,
        }
        for view, text in zip(views, newest, strict=True)
    ]
    text = newest[0] or "(running...)" if mode is Mode.SINGLE else "\n\n".join(blocks)
    return ToolResult(text=text, details={"mode": mode, "results": results})


def render_failure(failure: Failure) -> str:
    """The failure as the core says it, and what is wrong with the file of an agent that is not found."""
    return add_skipped_file(failure, failure.message)


def sanitize_text(text: str) -> str:
    """Child text as it may leave; verbatim but for what is no text, or would pass for another's."""
    return defang_markup(strip_control_characters(text))


# -- the end ---------------------------------------------------------------------------------------


def _render_text(results: Sequence[RunResult], plan: Plan) -> str:
    last = results[-1]
    if plan.mode is Mode.PARALLEL:
        return "\n\n".join(
            _render_block(number, result.agent, "error" if result.failure else "ok", _render_result(result))
            for number, result in enumerate(results, 1)
        )
    if plan.mode is Mode.SINGLE:
        return _render_result(last)
    if last.failure:
        return _render_chain_stopped(len(results), last.agent, render_failure(last.failure))
    if len(results) < len(plan.tasks):
        return _render_chain_stopped(len(results) + 1, plan.tasks[len(results)].agent or "", ABORTED.message)
    return sanitize_text(last.text)


def _render_chain_stopped(step: int, agent: str, message: str) -> str:
    return f"Chain stopped at step {step} ({strip_control_characters(agent)}): {sanitize_text(message)}"


def _render_block(number: int, agent: str, state: str, text: str) -> str:
    return f"=== {number} {strip_control_characters(agent)}: {state} ===\n{text}"


def _render_result(result: RunResult) -> str:
    """What one run comes to for a model: its answer, or why there is none and what there is instead."""
    if result.failure is None:
        return sanitize_text(result.text)
    message, text = sanitize_text(render_failure(result.failure)), _agent_text(result)
    return f"{message}\n\nPartial output:\n\n{text}" if text else message


def _agent_text(result: RunResult) -> str:
    """What the agent itself wrote, if anything."""
    return sanitize_text(result.text) if result.answer in {AnswerStatus.FINAL, AnswerStatus.PARTIAL} else ""


def _result_details(result: RunResult) -> dict[str, Any]:
    details = {
        "subagentId": result.run,
        "agent": result.agent,
        "task": result.spec.task,
        "result": _agent_text(result),
        "isError": result.failure is not None,
    }
    if failure := result.failure:
        details["error"] = {"code": str(failure.code), "message": sanitize_text(render_failure(failure))}
    return details


def _compute_exit_code(results: Sequence[RunResult]) -> int:
    codes = [result.failure and result.failure.code for result in results]
    # A later attempt may not have started; what the earlier ones said is kept.
    nothing_ran = all(code in REFUSAL_CODES for code in codes) and not any(map(_agent_text, results))
    return REFUSED_EXIT_CODE if nothing_ran else compute_exit_status(results)


# -- meanwhile -------------------------------------------------------------------------------------


def _newest_text(view: RunView) -> str:
    texts = [item for item in (*view.display_items(), view.partial) if isinstance(item, str) and item]
    return texts[-1] if texts else ""


def _state_name(view: RunView) -> str:
    return {RunState.DONE: "ok", RunState.ERROR: "error"}.get(view.phase, str(view.phase))


SPAWN_TOOL, INFO_TOOL = "spawn_subagent", "agent_info"

_TASK_SCHEMA: Mapping[str, Any] = {
    "agent": {"type": "string", "minLength": 1, "description": "Name of the agent to delegate to"},
    "task": {"type": "string", "minLength": 1, "description": "The focused task, with all the context it needs"},
    "cwd": {"type": "string", "description": "Absolute path of the directory it works in"},
    "timeout": {"type": "number", "minimum": 1, "description": "Seconds it may take"},
}
_SINGLE_FIELDS = ("agent", "task")
"""The fields of a task that stand in the input itself where it is the only one."""
_INPUT_FIELDS = ("mode", *_SINGLE_FIELDS, "tasks")
_MODES = (Mode.SINGLE, Mode.CHAIN, Mode.PARALLEL)

INFO_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"agent": {"type": "string", "minLength": 1, "description": "Name of the agent"}},
    "required": ["agent"],
}


def make_spawn_schema(max_tasks: int) -> JsonObject:
    item = {"type": "object", "properties": _TASK_SCHEMA, "required": list(_SINGLE_FIELDS)}
    return {
        "type": "object",
        "properties": {
            "mode": {
                "type": "string",
                "enum": list(_MODES),
                "default": Mode.SINGLE,
                "description": "single takes agent and task; chain and parallel take tasks",
            },
            **{name: _TASK_SCHEMA[name] for name in _SINGLE_FIELDS},
            "tasks": {"type": "array", "minItems": 1, "maxItems": max_tasks, "items": item},
        },
    }


def guess_mode(arguments: Any) -> Mode:
    """The mode an input asks for; `single` where that cannot be known."""
    fields = arguments.get("mode") if isinstance(arguments, dict) else None
    return next((mode for mode in _MODES if mode == fields), Mode.SINGLE)


def decode_plan(arguments: Any) -> Plan:
    """The plan of the input, checked field by field so that the sentence names the field.

    Raises:
        Refused: `invalid_input`.
    """
    if not isinstance(arguments, dict):
        raise refuse(
            ErrorCode.INVALID_INPUT, f"The input of {SPAWN_TOOL} must be an object with agent and task, or with tasks"
        )
    fields, mode = optional_text(arguments, "mode"), guess_mode(arguments)
    if fields is not None and fields != mode:
        raise refuse(ErrorCode.INVALID_INPUT, f"Unknown mode: {fields}. Modes: {', '.join(_MODES)}")
    tasks = arguments.get("tasks")
    for name in _SINGLE_FIELDS:
        if tasks is not None and optional_text(arguments, name) is not None:
            raise refuse(ErrorCode.INVALID_INPUT, f"Give agent and task, or tasks: not both {name} and tasks")
    if mode is Mode.SINGLE:
        if tasks is not None:
            raise refuse(
                ErrorCode.INVALID_INPUT, "Mode single takes agent and task; tasks needs mode chain or parallel"
            )
        return Plan(tasks=(_decode_task(arguments, _SINGLE_FIELDS),), mode=mode)
    if tasks is None:
        raise refuse(ErrorCode.INVALID_INPUT, f"Missing required parameter: tasks. Mode {mode} takes a list of them")
    if not isinstance(tasks, list):
        raise refuse(ErrorCode.INVALID_INPUT, "Parameter tasks must be a list of objects with agent and task")
    return Plan(tasks=tuple(_decode_numbered_task(number, task) for number, task in enumerate(tasks, 1)), mode=mode)


def _decode_numbered_task(number: int, arguments: Any) -> Task:
    try:
        if not isinstance(arguments, dict):
            raise refuse(ErrorCode.INVALID_INPUT, "It must be an object with agent and task")
        return _decode_task(arguments, tuple(_TASK_SCHEMA))
    except RefusedError as refusal:
        failure = refusal.failure
        raise RefusedError(structs.replace(failure, message=f"Task {number}: {failure.message}")) from None


def _decode_task(arguments: JsonObject, known: Sequence[str]) -> Task:
    agent, task = require_text(arguments, "agent"), require_text(arguments, "task")
    cwd = optional_text(arguments, "cwd") if "cwd" in known else None
    timeout = arguments.get("timeout") if "timeout" in known else None
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
        raise refuse(ErrorCode.INVALID_INPUT, "Parameter timeout must be a number of seconds")
    return Task(agent=agent, prompt=task, cwd=cwd, timeout=timeout)


def describe_ignored_fields(arguments: JsonObject) -> tuple[str, ...]:
    """What is to be known of input that means nothing here."""
    unknown = [str(name) for name in arguments if name not in _INPUT_FIELDS]
    unknown += [f"tasks.{name}" for task in arguments.get("tasks") or () for name in task if name not in _TASK_SCHEMA]
    return ignored_notice(unknown, f"{', '.join(_INPUT_FIELDS)}; in tasks: {', '.join(_TASK_SCHEMA)}")


def ignored_of_info(arguments: JsonObject) -> tuple[str, ...]:
    """Return the notice on fields that `agent_info` does not have."""
    return ignored_notice((name for name in arguments if name not in INFO_SCHEMA["properties"]), "agent")


SPAWN_DESCRIPTION = (
    "Delegate work to specialised agents that work in their own context. Give them everything they need: they do not "
    "see this conversation. Mode single: one agent and its task. Mode chain: tasks one after the other; {previous} "
    "in a task stands for the answer of the task before it, which is appended where it is not named, and {task} for "
    "the first task; a chain stops at its first failure. Mode parallel: all tasks at once, answers in their order."
)
INFO_DESCRIPTION = "Show what an agent is for: its description, model, tools and instructions."

_MAX_LINE_CHARS = 2000
"""Characters of what a file says of its agent, where it stands on one line."""


class NestedToolset:
    """Two tools: `spawn_subagent {mode, agent, task}` or `{mode, tasks}`, and `agent_info {agent}`."""

    name = "nested"

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        return {SPAWN_TOOL: self.spawn, INFO_TOOL: self.describe_agent}

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        try:
            admitted = self._orchestrator.authorize(call)
        except RefusedError:
            return ()
        agents = render_agent_lines(self._orchestrator, call)
        if not agents:
            return ()
        description, schema = (
            "\n".join([SPAWN_DESCRIPTION, "", "Agents:", *agents]),
            make_spawn_schema(admitted.settings.max_tasks),
        )
        return (
            ToolDefinition(name=SPAWN_TOOL, description=description, input_schema=schema, run=self.spawn),
            ToolDefinition(
                name=INFO_TOOL, description=INFO_DESCRIPTION, input_schema=INFO_SCHEMA, run=self.describe_agent
            ),
        )

    def invalid_json_result(self, tool: str, problem: str, call: CallContext) -> ToolResult:
        return self._refusal_result(tool, invalid_json_failure(self._orchestrator, tool, problem, call))

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        return self._sanitize(render_failure(failure))

    def tool_session_id(self, session: str) -> str | None:
        return None

    async def spawn(self, arguments: Any, call: CallContext, update: OnPartialResult | None = None) -> ToolResult:
        """Carries the tasks out and answers when all have ended; a failure is an answer too."""
        mode = guess_mode(arguments)
        try:
            plan = decode_plan(arguments)
        except RefusedError as refusal:
            return self._refusal_result(SPAWN_TOOL, find_refusal(self._orchestrator, call) or refusal.failure, mode)
        notices = describe_ignored_fields(arguments)
        call = structs.replace(call, notices=(*call.notices, *notices))
        order: list[str] = []

        def on_started(specs: Sequence[RunSpec]) -> None:
            order.extend(spec.run for spec in specs)

        async def work() -> ToolResult:
            try:
                results = await self._orchestrator.run_plan(plan, call, on_started)
            except RefusedError as refusal:
                return self._refusal_result(SPAWN_TOOL, refusal.failure, mode)
            return append_notices(self._orchestrator, render_answer(results, plan), notices)

        # Every partial result repeats the texts before it: each is cleaned once.
        clean = lru_cache(maxsize=2 * MAX_ITEMS)(sanitize_text)
        publish = partial(render_partial_answer, mode=mode, order=order, clean=clean)
        return await with_partial_results(self._orchestrator, call, work, publish, update)

    async def describe_agent(
        self, arguments: Any, call: CallContext, update: OnPartialResult | None = None
    ) -> ToolResult:
        """Shows what another model may know of an agent: never its persona, its memory or its key (decision D9)."""
        try:
            self._orchestrator.authorize(call)
            if not isinstance(arguments, dict):
                raise refuse(ErrorCode.INVALID_INPUT, f"The input of {INFO_TOOL} must be an object with agent")
            found = self._orchestrator.load_agents(call).find_profile(require_text(arguments, "agent"))
        except RefusedError as refusal:
            return self._refusal_result(INFO_TOOL, refusal.failure)
        if isinstance(found, Failure):
            return self._refusal_result(INFO_TOOL, found)
        return append_notices(self._orchestrator, self._render_agent(found), ignored_of_info(arguments))

    def _render_agent(self, agent: AgentProfile) -> ToolResult:
        """The agent for a model and for programs. No record has masked what its file says."""
        description, body = self._sanitize(agent.description), self._sanitize(agent.body)
        model = self._sanitize(agent.model or "")
        tools = _requested_tools(agent.tools)
        lines = {
            "name": agent.name,
            "description": description,
            "model": model or "(the engine's default)",
            "tools": "(those of its caller)" if tools is None else ", ".join(tools) or "(none)",
            "sourceLayer": agent.layer,
        }
        text = "\n".join(f"{name}: {to_one_line(value, _MAX_LINE_CHARS)}" for name, value in lines.items())
        return ToolResult(
            text=f"{text}\n\n{wrap_untrusted(body, f'{INFO_TOOL} ({agent.name})')}" if body else text,
            details={
                "name": agent.name,
                "description": description,
                "model": model or None,
                "tools": tools,
                "sourceLayer": agent.layer,
                "body": body,
            },
        )

    def _refusal_result(self, tool: str, failure: Failure, mode: Mode = Mode.SINGLE) -> ToolResult:
        """The answer to a call of which nothing was started. It may quote its input, which no record has masked."""
        message = self._sanitize(render_failure(failure))
        details: JsonObject = {"error": {"code": str(failure.code), "message": message}}
        if tool == SPAWN_TOOL:
            details = {"mode": mode, "results": [], **details}
        return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED_EXIT_CODE)

    def _sanitize(self, text: str) -> str:
        return sanitize_text(self._orchestrator.redact(text))


def _requested_tools(policy: ToolPolicy) -> list[str] | None:
    """The tools an agent asks for; None: those of its caller."""
    named = requested_tools(policy)
    if named is None:
        return None
    return [*named, *([SPAWN_TOOL] if policy.delegates and not policy.nothing else [])]
