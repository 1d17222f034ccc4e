"""The `ls` tool."""

from __future__ import annotations

from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.base import (
    DirectoryEntry,
    RelativePath,
    SandboxedDirectory,
    escape_name,
    format_listing,
    run_in_thread,
)


async def ls(
    folder: SandboxedDirectory,
    readers: CapacityLimiter,
    path: Annotated[str, Meta(description="Directory to list (default: current directory)")] = ".",
    limit: Annotated[int, Meta(description="Maximum number of entries to return (default: 500)")] = 500,
) -> str:
    """List directory contents, sorted alphabetically, with '/' after directories. Includes dotfiles.

    Output is cut at 500 entries or 50KB, whichever comes first.
    """
    return await run_in_thread(lambda _: _list_directory(folder, path, max(limit, 1)), readers)


def _list_directory(folder: SandboxedDirectory, path: str, limit: int) -> str:
    place = folder.resolve(path)
    entries = sorted(folder.list_entries(place), key=lambda entry: (entry.name.lower(), entry.name))
    names = [_format_entry(folder, place, entry) for entry in entries[:limit]]
    cut = [f"{limit} entries limit reached. Use limit={limit * 2} for more"] if len(entries) > limit else []
    return format_listing(names, cut, empty="(empty directory)")


def _format_entry(folder: SandboxedDirectory, place: RelativePath, entry: DirectoryEntry) -> str:
    name = escape_name(entry.name)
    if entry.kind != "link":
        return f"{name}/" if entry.kind == "directory" else name
    try:
        return f"{name}/" if folder.is_dir(folder.resolve("/".join((*place, entry.name)))) else name
    except ToolError:
        return f"{name} (a link that is not followed)"
