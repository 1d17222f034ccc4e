"""The local tools together."""

from __future__ import annotations

from anyio import CapacityLimiter

from retinue.engines.toolbox import AgentToolbox, make_tool
from retinue.engines.tools.find import find
from retinue.engines.tools.folder import SandboxedDirectory
from retinue.engines.tools.grep import grep
from retinue.engines.tools.ls import ls
from retinue.engines.tools.read import read


def make_local_toolbox(cwd: str, readers: CapacityLimiter) -> AgentToolbox:
    """`read`, `grep`, `find` and `ls` beneath a working directory, by at most so many readers at once."""
    folder = SandboxedDirectory(cwd)
    return AgentToolbox(make_tool(function, folder, readers) for function in (read, grep, find, ls))
