"""The MCP servers of one run: started together, and their granted tools under the names that models call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from retinue.mcp_client.server import RunningServer, ServerPlace
from retinue.model.events import Notice
from retinue.model.mcp import McpServer, is_granted, name_tools
from retinue.model.runs import RunSpec, ServerAnswer, ToolDescription
from retinue.model.tool_names import MCP_PREFIX
from retinue.output.untrusted_text import map_strings, replace_surrogates

NOTICE_CODE = "mcp_server"
MISSING_NOTICE_CODE = "missing_tools"


class RunServers:
    """The servers of one run; the `ToolServers` of its spec."""

    def __init__(self, servers: Sequence[McpServer], spec: RunSpec, place: ServerPlace) -> None:
        self._servers = {server.label: RunningServer(server, place, self._add_notice) for server in servers}
        self._spec = spec
        self._redact = place.redact
        self._called: dict[str, tuple[RunningServer, str]] = {}
        """The server and its own name of each tool, by the name that models call."""
        self._listed: tuple[ToolDescription, ...] | None = None
        self._notices: list[Notice] = []

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self._servers)

    async def list_tools(self) -> tuple[ToolDescription, ...]:
        for server in self._servers.values():
            await server.ready.wait()
        if self._listed is None:
            self._listed = tuple(tool for label in self._servers for tool in self._list_granted(label))
            self._report_missing()
        return self._listed

    async def call(self, tool: str, arguments: dict[str, Any]) -> ServerAnswer:
        await self.list_tools()
        if tool not in self._called:
            return ServerAnswer(f"Unknown tool: {tool}. Tools: {', '.join(self._called) or '(none)'}.", is_error=True)
        server, name = self._called[tool]
        return await server.call(name, map_strings(arguments, replace_surrogates))

    async def serve(self) -> None:
        """Start all servers and keep them until this is cancelled."""
        async with anyio.create_task_group() as group:
            for server in self._servers.values():
                group.start_soon(server.serve)

    async def stop(self) -> None:
        """Let all servers exit by themselves, and wait until they have."""
        async with anyio.create_task_group() as group:
            for server in self._servers.values():
                group.start_soon(server.stop)

    def take_notices(self) -> list[Notice]:
        """Return the notices since the last time."""
        notices, self._notices = self._notices, []
        return notices

    def _list_granted(self, label: str) -> list[ToolDescription]:
        """Return the granted tools of a server, and remember under which names they are called."""
        server = self._servers[label]
        tools = {
            tool.name: tool
            for tool in server.tools
            if is_granted(
                f"{MCP_PREFIX}{label}__{tool.name}", rules=self._spec.grant.tools, denied=self._spec.agent.tools.deny
            )
        }
        named = name_tools(label, tools)
        self._called |= {name: (server, own) for name, own in named.items()}
        return [ToolDescription(name, tools[own].description, tools[own].schema) for name, own in named.items()]

    def _report_missing(self) -> None:
        """Note each granted tool that its server, which has started, does not have."""
        for label, server in self._servers.items():
            if server.end_reason:
                continue
            known = [f"{MCP_PREFIX}{label}__{tool.name}" for tool in server.tools]
            for rule in self._spec.grant.tools:
                is_own = is_granted(rule, rules=(f"{MCP_PREFIX}{label}__*",), denied=())
                if is_own and "*" not in rule and not any(is_granted(n, rules=(rule,), denied=()) for n in known):
                    message = f"The MCP server {server.server.name} does not have the tool {rule}."
                    self._notices.append(Notice(MISSING_NOTICE_CODE, message, preference=rule))

    def _add_notice(self, server: McpServer, text: str) -> None:
        message = self._redact(f"The MCP server {server.name} {text}.")
        self._notices.append(Notice(NOTICE_CODE, message, preference=f"{MCP_PREFIX}{server.label}"))
