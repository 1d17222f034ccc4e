"""The `nested` toolset: `spawn_subagent` (single, chain, parallel) and `agent_info`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from msgspec import structs

from retinue.config.settings import Settings
from retinue.model.agents import AgentProfile, ToolPolicy
from retinue.model.errors import Failure, RefusedError
from retinue.model.results import CANCELLED_EXIT_CODE, RunResult, compute_exit_status
from retinue.model.sandbox import SandboxMode
from retinue.model.tasks import CallContext, Mode, Plan, Task
from retinue.model.tool_names import SPAWN_TOOL
from retinue.output.untrusted_text import sanitize_text, strip_control_characters, to_one_line, wrap_untrusted
from retinue.runtime.active_run import ABORTED
from retinue.runtime.model_choice import drop_unlisted_choices
from retinue.runtime.progress import MAX_ITEMS, CallProgress, RunState
from retinue.runtime.validation import find_uncallable
from retinue.toolsets import inputs
from retinue.toolsets.base import (
    OnPartialResult,
    OrchestratedToolset,
    RunTool,
    Sanitize,
    ToolDefinition,
    ToolResult,
    add_skipped_file,
    find_newest_text,
    storage_warning,
)
from retinue.toolsets.inputs import (
    CHOICE_FIELDS,
    CHOICE_NOUNS,
    JsonObject,
    decode_choices,
    decode_output_schema,
    offered_choices,
    structured_details,
    structured_value,
    unapplied_notices,
    worktree_notices,
)

INFO_TOOL = "agent_info"

SPAWN_DESCRIPTION = (
    "Delegate work to specialised agents that work in their own context. Give them everything they need: they do not "
    "see this conversation. Mode single: one agent and its task. Mode chain: tasks one after the other; {previous} "
    "in a task is replaced by the previous task's answer, which is appended if the placeholder is missing, and "
    "{task} for "
    "the first task; a chain stops at its first failure. Mode parallel: all tasks at once, answers in their order."
)
INFO_DESCRIPTION = "Show an agent: its description, model, tools and instructions."

_TASK_SCHEMA: JsonObject = {
    "agent": {"type": "string", "minLength": 1, "description": "Name of the agent to delegate to"},
    "task": {"type": "string", "minLength": 1, "description": "The focused task, with all the context it needs"},
    "cwd": {"type": "string", "description": "Absolute path of the directory the agent works in"},
    "timeout": {"type": "number", "minimum": 1, "description": "Timeout in seconds"},
}
_REQUIRED_FIELDS = ("agent", "task")
_TASK_FIELDS: JsonObject = {**_TASK_SCHEMA, **CHOICE_FIELDS}
_SINGLE_FIELDS: JsonObject = {name: _TASK_FIELDS[name] for name in (*_REQUIRED_FIELDS, *CHOICE_FIELDS)}
"""The fields of a task that the input itself has in mode single."""
_INPUT_FIELDS = ("mode", *_REQUIRED_FIELDS, "tasks")
_MODES = (Mode.SINGLE, Mode.CHAIN, Mode.PARALLEL)
_TASK_NOUNS = {"timeout": "a number of seconds", **CHOICE_NOUNS}

INFO_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"agent": {"type": "string", "minLength": 1, "description": "Name of the agent"}},
    "required": ["agent"],
}

_MAX_LINE_CHARS = 2000
"""Characters of one field of an agent's file, shown on one line."""


def make_spawn_schema(settings: Settings) -> JsonObject:
    choices = offered_choices(settings)
    item = {"type": "object", "properties": {**_TASK_SCHEMA, **choices}, "required": list(_REQUIRED_FIELDS)}
    return {
        "type": "object",
        "properties": {
            "mode": {
                "type": "string",
                "enum": list(_MODES),
                "default": Mode.SINGLE,
                "description": "single needs agent and task; chain and parallel need tasks",
            },
            **{name: _TASK_SCHEMA[name] for name in _REQUIRED_FIELDS},
            **choices,
            "tasks": {"type": "array", "minItems": 1, "maxItems": settings.max_tasks, "items": item},
        },
    }


class NestedToolset(OrchestratedToolset):
    """Two tools: `spawn_subagent {mode, agent, task}` or `{mode, tasks}`, and `agent_info {agent}`."""

    name = "nested"

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        return {SPAWN_TOOL: self.spawn, INFO_TOOL: self.describe_agent}

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        try:
            settings = self._orchestrator.authorize(call).settings
        except RefusedError:
            return ()
        agents = self.list_agents(call)
        if not agents:
            return ()
        return (
            ToolDefinition(
                name=SPAWN_TOOL,
                description="\n".join([SPAWN_DESCRIPTION, "", "Agents:", *agents]),
                input_schema=make_spawn_schema(settings),
                run=self.spawn,
            ),
            ToolDefinition(
                name=INFO_TOOL, description=INFO_DESCRIPTION, input_schema=INFO_SCHEMA, run=self.describe_agent
            ),
        )

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        return self.redact(_render_failure(failure))

    def refusal_result(self, failure: Failure, call: CallContext, tool: str, mode: Mode = Mode.SINGLE) -> ToolResult:
        result = super().refusal_result(failure, call, tool)
        if tool != SPAWN_TOOL:
            return result
        return structs.replace(result, details={"mode": mode, "results": [], **result.details})

    async def spawn(self, arguments: Any, call: CallContext, update: OnPartialResult | None = None) -> ToolResult:
        """Run the tasks and return their answers when all have ended; a failure is an answer, too."""
        mode, order = _guess_mode(arguments), list[str]()
        render = partial(
            _render_partial, mode=mode, order=order, clean=lru_cache(maxsize=2 * MAX_ITEMS)(sanitize_text)
        )
        try:
            admitted = self._orchestrator.authorize(call)
            plan, ignored_choices = drop_unlisted_choices(_decode_plan(arguments), admitted.settings)
            notices = (*_describe_ignored_fields(arguments, admitted.settings), *ignored_choices)
            noted_call = structs.replace(call, notices=(*call.notices, *notices))
            results = await self.run_plan(
                plan,
                noted_call,
                render,
                update,
                on_started=lambda specs: order.extend(spec.run for spec in specs),
                admitted=admitted,
            )
        except RefusedError as refusal:
            return self.refusal_result(refusal.failure, call, SPAWN_TOOL, mode)
        late = (*unapplied_notices(plan, results), *worktree_notices(results))
        return self.append_notices(_render_answer(results, plan), (*notices, *late))

    async def describe_agent(
        self, arguments: Any, call: CallContext, update: OnPartialResult | None = None
    ) -> ToolResult:
        """Return what another model may know of an agent: never its persona, its memory or its key."""
        try:
            self._orchestrator.authorize(call)
            name = inputs.require_text(inputs.require_object(arguments, INFO_TOOL, " with agent"), "agent")
        except RefusedError as refusal:
            found: AgentProfile | Failure = refusal.failure
        else:
            agents = self._orchestrator.load_agents(call)
            found = find_uncallable(call, name, agents.resolve_name) or agents.find_profile(name)
        if isinstance(found, Failure):
            return self.refusal_result(found, call, INFO_TOOL)
        notices = inputs.ignored_notice(inputs.unknown_fields(INFO_SCHEMA["properties"], arguments), "agent")
        return self.append_notices(self._render_agent(found), notices)

    def _render_agent(self, agent: AgentProfile) -> ToolResult:
        """Return the agent for a model and for programs, redacted because its file may hold secrets."""
        description, body = self.redact(agent.description), self.redact(agent.body)
        model, tools = self.redact(agent.model or ""), _list_tools(agent.tools)
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
            details={**lines, "model": model or None, "tools": tools, "body": body},
        )


def _list_tools(policy: ToolPolicy) -> list[str] | None:
    """Return the tools an agent requests; None if it inherits those of its caller."""
    if policy.requested is None:
        return None
    return [*policy.requested, *([SPAWN_TOOL] if policy.delegates and not policy.nothing else [])]


# -- input -------------------------------------------------------------------------------------------


def _guess_mode(arguments: Any) -> Mode:
    """Return the mode of the input; `single` if it has no valid one."""
    given = arguments.get("mode") if isinstance(arguments, dict) else None
    return next((mode for mode in _MODES if mode == given), Mode.SINGLE)


def _decode_plan(arguments: Any) -> Plan:
    """Return the plan of the input.

    Raises:
        RefusedError: `invalid_input`, naming the field.
    """
    given = inputs.require_object(arguments, SPAWN_TOOL, " with agent and task, or with tasks")
    fields = inputs.decode_fields({name: {"type": "string"} for name in ("mode", *_REQUIRED_FIELDS)}, given)
    mode, tasks = _guess_mode(given), given.get("tasks")
    if fields.get("mode", mode) != mode:
        raise inputs.invalid_input(f"Unknown mode: {fields['mode']}. Modes: {', '.join(_MODES)}")
    if tasks is not None:
        for name in _REQUIRED_FIELDS:
            if name in fields:
                raise inputs.invalid_input(f"Give agent and task, or tasks: not both {name} and tasks")
    if mode is Mode.SINGLE:
        if tasks is not None:
            raise inputs.invalid_input("Mode single needs agent and task; tasks needs mode chain or parallel")
        return Plan(tasks=(_decode_task(_SINGLE_FIELDS, given),), mode=mode)
    if tasks is None:
        raise inputs.invalid_input(f"Missing required parameter: tasks. Mode {mode} needs a list of tasks")
    if not isinstance(tasks, list):
        raise inputs.invalid_input("Parameter tasks must be a list of objects with agent and task")
    shared = inputs.decode_fields({"sandbox": CHOICE_FIELDS["sandbox"]}, given).get("sandbox")
    decoded = (_decode_numbered_task(number, task) for number, task in enumerate(tasks, 1))
    return Plan(tasks=tuple(_tighten_sandbox(task, shared) for task in decoded), mode=mode)


def _tighten_sandbox(task: Task, shared: str | None) -> Task:
    """Return the task with at least the sandbox beside the tasks: a restriction is never ignored."""
    if shared is None or task.sandbox == SandboxMode.STRICT:
        return task
    return structs.replace(task, sandbox=shared)


def _decode_numbered_task(number: int, task: Any) -> Task:
    try:
        if not isinstance(task, dict):
            raise inputs.invalid_input("It must be an object with agent and task")
        return _decode_task(_TASK_FIELDS, task)
    except RefusedError as refusal:
        failure = refusal.failure
        raise RefusedError(structs.replace(failure, message=f"Task {number}: {failure.message}")) from None


def _decode_task(properties: JsonObject, given: JsonObject) -> Task:
    given = decode_output_schema(given)
    fields = inputs.decode_fields(properties, given, required=_REQUIRED_FIELDS, nouns=_TASK_NOUNS)
    return Task(
        agent=fields["agent"],
        prompt=fields["task"],
        cwd=fields.get("cwd"),
        timeout=fields.get("timeout"),
        **decode_choices(fields),
    )


def _describe_ignored_fields(arguments: JsonObject, settings: Settings) -> tuple[str, ...]:
    """Return the notice on fields without effect: beside tasks, all choices of a single task but `sandbox`."""
    tasks = arguments.get("tasks")
    unknown = [*inputs.unknown_fields((*_INPUT_FIELDS, *(("sandbox",) if tasks else CHOICE_FIELDS)), arguments)]
    for task in tasks or ():
        unknown += inputs.unknown_fields(_TASK_FIELDS, task, "tasks.")
    choices = offered_choices(settings)
    supported = ", ".join((*_INPUT_FIELDS, *choices))
    return inputs.ignored_notice(unknown, f"{supported}; in tasks: {', '.join((*_TASK_SCHEMA, *choices))}")


# -- results -----------------------------------------------------------------------------------------


def _render_answer(results: Sequence[RunResult], plan: Plan) -> ToolResult:
    """Return the results of the runs that were started."""
    failed = [result for result in results if result.failure]
    is_stopped = len(results) < len(plan.tasks) and not failed
    is_error = len(failed) == len(results) if plan.mode is Mode.PARALLEL else bool(failed)
    return ToolResult(
        text="\n\n".join(filter(None, [_render_text(results, plan), *storage_warning(results)])),
        details={
            "mode": plan.mode,
            "results": [_result_details(result) for result in results],
            **structured_details(results, plan.mode),
        },
        is_error=is_error or is_stopped,
        exit_code=CANCELLED_EXIT_CODE if is_stopped else compute_exit_status(results),
    )


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
        return _render_chain_stopped(len(results), last.agent, _render_failure(last.failure))
    if len(results) < len(plan.tasks):
        return _render_chain_stopped(len(results) + 1, plan.tasks[len(results)].agent or "", ABORTED.message)
    return sanitize_text(last.text)


def _render_chain_stopped(step: int, agent: str, message: str) -> str:
    return f"Chain stopped at step {step} ({strip_control_characters(agent)}): {sanitize_text(message)}"


def _render_block(number: int, agent: str, state: str, text: str) -> str:
    return f"=== {number} {strip_control_characters(agent)}: {state} ===\n{text}"


def _render_failure(failure: Failure) -> str:
    return add_skipped_file(failure, failure.message)


def _render_result(result: RunResult) -> str:
    """Return the answer of a run for a model, or its failure with the text it wrote."""
    if result.failure is None:
        return sanitize_text(result.text)
    message, text = sanitize_text(_render_failure(result.failure)), _agent_text(result)
    return f"{message}\n\nPartial output:\n\n{text}" if text else message


def _agent_text(result: RunResult) -> str:
    """Return what the agent itself wrote; empty if it wrote nothing."""
    return sanitize_text(result.text) if result.answer.is_text else ""


def _result_details(result: RunResult) -> dict[str, Any]:
    details = _run_details(result.run, result.agent, result.spec.task, _agent_text(result), bool(result.failure))
    if result.spec.output_schema is not None:
        details["structured"] = structured_value(result)
    if failure := result.failure:
        details["error"] = {"code": str(failure.code), "message": sanitize_text(_render_failure(failure))}
    return details


def _run_details(run: str, agent: str, task: str, text: str, is_error: bool) -> dict[str, Any]:
    return {"subagentId": run, "agent": agent, "task": task, "result": text, "isError": is_error}


def _render_partial(progress: CallProgress, *, mode: Mode, order: Sequence[str], clean: Sanitize) -> ToolResult:
    """Return the newest text of each run.

    `order` has the runs of tasks that start at once; the steps of a chain appear in their order by themselves.
    """
    numbers = {run: number for number, run in enumerate(order or progress.runs, 1)}
    views = [progress.runs[run] for run in numbers if run in progress.runs]
    texts = [clean(find_newest_text(view)) for view in views]
    names = {RunState.DONE: "ok", RunState.ERROR: "error"}
    blocks, results = [], []
    for view, text in zip(views, texts, strict=True):
        phase = names.get(view.phase, str(view.phase))
        blocks.append(_render_block(numbers[view.run], view.agent, phase, text or "(running...)"))
        results.append(_run_details(view.run, view.agent, view.task, text, view.phase is RunState.ERROR))
    text = texts[0] or "(running...)" if mode is Mode.SINGLE else "\n\n".join(blocks)
    return ToolResult(text=text, details={"mode": mode, "results": results})
