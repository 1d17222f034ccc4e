"""The local tools together."""

from __future__ import annotations

from retinue.engines.toolbox import Toolbox, tool
from retinue.engines.tools.find import find
from retinue.engines.tools.folder import Folder
from retinue.engines.tools.grep import grep
from retinue.engines.tools.ls import ls
from retinue.engines.tools.read import read


def local_toolbox(cwd: str) -> Toolbox:
    """`read`, `grep`, `find` and `ls` beneath a working directory."""
    folder = Folder(cwd)
    return Toolbox(tool(function, folder) for function in (read, grep, find, ls))
