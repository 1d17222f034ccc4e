"""The `find` tool."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.allowance import Allowance, in_thread
from retinue.engines.tools.folder import Folder, shown
from retinue.engines.tools.globs import BadGlob, compile_glob
from retinue.engines.tools.results import listing, noted, unreadable
from retinue.engines.tools.walk import Entry, Walk


async def find(
    folder: Folder,
    readers: CapacityLimiter,
    pattern: Annotated[
        str, Meta(description="Glob pattern to match files, e.g. '*.ts', '**/*.json', or 'src/**/*.spec.ts'")
    ],
    path: Annotated[str, Meta(description="Directory to search in (default: current directory)")] = ".",
    limit: Annotated[int, Meta(description="Maximum number of results (default: 1000)")] = 1000,
) -> str:
    """Search for files by glob pattern. Returns paths from the working directory, '/' after directories.

    Respects .gitignore. Output is cut at 1000 results or 50KB, whichever comes first.
    """
    return await in_thread(partial(_find, folder, pattern, path, max(limit, 1)), readers)


def usable_glob(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """The glob as an expression, or a ToolError that says why it is none."""
    try:
        return compile_glob(pattern, ignore_case=ignore_case)
    except BadGlob as error:
        raise ToolError(f"Invalid glob {pattern!r}: {error}.") from error


def _find(folder: Folder, pattern: str, path: str, limit: int, allowance: Allowance) -> str:
    glob = usable_glob(pattern, ignore_case=pattern == pattern.lower())
    start = folder.locate(path)
    if not folder.is_dir(start):
        raise ToolError(f"Not a directory: {shown(start)}. Use read to see a file.")
    walk = Walk(folder, allowance)
    found: list[str] = []
    notices: list[str] = []
    for entry in walk.below(start):
        if glob.fullmatch("/".join(entry.place[len(start) :])):
            if len(found) == limit:
                notices.append(f"{limit} results limit reached. Use limit={limit * 2} for more, or refine pattern")
                break
            found.append(_shown(entry))
    notices += [*filter(None, [allowance.notice]), *unreadable(walk.unread)]
    return listing(found, notices) if found else noted("No files found matching pattern", notices)


def _shown(entry: Entry) -> str:
    return shown(entry.place) + ("/" if entry.is_dir else "")
