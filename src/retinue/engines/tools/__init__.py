"""Local tools with pi's names for a working directory: files, `bash` and `fetch_content`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.model.sandbox import NO_SANDBOX, SandboxPolicy

if TYPE_CHECKING:
    from anyio import CapacityLimiter

    from retinue.engines.toolbox import AgentToolbox
    from retinue.engines.tools.bash import CommandContext
    from retinue.engines.tools.fetch import FetchContext


def make_local_toolbox(
    cwd: str,
    readers: CapacityLimiter,
    *,
    search_path: str | None = None,
    commands: CommandContext | None = None,
    network: FetchContext | None = None,
    sandbox: SandboxPolicy = NO_SANDBOX,
) -> AgentToolbox:
    """Return the local tools for a working directory, with ripgrep if `search_path` has it.

    `bash` is among them if `commands` describes where it runs, `fetch_content` if there is a `network`. At most as
    many calls of the others as there are `readers` run at the same time.
    """
    from retinue.engines.toolbox import AgentToolbox, make_tool
    from retinue.engines.tools.base import SandboxedDirectory
    from retinue.engines.tools.files import edit, find, ls, read, write
    from retinue.engines.tools.grep import grep
    from retinue.support.processes import find_program

    folder = SandboxedDirectory(cwd, find_program("rg", search_path) if search_path else None, sandbox)
    toolbox = AgentToolbox(make_tool(function, folder, readers) for function in (read, grep, find, ls, write, edit))
    if commands:
        from retinue.engines.tools.bash import bash

        toolbox = toolbox.with_tools(make_tool(bash, commands))
    if network:
        from retinue.engines.tools.fetch import fetch_content

        toolbox = toolbox.with_tools(make_tool(fetch_content, network))
    return toolbox
