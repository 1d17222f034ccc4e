"""Files in a prompt: slices read from disk into blocks, or a placeholder that says why not."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from retinue.types import FileSlice

MAX_FILE_BYTES = 2**20
MAX_FILES = 64
MAX_TOTAL_BYTES = 8 * 2**20


def file_blocks(slices: Sequence[FileSlice], cwd: Path, *, roots: Sequence[Path] | None = None) -> list[str]:
    """One block per slice, in order. `roots` bounds what may be read; None: whatever this user can read."""
    blocks: list[str] = []
    total = 0
    for number, part in enumerate(slices):
        if number >= MAX_FILES:
            blocks.append(f"[file skipped: {part.path} (limit {MAX_FILES} files)]")
            continue
        block = _block(part, cwd, roots)
        if total + len(block) > MAX_TOTAL_BYTES:
            block = f"[file skipped: {part.path} (limit {MAX_TOTAL_BYTES // 2**20}MB in all)]"
        total += len(block)
        blocks.append(block)
    return blocks


def _block(part: FileSlice, cwd: Path, roots: Sequence[Path] | None) -> str:
    path = cwd / part.path
    if roots is not None and not any(path.resolve().is_relative_to(root.resolve()) for root in roots):
        return f"[access denied: {part.path}]"
    try:
        content = _read(path)
    except FileNotFoundError:
        return f"[file not found: {part.path}]"
    except _TooLarge as large:
        return f"[file too large: {part.path} ({large.size // 1024}KB, limit {MAX_FILE_BYTES // 1024}KB)]"
    except (OSError, ValueError):
        return f"[could not read file: {part.path}]"
    return f"=== {part.path} ===\n{_slice(content, part)}"


class _TooLarge(Exception):  # noqa: N818 - it says what is wrong with the file
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def _read(path: Path) -> str:
    # Without O_NONBLOCK opening a FIFO would wait for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        # One byte more than allowed: a file that grows while it is read is too large, not cut.
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise _TooLarge(max(status.st_size, len(content)))
    return content.decode("utf-8")


def _slice(content: str, part: FileSlice) -> str:
    lines = content.removesuffix("\n").split("\n")
    if part.tail is not None:
        lines = lines[-part.tail :]
    elif part.head is not None:
        lines = lines[: part.head]
    elif part.start is not None or part.end is not None:
        lines = lines[max((part.start or 1) - 1, 0) : part.end]
    return "\n".join(lines)
