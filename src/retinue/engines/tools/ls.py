"""The `ls` tool."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.call_budget import CallBudget, run_in_thread
from retinue.engines.tools.folder import RelativePath, SandboxedDirectory, escape_name
from retinue.engines.tools.results import format_listing


async def ls(
    folder: SandboxedDirectory,
    readers: CapacityLimiter,
    path: Annotated[str, Meta(description="Directory to list (default: current directory)")] = ".",
    limit: Annotated[int, Meta(description="Maximum number of entries to return (default: 500)")] = 500,
) -> str:
    """List directory contents, sorted alphabetically, with '/' after directories. Includes dotfiles.

    Output is cut at 500 entries or 50KB, whichever comes first.
    """
    return await run_in_thread(partial(_ls, folder, path, max(limit, 1)), readers)


def _ls(folder: SandboxedDirectory, path: str, limit: int, _: CallBudget) -> str:
    place = folder.resolve(path)
    entries = sorted(folder.list_entries(place), key=lambda entry: (entry.name.lower(), entry.name))
    names = [_format_entry(folder, place, entry) for entry in entries[:limit]]
    cut = [f"{limit} entries limit reached. Use limit={limit * 2} for more"] if len(entries) > limit else []
    return format_listing(names, cut) if names else "(empty directory)"


def _format_entry(folder: SandboxedDirectory, place: RelativePath, entry: os.DirEntry[str]) -> str:
    name = escape_name(entry.name)
    if not entry.is_symlink():
        return f"{name}/" if entry.is_dir(follow_symlinks=False) else name
    try:
        return f"{name}/" if folder.is_dir(folder.resolve("/".join((*place, entry.name)))) else name
    except ToolError:
        return f"{name} (a link that is not followed)"
