"""The `find` and `ls` tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.base import (
    CallBudget,
    DirectoryEntry,
    RelativePath,
    SandboxedDirectory,
    escape_name,
    format_listing,
    format_path,
    run_in_thread,
    unreadable_notices,
)
from retinue.engines.tools.file_search import compile_glob, list_files


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
        return f"{name} (a link; not followed)"
