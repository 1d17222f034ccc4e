"""The engine and its model, which searches by rules, and delegates the lines of a task that name an agent.

ask explorer: Where is the bus?
ask lead:
    ask reviewer: Review bus.py
    ask tester: Which tests cover it?
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from textwrap import dedent

from anyio import CapacityLimiter

from retinue.engines.agent_loop import ModelReply, ModelRequest, OnDelta, run_agent_loop
from retinue.engines.base import Emit
from retinue.engines.offline import CAPABILITIES
from retinue.engines.offline.report import HONESTY, render_report
from retinue.engines.offline.search import MAX_TASK, FileSearch, ToolCall, ToolSteps
from retinue.engines.tools import make_local_toolbox
from retinue.engines.tools.base import MAX_READERS
from retinue.model.events import Text, TextDelta
from retinue.model.results import Usage
from retinue.model.runs import RunSpec, ToolUse
from retinue.model.tool_names import FINALIZE_TOOL, SPAWN_TOOL

_NO_TOOLS = f"{HONESTY}: none of `read`, `grep`, `find` and `ls` was granted, so no file could be read."
_DELEGATED_TASK = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?:[-*]|\d+[.)])[ \t]+)?(?:please[ \t]+)?(?:ask|delegate[ \t]+to)[ \t]+"
    r"(?P<quote>[`\"']?)(?P<agent>\w[\w.-]*)(?P=quote)[ \t]*:"
    r"(?P<task>.*)(?P<more>(?:\n(?:[ \t]*$|(?P=indent)[ \t]+\S.*))*)\n?",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that names an agent, with the lines indented below it."""


class OfflineEngine:
    def __init__(self) -> None:
        self._readers: CapacityLimiter | None = None

    def run(self, spec: RunSpec, emit: Emit) -> Coroutine[object, object, None]:
        self._readers = self._readers or CapacityLimiter(MAX_READERS)
        toolbox = make_local_toolbox(
            spec.cwd, self._readers, search_path=spec.environment.get("PATH"), sandbox=spec.sandbox
        )
        return run_agent_loop(RuleModel(spec), spec, toolbox, emit)


class RuleModel:
    """Answers one run. It reads files only by calls of the run's own tools."""

    name = "offline-rules"

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._steps: ToolSteps[tuple[str, bool]] | None = None
        self._pending = self._calls = 0

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        tools = frozenset(tool.name for tool in request.tools)
        try:
            if self._steps is None:
                self._steps = answer_task(self._spec, tools & CAPABILITIES.tools)
                calls = next(self._steps)
            else:
                calls = self._steps.send(request.messages[len(request.messages) - self._pending :])
        except StopIteration as end:
            text, is_error = end.value
        else:
            self._pending = len(calls)
            return _make_reply(*map(self._make_call, calls))
        if FINALIZE_TOOL in tools:
            result = {"status": "ERROR", "error": text} if is_error else {"status": "SUCCESS", "result": text}
            return _make_reply(self._make_call((FINALIZE_TOOL, result)))
        for line in text.splitlines(keepends=True):
            await on_delta(TextDelta(line))
        return _make_reply(Text(text))

    def _make_call(self, call: ToolCall) -> ToolUse:
        self._calls += 1
        return ToolUse(f"{self._spec.run[:8]}-{self._calls}", *call)


def _make_reply(*content: Text | ToolUse) -> ModelReply:
    return ModelReply(content=content, model=RuleModel.name, usage=Usage(cost=0.0))


def answer_task(spec: RunSpec, tools: frozenset[str]) -> ToolSteps[tuple[str, bool]]:
    """Yield the tool calls of each turn, receive their results, and return the answer and whether it is an error."""
    parts, rest = split_task(spec.task) if SPAWN_TOOL in spec.grant.tools else ([], spec.task)
    delegated = ""
    if parts:
        tasks = [{"agent": agent, "task": task} for agent, task in parts]
        (result,) = yield [(SPAWN_TOOL, tasks[0] if len(tasks) == 1 else {"mode": "parallel", "tasks": tasks})]
        delegated = f"asked {', '.join(dict.fromkeys(agent for agent, _ in parts))}:\n\n{result.text}"
        if not rest:
            return f"{HONESTY}; {delegated}", result.is_error
    text = _NO_TOOLS
    if tools:
        search = FileSearch(rest, _earlier_tasks(spec), spec.agent.name)
        yield from search.run(tools)
        text = render_report(spec.agent.name, search)
    return f"{text}\n\nAlso {delegated}" if delegated else text, not tools


def split_task(task: str) -> tuple[list[tuple[str, str]], str]:
    """Divide a task into the agents and tasks that its lines name, and the rest."""
    delegated: list[tuple[str, str]] = []

    def take(found: re.Match[str]) -> str:
        text = "\n".join([found["task"].strip(), dedent(found["more"][1:])]).strip()
        if text:
            delegated.append((found["agent"], text))
        return "" if text else found[0]

    rest = _DELEGATED_TASK.sub(take, "\n".join(task[:MAX_TASK].splitlines()))
    return delegated, rest.strip()


def _earlier_tasks(spec: RunSpec) -> list[str]:
    """Return the user's earlier messages, newest first: those of the history, or that the prompt quotes."""
    quoted = re.findall(r"^User: (.*)", spec.prompt, re.MULTILINE) if spec.resumes else []
    history = [message.text for message in spec.history if message.role == "user"]
    return [*(quoted[::-1] or [spec.prompt]), *history[::-1]]
