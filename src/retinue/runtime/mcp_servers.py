"""Choose the MCP servers of a run: those of its agent that it may have and that can be started."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import structs

from retinue.agents.agent import Agent
from retinue.agents.mcp_config import ServerFinder
from retinue.model.mcp import McpServer
from retinue.model.runs import ToolGrant
from retinue.model.tool_names import is_on_server

NOT_STARTED = "The MCP server {name} is not started: {problem}. Its tools are left out."
NOT_OF_CALLER = "the run that delegates to this agent does not have it"
NOTHING_GRANTED = "The MCP server {name} is not started: {why}."
NOT_LISTED = "the agent's tools name none of its tools (mcp__{label}__…)"
REMOVED = "{rules} removed its tools"


def plan_servers(
    agent: Agent, cwd: Path, environ: Mapping[str, str], allowed: Collection[str] | None
) -> tuple[McpServer, ...]:
    """Return the servers of an agent, also those that cannot be started, with the problem.

    Of those that its caller does not have, by digest, none can be.
    """
    return tuple(
        structs.replace(server, problem=NOT_OF_CALLER)
        if allowed is not None and not server.problem and server.digest not in allowed
        else server
        for server in ServerFinder(cwd, environ).find_servers(agent)
    )


def choose_servers(servers: Sequence[McpServer], grant: ToolGrant) -> tuple[tuple[McpServer, ...], tuple[str, ...]]:
    """Return the servers of which a tool is granted, and notices on the others."""
    chosen = tuple(server for server in servers if not server.problem and _has_tool(server, grant))
    return chosen, tuple(_explain(servers, chosen, grant))


def _has_tool(server: McpServer, grant: ToolGrant) -> bool:
    return any(is_on_server(tool, server.label) for tool in grant.tools)


def _explain(servers: Sequence[McpServer], chosen: Sequence[McpServer], grant: ToolGrant) -> Iterator[str]:
    for server in servers:
        if server.problem:
            yield NOT_STARTED.format(name=server.name, problem=server.problem)
        elif server not in chosen:
            removed = dict.fromkeys(each.by for each in grant.removed if is_on_server(each.tool, server.label))
            why = REMOVED.format(rules=", ".join(removed)) if removed else NOT_LISTED.format(label=server.label)
            yield NOTHING_GRANTED.format(name=server.name, why=why)
