"""Delegation calls of a run, from its engine in this process or from a connection of its own process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

from retinue.model.runs import AgentDescription, DelegationAnswer, ToolDescription
from retinue.model.tasks import CallContext
from retinue.output.truncate import read_on, truncate_text
from retinue.output.untrusted_text import map_strings, replace_surrogates
from retinue.runtime.delegation import MAX_CALLS, DelegatingRun
from retinue.runtime.orchestrator import Orchestrator
from retinue.toolsets.base import (
    MAX_AGENTS,
    OnPartialResult,
    ToolProvider,
    ToolResult,
    available_agents,
    describe_agent,
)

ID_DIGITS = 8
"""Length of the session ids that users see."""
RUN_ENDED = "There is no answer: the run has ended."
TOO_MANY_CALLS = f"This run has {MAX_CALLS} calls in progress, which is the limit. Wait until one has been answered."
INTERNAL_ERROR = (
    "The call failed with an internal error of Retinue; the log has the details. The run continues: work without "
    "this call."
)


class ToolsetDelegation:
    """The tools of one delegating run, called with the rights of the run; a `Delegation` of its spec."""

    def __init__(self, toolset: ToolProvider, orchestrator: Orchestrator, run: DelegatingRun) -> None:
        self._toolset = toolset
        self._orchestrator = orchestrator
        self._run = run

    def list_tools(self) -> tuple[ToolDescription, ...]:
        if not self._run.may_delegate:
            return ()
        return describe_tools(self._toolset, self._run.context)

    def list_agents(self) -> tuple[AgentDescription, ...]:
        """Return the agents as profiles, without persona and memory; their texts are redacted here, as in records."""
        if not self._run.may_delegate:
            return ()
        found = available_agents(self._orchestrator, self._run.context)[:MAX_AGENTS]
        return tuple(
            AgentDescription(
                agent.name,
                describe_agent(self._orchestrator, entry),
                self._orchestrator.redact(agent.body),
                agent.tools.requested,
            )
            for entry in found
            for agent in [entry.agent.to_profile()]
        )

    async def call(self, tool: str, call: str, arguments: dict[str, Any]) -> DelegationAnswer:
        with self._run.counted_call() as has_room:
            if not has_room:
                return DelegationAnswer(TOO_MANY_CALLS, is_error=True)
            result = await self.run_tool(tool, call, map_strings(arguments, replace_surrogates))
        if isinstance(result, str):
            return DelegationAnswer(result, is_error=True)
        return DelegationAnswer(_truncate_answer(result), is_error=result.is_error)

    async def run_tool(
        self, tool: str, call: str, arguments: Any, update: OnPartialResult | None = None
    ) -> ToolResult | str:
        """Return the result of a tool, or the message of a call that no tool was run for."""
        handler = self._toolset.handlers.get(tool) if self._run.may_delegate else None
        if handler is None:
            return f"Unknown tool: {tool}. Tools: {', '.join(self._toolset.handlers)}."
        try:
            context = self._run.tool_call_context(call)
        except ValueError as error:
            return str(error)
        if not self._run.is_running:
            return RUN_ENDED
        try:
            return await handler(arguments, context, update)
        except Exception:  # a fault of ours is the answer to this call, and no reason to end the run that made it
            logging.getLogger("retinue").exception(INTERNAL_ERROR)
            return INTERNAL_ERROR


def describe_tools(toolset: ToolProvider, call: CallContext) -> tuple[ToolDescription, ...]:
    """Return the tools that a host may register for the call, as the wire spells them."""
    return tuple(ToolDescription(tool.name, tool.description, tool.input_schema) for tool in toolset.list_tools(call))


def _truncate_answer(result: ToolResult) -> str:
    """Return the answer; a long one is cut and ends with the command that prints the rest."""
    details: Mapping[str, Any] = result.details
    runs = [(run["agent"], run["subagentId"][:ID_DIGITS]) for run in details.get("results", ())]

    def rest(line: int) -> str:
        if details.get("mode") != "parallel" and not result.is_error:  # the text is the answer of the last run
            return f"[Read the remaining output with: {read_on(runs[-1][1], line)}]"
        sessions = ", ".join(f"{number} {agent} {run}" for number, (agent, run) in enumerate(runs, 1))
        return f"[Read each complete answer with: {read_on('ID')}; the IDs: {sessions}]"

    whole = replace_surrogates(result.text)
    return truncate_text(whole, max_lines=sys.maxsize, rest=rest if runs else None).text
