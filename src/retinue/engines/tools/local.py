"""The local tools together."""

from __future__ import annotations

from anyio import CapacityLimiter

from retinue.engines.toolbox import Toolbox, tool
from retinue.engines.tools.find import find
from retinue.engines.tools.folder import Folder
from retinue.engines.tools.grep import grep
from retinue.engines.tools.ls import ls
from retinue.engines.tools.read import read


def local_toolbox(cwd: str, readers: CapacityLimiter) -> Toolbox:
    """`read`, `grep`, `find` and `ls` beneath a working directory, by at most so many readers at once."""
    folder = Folder(cwd)
    return Toolbox(tool(function, folder, readers) for function in (read, grep, find, ls))
