"""The tools Claude Code does not have, which a run calls in this process: `ls`, to delegate, and to finalize."""

from __future__ import annotations

from anyio import CapacityLimiter

from retinue.engines.calling_home import tools_at_home
from retinue.engines.claude.delegating import NATIVE, SPAWN, delegation_tools
from retinue.engines.finalize import finalize_tool
from retinue.engines.toolbox import Toolbox, tool
from retinue.engines.tools.folder import Folder
from retinue.engines.tools.ls import ls
from retinue.tool_names import FINALIZE, pi_name
from retinue.types import RunSpec

SERVER = "retinue"
"""The server, as Claude Code sees it, behind which they stand."""
PREFIX = f"mcp__{SERVER}__"
LS = "ls"


def own_tools_of(spec: RunSpec) -> tuple[str, ...]:
    """Their names, as far as the run has them."""
    listing = (LS,) if LS in spec.grant.tools else ()
    return (*listing, *delegation_tools(spec), *((FINALIZE,) if spec.finalize else ()))


async def own_toolbox(spec: RunSpec, readers: CapacityLimiter) -> Toolbox:
    toolbox = Toolbox((tool(ls, Folder(spec.cwd), readers), finalize_tool()))
    if spec.home:
        toolbox = toolbox.plus(*await tools_at_home(spec.home))
    return toolbox.only(own_tools_of(spec))


def own_name(tool: str) -> str:
    """What Claude Code calls a tool of ours."""
    return f"{PREFIX}{tool}"


def our_name(tool: str) -> str:
    """What we call a tool that Claude Code names."""
    if tool in NATIVE:
        return SPAWN
    return tool.removeprefix(PREFIX) if tool.startswith(PREFIX) else pi_name(tool)
