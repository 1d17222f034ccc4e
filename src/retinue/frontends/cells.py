"""How wide text is on a screen, and how it is made to fit."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

CUT = "…"
_WIDE = frozenset("WF")
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})


def width(text: str) -> int:
    """The columns a line takes: two for a wide character, none for a combining one."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def fit(text: str, columns: int) -> str:
    """The text if it fits into so many columns; else its beginning, and a sign that it goes on."""
    if columns <= 0:
        return ""
    if width(text) <= columns:
        return text
    return _beginning(text, columns - 1).rstrip() + CUT


def pad(text: str, columns: int) -> str:
    """The text, fitted, and filled up with blanks."""
    fitted = fit(text, columns)
    return fitted + " " * (columns - width(fitted))


def wrap(text: str, columns: int, lines: int) -> list[str]:
    """The text in at most so many lines, broken between words; the last says if there would be more."""
    columns = max(columns, 1)
    found: list[str] = []
    rest = text.strip()
    while rest:
        piece = _beginning(rest, columns)
        if len(found) == lines - 1 or len(piece) == len(rest):
            found.append(fit(rest, columns))
            break
        blank = piece.rfind(" ")
        if blank > 0 and not rest[len(piece)].isspace():
            piece = piece[:blank]
        found.append(piece.rstrip())
        rest = rest[max(len(piece), 1) :].lstrip()
    return found


def _beginning(text: str, columns: int) -> str:
    head = text[: max(columns, 0)]
    if head.isascii() and (len(head) == len(text) or text[len(head)].isascii()):
        return head  # one column for each character, and no combining one behind them
    left = columns
    for index, character in enumerate(text):
        left -= _cell(character)
        if left < 0:
            return text[:index]
    return text


@lru_cache(maxsize=4096)
def _cell(character: str) -> int:
    if unicodedata.category(character) in _NO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1
