"""Reads small text files that others wrote: regular files only, bounded, never waiting, never led astray by links."""

from __future__ import annotations

import errno
from pathlib import Path

from retinue.regular_files import NotRegular, TooLarge, read_regular, real_path

FILE_BYTES = 2 * 2**20
"""Of a definition; the longest prompts in use are a tenth of it."""
LOOP = "is a link that cannot be followed"
_NOT_FILES = {"a directory": "is a directory, not a file", "a link": LOOP}


class Broken(Exception):  # noqa: N818 - it names the state of the file
    """A file cannot be used: why, and in which line."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


def read_bytes(
    path: Path, *, beneath: Path | None = None, limit: int = FILE_BYTES, follow_link: bool = True
) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Links are followed, as people link their own files into place, unless it is said otherwise; with `beneath` only as
    long as they stay below it.

    Raises:
        Broken: it is something else, too large, unreadable, or leads out of `beneath`.
    """
    try:
        return read_regular(_real_path(path, beneath), limit, follow_link=follow_link and beneath is None)
    except NotRegular as error:
        raise Broken(_NOT_FILES.get(error.kind, "is not a regular file")) from error
    except TooLarge as error:
        raise Broken(f"is too large ({error.size_bytes} bytes; at most {limit})") from error
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
    real = real_path(path)
    if not real.is_relative_to(beneath):
        raise Broken(f"leads out of the repository, to {real}; it is not read")
    return real


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "is missing"
    if error.errno == errno.ELOOP:
        return LOOP
    return f"cannot be read: {error.strerror or error}"
