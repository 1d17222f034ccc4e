"""The tools of `nested`: one agent, a chain of them or several at once, at any depth that is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from msgspec import structs

from retinue.orchestrator import Orchestrator
from retinue.output.frame import framed, one_line
from retinue.progress import KEPT_ITEMS
from retinue.surfaces.base import (
    REFUSED,
    JsonObject,
    Tool,
    ToolResult,
    ToolRun,
    Update,
    agent_lines,
    append_notices,
    first_refusal,
    named_tools,
    required_text,
    streamed,
    unreadable_input,
)
from retinue.surfaces.nested.answers import answer, cleaned, partial_answer, sentence
from retinue.surfaces.nested.inputs import (
    INFO,
    INFO_SCHEMA,
    SPAWN,
    decoded,
    ignored,
    ignored_of_info,
    meant_mode,
    spawn_schema,
)
from retinue.types import Call, Code, Failure, Mode, Refused, RunSpec, Subagent, ToolPolicy, refused

ABOUT = (
    "Delegate work to specialised agents that work in their own context. Give them everything they need: they do not "
    "see this conversation. Mode single: one agent and its task. Mode chain: tasks one after the other; {previous} "
    "in a task stands for the answer of the task before it, which is appended where it is not named, and {task} for "
    "the first task; a chain stops at its first failure. Mode parallel: all tasks at once, answers in their order."
)
ABOUT_INFO = "Show what an agent is for: its description, model, tools and instructions."

_MOST_ON_A_LINE = 2000
"""Characters of what a file says of its agent, where it stands on one line."""


class Nested:
    """Two tools: `spawn_subagent {mode, agent, task}` or `{mode, tasks}`, and `agent_info {agent}`."""

    name = "nested"

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator

    @property
    def calls(self) -> Mapping[str, ToolRun]:
        return {SPAWN: self.spawn, INFO: self.info}

    def tools(self, call: Call) -> tuple[Tool, ...]:
        try:
            admitted = self._orchestrator.admit(call)
        except Refused:
            return ()
        agents = agent_lines(self._orchestrator, call)
        if not agents:
            return ()
        about, schema = "\n".join([ABOUT, "", "Agents:", *agents]), spawn_schema(admitted.settings.max_tasks)
        return (
            Tool(name=SPAWN, description=about, input_schema=schema, run=self.spawn),
            Tool(name=INFO, description=ABOUT_INFO, input_schema=INFO_SCHEMA, run=self.info),
        )

    def unreadable(self, tool: str, problem: str, call: Call) -> ToolResult:
        return self._refusal(tool, unreadable_input(self._orchestrator, tool, problem, call))

    def failure_text(self, failure: Failure, call: Call) -> str:
        return self._safe(sentence(failure))

    def tool_session_id(self, session: str) -> str | None:
        return None

    async def spawn(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """Carries the tasks out and answers when all have ended; a failure is an answer too."""
        mode = meant_mode(arguments)
        try:
            plan = decoded(arguments)
        except Refused as refusal:
            return self._refusal(SPAWN, first_refusal(self._orchestrator, call) or refusal.failure, mode)
        notices = ignored(arguments)
        call = structs.replace(call, notices=(*call.notices, *notices))
        order: list[str] = []

        def begun(specs: Sequence[RunSpec]) -> None:
            order.extend(spec.run for spec in specs)

        async def work() -> ToolResult:
            try:
                results = await self._orchestrator.carry_out(plan, call, begun)
            except Refused as refusal:
                return self._refusal(SPAWN, refusal.failure, mode)
            return append_notices(self._orchestrator, answer(results, plan), notices)

        # Every partial result repeats the texts before it: each is cleaned once.
        clean = lru_cache(maxsize=2 * KEPT_ITEMS)(cleaned)
        shown = partial(partial_answer, mode=mode, order=order, clean=clean)
        return await streamed(self._orchestrator, call, work, shown, update)

    async def info(self, arguments: Any, call: Call, update: Update | None = None) -> ToolResult:
        """Shows what another model may know of an agent: never its persona, its memory or its key (decision D9)."""
        try:
            self._orchestrator.admit(call)
            if not isinstance(arguments, dict):
                raise refused(Code.INVALID_INPUT, f"The input of {INFO} must be an object with agent")
            found = self._orchestrator.roster(call).show(required_text(arguments, "agent"))
        except Refused as refusal:
            return self._refusal(INFO, refusal.failure)
        if isinstance(found, Failure):
            return self._refusal(INFO, found)
        return append_notices(self._orchestrator, self._told(found), ignored_of_info(arguments))

    def _told(self, agent: Subagent) -> ToolResult:
        """The agent for a model and for programs. No record has masked what its file says."""
        description, body = self._safe(agent.description), self._safe(agent.body)
        model = self._safe(agent.model or "")
        tools = _tools(agent.tools)
        lines = {
            "name": agent.name,
            "description": description,
            "model": model or "(the engine's default)",
            "tools": "(those of its caller)" if tools is None else ", ".join(tools) or "(none)",
            "sourceLayer": agent.layer,
        }
        text = "\n".join(f"{name}: {one_line(value, _MOST_ON_A_LINE)}" for name, value in lines.items())
        return ToolResult(
            text=f"{text}\n\n{framed(body, f'{INFO} ({agent.name})')}" if body else text,
            details={
                "name": agent.name,
                "description": description,
                "model": model or None,
                "tools": tools,
                "sourceLayer": agent.layer,
                "body": body,
            },
        )

    def _refusal(self, tool: str, failure: Failure, mode: Mode = Mode.SINGLE) -> ToolResult:
        """The answer to a call of which nothing was started. It may quote its input, which no record has masked."""
        message = self._safe(sentence(failure))
        details: JsonObject = {"error": {"code": str(failure.code), "message": message}}
        if tool == SPAWN:
            details = {"mode": mode, "results": [], **details}
        return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED)

    def _safe(self, text: str) -> str:
        return cleaned(self._orchestrator.masked(text))


def _tools(policy: ToolPolicy) -> list[str] | None:
    """The tools an agent asks for; None: those of its caller."""
    named = named_tools(policy)
    if named is None:
        return None
    return [*named, *([SPAWN] if policy.delegates and not policy.nothing else [])]
