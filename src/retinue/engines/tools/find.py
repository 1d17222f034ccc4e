"""The `find` tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.base import (
    CallBudget,
    RelativePath,
    SandboxedDirectory,
    format_listing,
    format_path,
    run_in_thread,
    unreadable_notices,
)
from retinue.engines.tools.file_search import list_files
from retinue.engines.tools.globs import compile_glob


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

    Respects .gitignore and does not follow links. Output is cut at 1000 results or 50KB, whichever comes first.
    """
    return await run_in_thread(lambda budget: _find_files(folder, pattern, path, max(limit, 1), budget), readers)


def _find_files(folder: SandboxedDirectory, pattern: str, path: str, limit: int, budget: CallBudget) -> str:
    glob = compile_glob(pattern, ignore_case=pattern == pattern.lower())
    start = folder.resolve(path)
    if not folder.is_dir(start):
        raise ToolError(f"Not a directory: {format_path(start)}. Use read to see a file.")
    unreadable: list[str] = []
    found: list[str] = []
    notices: list[str] = []
    for place, is_dir in _with_directories(list_files(folder, start, budget, unreadable), len(start)):
        if glob.fullmatch("/".join(place[len(start) :])):
            if len(found) == limit:
                notices.append(f"{limit} results limit reached. Use limit={limit * 2} for more, or refine pattern")
                break
            found.append(format_path(place) + ("/" if is_dir else ""))
    notices += [*budget.notices, *unreadable_notices(unreadable)]
    return format_listing(found, notices, empty="No files found matching pattern")


def _with_directories(files: Iterable[RelativePath], depth: int) -> Iterator[tuple[RelativePath, bool]]:
    """Yield each directory below the given depth before its first file, and whether it is a directory."""
    previous: RelativePath = ()
    for file in files:
        for end in range(depth + 1, len(file)):
            if previous[:end] != file[:end]:
                yield file[:end], True
        yield file, False
        previous = file
