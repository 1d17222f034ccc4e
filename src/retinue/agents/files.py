"""Reads small text files that others wrote: regular files only, bounded, never waiting, never led astray by links."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FILE_BYTES = 2 * 2**20
"""Of a definition; the longest prompts in use are a tenth of it."""

# Opening a FIFO must not wait for a writer, and Windows has neither flag.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class Broken(Exception):  # noqa: N818 - it names the state of the file
    """A file cannot be used: why, and in which line."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


def read_bytes(path: Path, *, beneath: Path | None = None, limit: int = FILE_BYTES) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Links are followed, as people link their own files into place; with `beneath` only as long as they stay below it.

    Raises:
        Broken: it is something else, too large, unreadable, or leads out of `beneath`.
    """
    try:
        real = _real_path(path, beneath)
        # Looked at before it is opened: opening a device can have effects of its own.
        _check(real.stat(), limit)
        descriptor = os.open(real, _FLAGS | (_NO_LINK if beneath else 0))
        try:
            # Looked at again through the handle: the name may mean something else by now.
            _check(os.fstat(descriptor), limit)
            return _read(descriptor, limit)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Broken(_reason(error)) from error
    except ValueError as error:
        raise Broken(f"has no usable name: {error}") from error


def decode(content: bytes) -> str:
    """The text of a file: UTF-8, with or without a byte order mark; every line ends with a line feed.

    Raises:
        Broken: another encoding, or NUL bytes.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Broken("is UTF-16; save it as UTF-8", 1)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise Broken(f"is not UTF-8 (byte 0x{byte:02x}); save it as UTF-8", line) from error
    if "\0" in text:
        raise Broken("contains a NUL byte; it is not a text file", text.count("\n", 0, text.index("\0")) + 1)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _real_path(path: Path, beneath: Path | None) -> Path:
    if beneath is None:
        return path
    real = path.resolve()
    if not real.is_relative_to(beneath):
        raise Broken(f"leads out of the repository, to {real}; it is not read")
    return real


def _check(status: os.stat_result, limit: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise Broken("is a directory, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise Broken("is not a regular file")
    if status.st_size > limit:
        raise Broken(f"is too large ({status.st_size} bytes; at most {limit})")


def _read(descriptor: int, limit: int) -> bytes:
    chunks, size = [], 0
    while chunk := os.read(descriptor, limit + 1 - size):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise Broken(f"is too large (over {limit} bytes)")
    return b"".join(chunks)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "is missing"
    if error.errno == errno.ELOOP:
        return "is a link that cannot be followed"
    return f"cannot be read: {error.strerror or error}"
