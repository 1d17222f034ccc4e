"""Read files, or slices of them, into blocks of a prompt; a placeholder gives the reason why one cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from retinue.model.tasks import FileSlice
from retinue.support.safe_files import FileTooLargeError, read_regular_file, resolve_path

MAX_FILE_BYTES = 2**20
MAX_FILES = 64
MAX_TOTAL_BYTES = 8 * 2**20


def read_file_blocks(
    slices: Sequence[FileSlice], cwd: str | Path, *, roots: Sequence[str | Path] | None = None
) -> list[str]:
    """Return one block per slice, in order. Only files below `roots` are read; None: any this user can read."""
    blocks: list[str] = []
    total = 0
    for number, part in enumerate(slices):
        if number >= MAX_FILES:
            blocks.append(f"[file skipped: {part.path} (limit {MAX_FILES} files)]")
            continue
        block = _read_block(part, cwd, roots)
        size = len(block.encode())
        if total + size > MAX_TOTAL_BYTES:
            block = f"[file skipped: {part.path} (limit {MAX_TOTAL_BYTES // 2**20}MB in all)]"
        else:
            total += size
        blocks.append(block)
    return blocks


def _read_block(part: FileSlice, cwd: str | Path, roots: Sequence[str | Path] | None) -> str:
    path = Path(cwd, part.path)
    try:
        if roots is not None and not any(
            resolve_path(path).is_relative_to(resolve_path(Path(root))) for root in roots
        ):
            return f"[access denied: {part.path}]"
        content = read_regular_file(path, MAX_FILE_BYTES).decode()
    except FileNotFoundError:
        return f"[file not found: {part.path}]"
    except FileTooLargeError as large:
        return f"[file too large: {part.path} ({-(-large.size_bytes // 1024)}KB, limit {MAX_FILE_BYTES // 1024}KB)]"
    except (OSError, ValueError):
        return f"[could not read file: {part.path}]"
    return f"=== {part.path} ===\n{_slice_lines(content, part)}"


def _slice_lines(content: str, part: FileSlice) -> str:
    """Return the lines of the slice, or why there are none."""
    lines = content.removesuffix("\n").split("\n")
    if part.tail is not None:
        return "\n".join(lines[-part.tail :])
    if part.head is not None:
        return "\n".join(lines[: part.head])
    start, end = max(part.start or 1, 1), part.end
    if end is not None and end < start:
        return f"[no lines: end {end} is before start {start}]"
    if start > len(lines):
        return f"[no lines: start {start} is past the end of the file ({len(lines)} line{'s' * (len(lines) != 1)})]"
    return "\n".join(lines[start - 1 : end])
