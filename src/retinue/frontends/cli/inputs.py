"""Text given on the command line: itself, `-` for stdin, or `@FILE`. `@@` begins a text with an @ of its own."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from retinue.frontends.cli.endings import Declined
from retinue.regular_files import NotRegular, TooLarge, read_regular
from retinue.types import Code, Failure

MAX_JSON_BYTES = 32 * 2**20
"""Of a JSON document: sixteen tasks of the usual limit, and room."""
OWN_SIGN = "A text that begins with an @ of its own is written @@…."


class Unreadable(Declined):
    """The input cannot be taken; the message says why and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure(Code.INVALID_INPUT, message))


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
        return _decoded(_file(value[1:], limit, unless=OWN_SIGN), value[1:])
    return as_typed(value)


def file_text(path: str, *, limit: int) -> str:
    """The text of a file, or of stdin for `-`.

    Raises:
        Unreadable: the same.
    """
    return _decoded(_stdin(limit), "stdin") if path == "-" else _decoded(_file(path, limit), path)


def decode_json(text: str) -> Any:
    """Return the value of a JSON document.

    Raises:
        msgspec.DecodeError: it is none, or one of its objects has a key twice: only one of the two would count.
        RecursionError: it is nested too deeply.
    """
    import json

    value = msgspec.json.decode(text)
    json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    return value


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise msgspec.DecodeError(f"it has the key {key!r} twice")
        keys.add(key)


def as_typed(value: str) -> str:
    """A word or text as it was typed: in UTF-8, whatever the locale made of its bytes.

    Raises:
        Unreadable: it is no text in either.
    """
    try:
        return os.fsencode(value).decode()
    except UnicodeError:
        pass
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unreadable("The text is not valid UTF-8. Put it into a file and give it as @FILE.") from None
    return value


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


def _file(path: str, limit: int, *, unless: str = "") -> bytes:
    """The bytes of a file; `unless` is what to say to someone who meant none."""
    if not path:
        raise Unreadable(f"The name of the file is missing. {unless}".rstrip())
    try:
        return read_regular(path, limit)
    except NotRegular as error:
        raise Unreadable(f"{path} is {error.kind}, not a file; what a pipe holds is given as `-`.") from error
    except TooLarge as error:
        raise _too_long(path, error.size_bytes, limit) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Unreadable(f"{path} cannot be read: {reason}. {unless}".rstrip()) from error


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
