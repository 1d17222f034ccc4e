"""The tools on files and directories: `read`, `write`, `edit`, `find` and `ls`."""

from __future__ import annotations

import difflib
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.toolbox import ToolError, ToolOutcome
from retinue.engines.tools.base import (
    MAX_FILE_BYTES,
    CallBudget,
    DirectoryEntry,
    RelativePath,
    SandboxedDirectory,
    append_notices,
    escape_name,
    format_listing,
    format_path,
    run_in_thread,
    unreadable_notices,
)
from retinue.engines.tools.file_search import compile_glob, list_files
from retinue.model.runs import ImageBlock
from retinue.output.truncate import TruncatedLines, format_size, truncate_to_limits

MAX_DIFF_LINES = 200
"""Lines of a diff in a result; a longer diff is cut."""
MAX_IMAGE_BYTES = 3_750_000
"""Bytes of an image that is shown: 5 MB as base64, the smallest limit of the providers."""
IMAGE_TYPES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)
"""Beginnings of image files that models take."""


async def read(
    folder: SandboxedDirectory,
    readers: CapacityLimiter,
    path: Annotated[str, Meta(description="Path to the file to read (relative or absolute)")],
    offset: Annotated[int | None, Meta(description="Line number to start reading from (1-indexed)")] = None,
    limit: Annotated[int | None, Meta(description="Maximum number of lines to read")] = None,
) -> ToolOutcome:
    """Read the contents of a text file, or show an image (PNG, JPEG, GIF, WebP).

    Text is cut at 2000 lines or 50KB, whichever comes first. Use offset and limit for large files, and go on with
    offset until complete.
    """
    return await run_in_thread(lambda _: _read_file(folder, path, max(offset or 1, 1), limit), readers)


def _read_file(folder: SandboxedDirectory, path: str, first: int, limit: int | None) -> ToolOutcome:
    place = folder.resolve(path)
    # Before it is read: a change in between must count as one.
    folder.mark_seen(place)
    content = folder.read(place)
    if content.is_binary and (image := _read_image(folder, place)):
        return image
    total = len(content.lines)
    if first > max(total, 1):
        raise ToolError(f"Offset {first} is beyond end of file ({total} lines total)")
    wanted = content.lines[first - 1 :] if limit is None else content.lines[first - 1 : first - 1 + max(limit, 1)]
    part = truncate_to_limits("\n".join(wanted))
    notices = _continuation_notices(part, first, total) if wanted else []
    return ToolOutcome(append_notices(part.text, [*content.notes, *notices]))


def _read_image(folder: SandboxedDirectory, place: RelativePath) -> ToolOutcome | None:
    """Return an image with a text that stands for it in the record; None if the file is none."""
    from base64 import b64encode

    data, size = folder.read_bytes(place, MAX_IMAGE_BYTES)
    kind = next((kind for pattern, kind in IMAGE_TYPES if pattern.match(data)), None)
    if kind is None:
        return None
    name = f"[Image {format_path(place)}: {kind}, {format_size(size)}"
    if size > len(data):
        return ToolOutcome(f"{name}; images over {format_size(MAX_IMAGE_BYTES)} are not shown.]")
    return ToolOutcome(f"{name}.]", images=(ImageBlock(kind, b64encode(data).decode()),))


def _continuation_notices(part: TruncatedLines, first: int, total: int) -> list[str]:
    """Describe what was left out and which offset continues."""
    last = first + part.shown_lines - 1
    onward = f". Use offset={last + 1} to continue" if last < total else ""
    if part.truncated_by == "line":
        shown = format_size(len(part.text.encode()))
        return [f"Line {first} is too long: its first {shown} are shown{onward}"]
    if part.truncated_by:
        return [f"Showing lines {first}-{last} of {total}{onward}"]
    return [f"{total - last} more lines in file{onward}"] if last < total else []


async def write(
    folder: SandboxedDirectory,
    readers: CapacityLimiter,
    path: Annotated[str, Meta(description="Path to the file to write (relative or absolute)")],
    content: Annotated[str, Meta(description="The whole new content of the file")],
) -> str:
    """Create a file with its directories, or replace the whole content of one that exists."""
    return await run_in_thread(lambda _: _write_file(folder, path, content), readers)


async def edit(
    folder: SandboxedDirectory,
    readers: CapacityLimiter,
    path: Annotated[str, Meta(description="Path to the file to edit (relative or absolute)")],
    old_text: Annotated[str, Meta(description="Exact text to replace; it must occur exactly once")],
    new_text: Annotated[str, Meta(description="The text to put in its place")],
) -> str:
    """Replace one exact piece of text in a file. The result shows the change as a diff."""

    def replace_text(_: CallBudget) -> str:
        with folder.changing:
            return _edit_file(folder, path, old_text, new_text)

    return await run_in_thread(replace_text, readers)


def _write_file(folder: SandboxedDirectory, path: str, content: str) -> str:
    place, data = folder.resolve(path), content.encode(errors="surrogateescape")
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"The content has {format_size(len(data))}; the limit is {format_size(MAX_FILE_BYTES)}.")
    with folder.changing:
        folder.write_bytes(place, data, create=True)
    return f"Wrote {format_size(len(data))} to {format_path(place)}."


def _edit_file(folder: SandboxedDirectory, path: str, old_text: str, new_text: str) -> str:
    place = folder.resolve(path)
    before, data = _read_whole(folder, place)
    if not old_text:
        raise ToolError("oldText is empty. Give the exact text to replace.")
    # Models write line feeds; a file with CRLF keeps its own line ends.
    newline = "\r\n" if "\r\n" in before and "\n" not in before.replace("\r\n", "") else "\n"
    old, new = (text.replace("\r\n", "\n").replace("\n", newline) for text in (old_text, new_text))
    count = before.count(old)
    if count != 1:
        found = "was not found" if count == 0 else f"occurs {count} times"
        raise ToolError(
            f"oldText {found} in {format_path(place)}; it must occur exactly once, including white space. Read the "
            "file and include more context."
        )
    if not new.isascii() and any("\udc80" <= character <= "\udcff" for character in before):
        raise ToolError(f"{format_path(place)} is not UTF-8: newText must be ASCII, or it would mix encodings.")
    after = before.replace(old, new)
    if after == before:
        raise ToolError("oldText and newText are equal: nothing was changed.")
    bom = BOM_UTF8 if data.startswith(BOM_UTF8) else b""
    folder.write_bytes(place, bom + after.encode("utf-8", "surrogateescape"), create=False)
    return _render_diff(place, before, after)


def _read_whole(folder: SandboxedDirectory, place: RelativePath) -> tuple[str, bytes]:
    """Return the text of a file, with bytes that are not UTF-8 kept, and its bytes."""
    data, size = folder.read_bytes(place, MAX_FILE_BYTES, to_edit=True)
    if size > len(data):
        raise ToolError(f"{format_path(place)} has {format_size(size)}; files of this size cannot be edited.")
    if b"\0" in data:
        raise ToolError(f"{format_path(place)} is a binary file and cannot be edited.")
    return data.removeprefix(BOM_UTF8).decode("utf-8", "surrogateescape"), data


def _render_diff(place: RelativePath, before: str, after: str) -> str:
    name = format_path(place)
    old, new = (text.replace("\r\n", "\n").split("\n") for text in (before, after))
    diff = [*difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="")]
    cut = [f"… {len(diff) - MAX_DIFF_LINES} more lines"] if len(diff) > MAX_DIFF_LINES else []
    text = "\n".join([*diff[:MAX_DIFF_LINES], *cut])
    return text.encode("utf-8", "replace").decode()


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
