"""The `ls` tool."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.allowance import Allowance, in_thread
from retinue.engines.tools.folder import Folder, Parts, printable
from retinue.engines.tools.results import listing


async def ls(
    folder: Folder,
    readers: CapacityLimiter,
    path: Annotated[str, Meta(description="Directory to list (default: current directory)")] = ".",
    limit: Annotated[int, Meta(description="Maximum number of entries to return (default: 500)")] = 500,
) -> str:
    """List directory contents, sorted alphabetically, with '/' after directories. Includes dotfiles.

    Output is cut at 500 entries or 50KB, whichever comes first.
    """
    return await in_thread(partial(_ls, folder, path, max(limit, 1)), readers)


def _ls(folder: Folder, path: str, limit: int, _: Allowance) -> str:
    place = folder.locate(path)
    entries = sorted(folder.entries(place), key=lambda entry: (entry.name.lower(), entry.name))
    names = [_shown(folder, place, entry) for entry in entries[:limit]]
    cut = [f"{limit} entries limit reached. Use limit={limit * 2} for more"] if len(entries) > limit else []
    return listing(names, cut) if names else "(empty directory)"


def _shown(folder: Folder, place: Parts, entry: os.DirEntry[str]) -> str:
    name = printable(entry.name)
    if not entry.is_symlink():
        return f"{name}/" if entry.is_dir(follow_symlinks=False) else name
    try:
        return f"{name}/" if folder.is_dir(folder.locate("/".join((*place, entry.name)))) else name
    except ToolError:
        return f"{name} (a link that is not followed)"
