"""The `read` tool."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.bounds import Head, head
from retinue.engines.toolbox import ToolError
from retinue.engines.tools.allowance import Allowance, in_thread
from retinue.engines.tools.content import content
from retinue.engines.tools.folder import Folder
from retinue.engines.tools.results import noted
from retinue.output.truncate import human_size


async def read(
    folder: Folder,
    readers: CapacityLimiter,
    path: Annotated[str, Meta(description="Path to the file to read (relative or absolute)")],
    offset: Annotated[int | None, Meta(description="Line number to start reading from (1-indexed)")] = None,
    limit: Annotated[int | None, Meta(description="Maximum number of lines to read")] = None,
) -> str:
    """Read the contents of a text file. Output is cut at 2000 lines or 50KB, whichever comes first.

    Use offset and limit for large files, and go on with offset until complete.
    """
    return await in_thread(partial(_read, folder, path, max(offset or 1, 1), limit), readers)


def _read(folder: Folder, path: str, first: int, limit: int | None, _: Allowance) -> str:
    found = content(folder, folder.locate(path))
    lines = found.lines()
    if first > max(len(lines), 1):
        raise ToolError(f"Offset {first} is beyond end of file ({len(lines)} lines total)")
    wanted = lines[first - 1 :] if limit is None else lines[first - 1 : first - 1 + max(limit, 1)]
    part = head("\n".join(wanted))
    notices = [*found.notes, *_rest(part, first, len(lines), len(wanted))]
    return noted(part.text, notices)


def _rest(part: Head, first: int, total: int, wanted: int) -> list[str]:
    """What the model must know to read on."""
    if wanted == 0:
        return []
    last = first + part.shown - 1
    onward = f". Use offset={last + 1} to continue" if last < total else ""
    if part.cut_by == "line":
        shown = human_size(len(part.text.encode()))
        return [f"Line {first} is too long: its first {shown} are shown{onward}"]
    if part.cut_by:
        return [f"Showing lines {first}-{last} of {total}{onward}"]
    return [f"{total - last} more lines in file{onward}"] if last < total else []
