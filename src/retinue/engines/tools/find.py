"""The `find` tool."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.call_budget import CallBudget, run_in_thread
from retinue.engines.tools.folder import SandboxedDirectory, format_path
from retinue.engines.tools.globs import InvalidGlobError, compile_glob
from retinue.engines.tools.results import append_notices, format_listing, unreadable_notices
from retinue.engines.tools.walk import DirectoryWalk, WalkEntry


async def find(
    folder: SandboxedDirectory,
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
    return await run_in_thread(partial(_find, folder, pattern, path, max(limit, 1)), readers)


def compile_glob_or_fail(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """The glob as an expression, or a ToolError that says why it is none."""
    try:
        return compile_glob(pattern, ignore_case=ignore_case)
    except InvalidGlobError as error:
        raise ToolError(f"Invalid glob {pattern!r}: {error}.") from error


def _find(folder: SandboxedDirectory, pattern: str, path: str, limit: int, budget: CallBudget) -> str:
    glob = compile_glob_or_fail(pattern, ignore_case=pattern == pattern.lower())
    start = folder.resolve(path)
    if not folder.is_dir(start):
        raise ToolError(f"Not a directory: {format_path(start)}. Use read to see a file.")
    walk = DirectoryWalk(folder, budget)
    found: list[str] = []
    notices: list[str] = []
    for entry in walk.iter_entries(start):
        if glob.fullmatch("/".join(entry.place[len(start) :])):
            if len(found) == limit:
                notices.append(f"{limit} results limit reached. Use limit={limit * 2} for more, or refine pattern")
                break
            found.append(_format_entry(entry))
    notices += [*filter(None, [budget.notice]), *unreadable_notices(walk.unreadable)]
    return format_listing(found, notices) if found else append_notices("No files found matching pattern", notices)


def _format_entry(entry: WalkEntry) -> str:
    return format_path(entry.place) + ("/" if entry.is_dir else "")
