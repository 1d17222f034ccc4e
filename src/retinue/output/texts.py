"""Texts wherever they stand: made valid, changed within values, told in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from retinue.output.patterns import compiled

DEEPEST = 200
"""Levels of nested values; what lies deeper is left out."""
TOO_DEEP = "[TOO_DEEP]"

_ESCAPES = r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
"""Both halves of a character, one of them, or any other escape."""


def mended(text: str) -> str:
    """The text with U+FFFD for every half of a character (a lone surrogate): any encoding of Unicode can carry it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return compiled(r"[\ud800-\udfff]").sub("\ufffd", text)
    return text


def whole_escapes(text: str) -> str:
    """A JSON text with U+FFFD for every escape of half a character.

    Programs in JavaScript write such where they cut an emoji in two, and parsers elsewhere refuse all of the text.
    """
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return compiled(_ESCAPES).sub(lambda found: r"\ufffd" if found[1] else found[0], text)


def changed_texts(value: Any, change: Callable[[str], str], *, deepest: int = DEEPEST) -> Any:
    """The JSON-like value with every text in it changed, names included; tuples become lists."""
    match value:
        case str():
            return change(value)
        case dict() | list() | tuple() if deepest <= 0:
            return TOO_DEEP
        case dict():
            return {
                changed_texts(name, change): changed_texts(member, change, deepest=deepest - 1)
                for name, member in value.items()
            }
        case list() | tuple():
            return [changed_texts(member, change, deepest=deepest - 1) for member in value]
        case _:
            return value


def first_line(text: str) -> str:
    """The first line that is not blank, without the blanks around it."""
    return text.strip().split("\n", 1)[0].rstrip()
