"""The `read` tool."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from anyio import CapacityLimiter
from msgspec import Meta

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.call_budget import CallBudget, run_in_thread
from retinue.engines.tools.content import read_content
from retinue.engines.tools.folder import SandboxedDirectory
from retinue.engines.tools.results import append_notices
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
    return await run_in_thread(partial(_read, folder, path, max(offset or 1, 1), limit), readers)


def _read(folder: SandboxedDirectory, path: str, first: int, limit: int | None, _: CallBudget) -> str:
    found = read_content(folder, folder.resolve(path))
    lines = found.lines()
    if first > max(len(lines), 1):
        raise ToolError(f"Offset {first} is beyond end of file ({len(lines)} lines total)")
    wanted = lines[first - 1 :] if limit is None else lines[first - 1 : first - 1 + max(limit, 1)]
    part = truncate_to_limits("\n".join(wanted))
    notices = [*found.notes, *_continuation_notices(part, first, len(lines), len(wanted))]
    return append_notices(part.text, notices)


def _continuation_notices(part: TruncatedLines, first: int, total: int, wanted: int) -> list[str]:
    """What the model must know to read on."""
    if wanted == 0:
        return []
    last = first + part.shown_lines - 1
    onward = f". Use offset={last + 1} to continue" if last < total else ""
    if part.truncated_by == "line":
        shown = format_size(len(part.text.encode()))
        return [f"Line {first} is too long: its first {shown} are shown{onward}"]
    if part.truncated_by:
        return [f"Showing lines {first}-{last} of {total}{onward}"]
    return [f"{total - last} more lines in file{onward}"] if last < total else []
