"""Delegation for engines of this process, by the control socket that child processes use, too."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from retinue.engines.toolbox import RemoteTool, ToolOutcome, ToolSchema
from retinue.ipc.client import send_as_run
from retinue.ipc.messages import (
    AgentDescription,
    AgentsReply,
    CallTool,
    ErrorReply,
    ListAgents,
    ListTools,
    ToolResultReply,
    ToolsReply,
)
from retinue.model.runs import CallbackAddress, ToolUse
from retinue.output.truncate import read_on, truncate_text
from retinue.output.untrusted_text import map_strings, replace_surrogates

ID_DIGITS = 8
"""Length of the session ids that users see."""
RUN_ENDED = "There was no answer: the run is over."


async def list_tools(callback: CallbackAddress) -> tuple[RemoteTool, ...]:
    """Return the delegation tools of a run; none if the run has ended."""
    reply = await send_as_run(callback, ListTools())
    return tuple(
        RemoteTool(ToolSchema(tool.name, tool.description, dict(tool.input_schema)), partial(call_tool, callback))
        for tool in (reply.tools if isinstance(reply, ToolsReply) else ())
    )


async def list_agents(callback: CallbackAddress) -> tuple[AgentDescription, ...]:
    """Return the agents that a run may delegate to, for engines that announce them; none if the run has ended."""
    reply = await send_as_run(callback, ListAgents())
    return reply.agents if isinstance(reply, AgentsReply) else ()


async def call_tool(callback: CallbackAddress, use: ToolUse) -> ToolOutcome:
    """Call a delegation tool and return its outcome, failures included; cancelling it stops the child runs."""
    request = CallTool(use.name, use.id, use.args)
    try:
        reply = await send_as_run(callback, request)
    except RecursionError:  # arguments that are nested too deeply are cut
        arguments = map_strings(use.args, replace_surrogates)
        reply = await send_as_run(callback, CallTool(use.name, use.id, arguments))
    match reply:
        case ToolResultReply(result={"content": list(parts), "details": dict(details), **more}):
            text, is_error = "\n".join(part["text"] for part in parts), bool(more.get("isError"))
            return ToolOutcome(_truncate_answer(text, details, is_error=is_error), is_error=is_error)
        case ErrorReply(message=message):
            return ToolOutcome(message, is_error=True)
        case _:
            return ToolOutcome(RUN_ENDED, is_error=True)


def _truncate_answer(text: str, details: Mapping[str, Any], *, is_error: bool) -> str:
    """Return the answer; a long one is cut and ends with the command that prints the rest."""
    runs = [(run["agent"], run["subagentId"][:ID_DIGITS]) for run in details.get("results", ())]

    def rest(line: int) -> str:
        if details.get("mode") != "parallel" and not is_error:  # the text is the answer of the last run
            return f"[Read the rest with: {read_on(runs[-1][1], line)}]"
        sessions = ", ".join(f"{number} {agent} {run}" for number, (agent, run) in enumerate(runs, 1))
        return f"[Read each answer whole with: {read_on('ID')}; the IDs: {sessions}]"

    whole = text.encode("utf-8", "replace").decode()
    return truncate_text(whole, max_lines=sys.maxsize, rest=rest if runs else None).text
