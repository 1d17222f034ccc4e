"""Map the tools of a run on Claude Code: our own tools, and its `Agent` tool for delegation."""

from __future__ import annotations

from collections.abc import Mapping

from anyio import CapacityLimiter

from retinue.engines.toolbox import AgentToolbox, delegation_tools, finalize_tool, make_tool, server_tools
from retinue.engines.tools.base import SandboxedDirectory
from retinue.engines.tools.files import ls
from retinue.model.runs import RunSpec, ToolArguments, ToolServers
from retinue.model.tool_names import FINALIZE_TOOL, MCP_PREFIX, SPAWN_TOOL, is_delegation, to_pi_name

NATIVE_DELEGATION_TOOLS = ("Agent", "Task")
"""Claude Code's names for its delegation tool: for models, in its lists, and in older versions."""
CALL_ARGUMENT = "retinueCall"
"""The argument in which the permission hook passes the id of the call to our tool."""

_ARGUMENT_NAMES = {"subagent_type": "agent", "prompt": "task"}
_DESCRIPTION_ARGUMENT = "description"
"""Argument of `Agent` beside the task."""


def list_delegation_tools(spec: RunSpec) -> tuple[str, ...]:
    """Return the names of our delegation tools that the run has."""
    return tuple(filter(is_delegation, spec.grant.tools)) if spec.delegation else ()


def tool_aliases(spawn: str) -> Mapping[str, str]:
    """Return the native tool names that our spawn tool implements, mapped to its name."""
    return dict.fromkeys(NATIVE_DELEGATION_TOOLS, spawn)


def convert_arguments(arguments: ToolArguments) -> ToolArguments:
    """Return the arguments of `Agent` as `spawn_subagent` takes them; those of `spawn_subagent` are unchanged."""
    if not _ARGUMENT_NAMES.keys() & arguments.keys():
        return arguments
    return {
        _ARGUMENT_NAMES.get(name, name): value for name, value in arguments.items() if name != _DESCRIPTION_ARGUMENT
    }


SERVER_NAME = "retinue"
"""Name of the MCP server under which Claude Code sees our tools."""
TOOL_PREFIX = f"mcp__{SERVER_NAME}__"
LS_TOOL = "ls"


def list_own_tools(spec: RunSpec) -> tuple[str, ...]:
    """Return the names of our tools that the run has."""
    listing = (LS_TOOL,) if LS_TOOL in spec.grant.tools else ()
    return (*listing, *list_delegation_tools(spec), *((FINALIZE_TOOL,) if spec.finalize else ()))


def build_own_toolbox(spec: RunSpec, readers: CapacityLimiter) -> AgentToolbox:
    toolbox = AgentToolbox(
        (make_tool(ls, SandboxedDirectory(spec.cwd, None, spec.sandbox), readers), finalize_tool(spec.output_schema))
    )
    if spec.delegation:
        toolbox = toolbox.with_tools(*delegation_tools(spec.delegation))
    return toolbox.restricted_to(list_own_tools(spec))


async def make_server_toolboxes(servers: ToolServers) -> dict[str, AgentToolbox]:
    """Return the granted tools of the MCP servers of a run, by server, once these have started."""
    tools = await server_tools(servers)
    return {
        label: AgentToolbox(tool for tool in tools if tool.schema.name.startswith(f"{MCP_PREFIX}{label}__"))
        for label in servers.labels
    }


def to_mcp_tool_name(tool: str) -> str:
    """Return Claude Code's name for one of our tools."""
    return f"{TOOL_PREFIX}{tool}"


def to_retinue_name(tool: str) -> str:
    """Return our name for a tool of Claude Code."""
    if tool in NATIVE_DELEGATION_TOOLS:
        return SPAWN_TOOL
    return tool.removeprefix(TOOL_PREFIX) if tool.startswith(TOOL_PREFIX) else to_pi_name(tool)
