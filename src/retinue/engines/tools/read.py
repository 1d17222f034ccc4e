"""The `read` tool."""

from __future__ import annotations

from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.base import SandboxedDirectory, append_notices, run_in_thread
from retinue.output.truncate import TruncatedLines, format_size, truncate_to_limits


async def read(
    folder: SandboxedDirectory,
    readers: CapacityLimiter,
    path: Annotated[str, Meta(description="Path to the file to read (relative or absolute)")],
    offset: Annotated[int | None, Meta(description="Line number to start reading from (1-indexed)")] = None,
    limit: Annotated[int | None, Meta(description="Maximum number of lines to read")] = None,
) -> str:
    """Read the contents of a text file. Output is cut at 2000 lines or 50KB, whichever comes first.

    Use offset and limit for large files, and go on with offset until complete.
    """
    return await run_in_thread(lambda _: _read_lines(folder, path, max(offset or 1, 1), limit), readers)


def _read_lines(folder: SandboxedDirectory, path: str, first: int, limit: int | None) -> str:
    place = folder.resolve(path)
    # Before it is read: a change in between must count as one.
    folder.mark_seen(place)
    content = folder.read(place)
    total = len(content.lines)
    if first > max(total, 1):
        raise ToolError(f"Offset {first} is beyond end of file ({total} lines total)")
    wanted = content.lines[first - 1 :] if limit is None else content.lines[first - 1 : first - 1 + max(limit, 1)]
    part = truncate_to_limits("\n".join(wanted))
    notices = _continuation_notices(part, first, total) if wanted else []
    return append_notices(part.text, [*content.notes, *notices])


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
