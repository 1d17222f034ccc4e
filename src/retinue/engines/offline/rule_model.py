"""The rule-based model: it searches instead of thinking, and delegates the lines of a task that name an agent.

ask explorer: Where is the bus?
ask lead:
    ask reviewer: Review bus.py
    ask tester: Which tests cover it?
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import dedent

from msgspec import Struct

from retinue.engines.agent_loop import ModelReply, ModelRequest, OnDelta
from retinue.engines.offline.report import HONESTY, find_role, render_report
from retinue.engines.offline.search import ToolRequest, ToolResponse, ToolSteps, parse_question, search
from retinue.model.events import Text, TextDelta
from retinue.model.results import Usage
from retinue.model.runs import Message, RunSpec, ToolArguments, ToolUse
from retinue.model.tool_names import FINALIZE_TOOL

MODEL = "offline-rules"
SPAWN_TOOL = "spawn_subagent"
LOCAL_TOOLS = frozenset({"read", "grep", "find", "ls"})
_NO_TOOLS = f"{HONESTY}: none of `read`, `grep`, `find` and `ls` was granted, so no file could be read."
_MAX_TASK = 20_000
"""Characters of a task that are examined."""
_DELEGATED_LINE = re.compile(
    r"(?P<indent>[ \t]*)(?:(?:[-*]|\d+[.)])[ \t]+)?(?:please[ \t]+)?(?:ask|delegate[ \t]+to)[ \t]+"
    r"(?P<quote>[`\"']?)(?P<agent>\w[\w.-]*)(?P=quote)[ \t]*:(?P<task>.*)",
    re.IGNORECASE,
)
_USER_MESSAGE = re.compile(
    r"^User: (.*?)(?=^(?:User|Assistant|Tool Call|Tool Result): |^--- Run \d|^\[Error: |\Z)", re.MULTILINE | re.DOTALL
)
"""A message of the user in a prompt that quotes earlier runs."""


class FinalAnswer(Struct, frozen=True):
    text: str
    is_error: bool = False


class TaskSplit(Struct, frozen=True):
    """A task divided into the parts for other agents and the rest."""

    delegated: tuple[tuple[str, str], ...] = ()
    """Agent and task of each part."""
    rest: str = ""

    @property
    def arguments(self) -> ToolArguments:
        """Arguments of the spawn tool; several parts run in parallel."""
        tasks = [{"agent": agent, "task": task} for agent, task in self.delegated]
        return tasks[0] if len(tasks) == 1 else {"mode": "parallel", "tasks": tasks}


class RuleModel:
    """Answers one run. It reads files only by calls of the run's own tools."""

    name = MODEL

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._steps: ToolSteps[FinalAnswer] | None = None
        self._requests: Sequence[ToolRequest] = ()
        self._calls = 0

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        tools = frozenset(tool.name for tool in request.tools)
        try:
            if self._steps is None:
                self._steps = answer_task(self._spec, tools & LOCAL_TOOLS)
                self._requests = next(self._steps)
            else:
                self._requests = self._steps.send(_collect_responses(self._requests, request.messages))
        except StopIteration as end:
            answer: FinalAnswer = end.value
        else:
            return _make_reply(*(self._make_call(each.tool, each.args) for each in self._requests))
        if FINALIZE_TOOL in tools:
            result = {"status": "ERROR", "error": answer.text}
            if not answer.is_error:
                result = {"status": "SUCCESS", "result": answer.text}
            return _make_reply(self._make_call(FINALIZE_TOOL, result))
        for line in answer.text.splitlines(keepends=True):
            await on_delta(TextDelta(line))
        return _make_reply(Text(answer.text))

    def _make_call(self, tool: str, args: ToolArguments) -> ToolUse:
        self._calls += 1
        return ToolUse(f"{self._spec.run[:8]}-{self._calls}", tool, args)


def answer_task(spec: RunSpec, tools: frozenset[str]) -> ToolSteps[FinalAnswer]:
    """Yield the tool calls of each turn, receive their results, and return the answer."""
    split = split_task(spec.task) if SPAWN_TOOL in spec.grant.tools else TaskSplit(rest=spec.task)
    delegated = ""
    if split.delegated:
        (response,) = yield [ToolRequest(SPAWN_TOOL, split.arguments)]
        agents = ", ".join(dict.fromkeys(agent for agent, _ in split.delegated))
        delegated = f"asked {agents}:\n\n{response.text}"
        if not split.rest:
            return FinalAnswer(f"{HONESTY}; {delegated}", response.is_error)
    text = _NO_TOOLS
    if tools:
        role = find_role(spec.agent.name, split.rest)
        question = parse_question(split.rest, _earlier_tasks(spec), prefers=role.prefers)
        text = render_report(role, (yield from search(question, tools)))
    return FinalAnswer(f"{text}\n\nAlso {delegated}" if delegated else text, is_error=not tools)


def split_task(task: str) -> TaskSplit:
    """Divide a task; lines indented below a delegated line belong to it."""
    delegated, rest = list[tuple[str, str]](), list[str]()
    for block in _iter_blocks(task[:_MAX_TASK].splitlines()):
        found = _DELEGATED_LINE.fullmatch(block[0])
        text = "\n".join([found["task"].strip(), dedent("\n".join(block[1:]))]).strip() if found else ""
        if found and text:
            delegated.append((found["agent"], text))
        else:
            rest += block
    return TaskSplit(tuple(delegated), "\n".join(rest).strip())


def _iter_blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield each delegated line with the lines that belong to it, and every other line alone."""
    block: list[str] = []
    indent = -1
    for line in lines:
        own_indent = len(line) - len(line.lstrip())
        if indent >= 0 and (not line.strip() or own_indent > indent):
            block.append(line)
            continue
        if block:
            yield block
        block, indent = [line], own_indent if _DELEGATED_LINE.fullmatch(line) else -1
    if block:
        yield block


def _earlier_tasks(spec: RunSpec) -> list[str]:
    """Return the prompt and the user's earlier messages, newest first."""
    history = [message.text for message in reversed(spec.history) if message.role == "user"]
    if not (spec.resumes and spec.prompt.startswith("Previously:\n\n")):
        return [spec.prompt, *history]
    quoted, _, newest = spec.prompt.partition("\n\nInstructions:\n\n")
    return [newest, *reversed(_USER_MESSAGE.findall(quoted)), *history]


def _collect_responses(requests: Sequence[ToolRequest], messages: Sequence[Message]) -> list[ToolResponse]:
    results = messages[len(messages) - len(requests) :]
    return [
        ToolResponse(request, result.text, result.is_error) for request, result in zip(requests, results, strict=True)
    ]


def _make_reply(*content: Text | ToolUse) -> ModelReply:
    return ModelReply(content=content, model=MODEL, usage=Usage(cost=0.0))
