"""Generate the tools that the pi extension registers before Retinue is started."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from retinue import Retinue

FILE = Path(__file__).parents[2] / "src" / "retinue" / "extension" / "pi" / "toolsets.js"
HEADER = """\
// Made by `make docs`: change the toolsets, not this file. The tools of each toolset where no agents but the built-in
// ones exist: pi draws earlier calls with them; before the first prompt Retinue says which tools there really are.

"""


def toolsets_file() -> str:
    """Return the file with the tools of all toolsets."""
    return f"{HEADER}export const TOOLSETS = {json.dumps(anyio.run(_toolsets), ensure_ascii=False, indent=2)};\n"


async def _toolsets() -> dict[str, Any]:
    with TemporaryDirectory() as empty:
        async with Retinue(cwd=empty, state=Path(empty, "state"), environ={"HOME": empty}) as retinue:
            return {
                name: [
                    {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
                    for tool in retinue.toolset(name).list_tools(retinue.call(name))
                ]
                for name in retinue.toolsets
            }
