"""Text given on the command line: itself, `-` for stdin, or `@FILE`. `@@` begins a text with an @ of its own."""

from __future__ import annotations

import os
import stat
import sys

import click

MAX_JSON_BYTES = 32 * 2**20
"""Of a JSON document: sixteen tasks of the usual limit, and room."""


class Unreadable(click.ClickException):
    """The input cannot be taken; the message says why and what to do."""

    exit_code = 2


def text_of(value: str, *, limit: int) -> str:
    """The text an argument stands for; of stdin or a file at most so many bytes.

    Raises:
        Unreadable: it cannot be had, is too long, or is not text.
    """
    if value == "-":
        return _decoded(_stdin(limit), "stdin")
    if value.startswith("@@"):
        value = value[1:]
    elif value.startswith("@"):
        return _decoded(_file(value[1:], limit), value[1:])
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unreadable("The text is not valid UTF-8. Put it into a file and give it as @FILE.") from None
    return value


def file_text(path: str, *, limit: int) -> str:
    """The text of a file, or of stdin for `-`.

    Raises:
        Unreadable: the same.
    """
    return _decoded(_stdin(limit), "stdin") if path == "-" else _decoded(_file(path, limit), path)


def _stdin(limit: int) -> bytes:
    if sys.stdin is None:
        raise Unreadable("stdin is closed, so there is nothing to read for `-`.")
    if sys.stdin.isatty():
        print("Reading from the terminal; end with Ctrl-D.", file=sys.stderr)  # noqa: T201 - said before anything else
    try:
        content = sys.stdin.buffer.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"stdin cannot be read: {error.strerror}.") from error
    if len(content) > limit:
        raise _too_long("stdin", None, limit)
    return content


def _file(path: str, limit: int) -> bytes:
    if not path:
        raise Unreadable("@ must be followed by the name of a file; a text that begins with @ is written @@….")
    try:
        # Without O_NONBLOCK opening a FIFO would wait for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Unreadable(f"{path} cannot be read: {reason}. A text that begins with @ is written @@….") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Unreadable(f"{path} is {_kind(status.st_mode)}, not a file; what a pipe holds is given as `-`.")
    with os.fdopen(descriptor, "rb") as file:
        try:
            # One byte more than allowed: a file that grows while it is read is too long, not cut.
            content = file.read(limit + 1)
        except OSError as error:
            raise Unreadable(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > limit:
        raise _too_long(path, status.st_size, limit)
    return content


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _decoded(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name} is not valid UTF-8 (byte {error.start}). Convert it first.") from error
    if "\0" in text:
        raise Unreadable(f"{name} contains a NUL byte, so it is not text. Remove it, or name the file in the task.")
    return text.removesuffix("\n").removesuffix("\r")


def _too_long(name: str, size: int | None, limit: int) -> Unreadable:
    has = f"has {size} bytes" if size is not None else "is longer"
    return Unreadable(
        f"{name} {has}; the limit is {limit} bytes. Put long material into a file and name the file in the task."
    )
