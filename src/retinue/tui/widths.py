"""How wide text is on a screen, and how it is made to fit."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

ELLIPSIS = "…"
_WIDE = frozenset("WF")
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})


def text_width(text: str) -> int:
    """The columns a line takes: two for a wide character, none for a combining one."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def fit_text(text: str, columns: int) -> str:
    """The text if it fits into so many columns; else its beginning, and a sign that it goes on."""
    if columns <= 0:
        return ""
    if text_width(text) <= columns:
        return text
    return _cut_to_width(text, columns - 1).rstrip() + ELLIPSIS


def pad_text(text: str, columns: int) -> str:
    """The text, fitted, and filled up with blanks."""
    fitted = fit_text(text, columns)
    return fitted + " " * (columns - text_width(fitted))


def wrap_text(text: str, columns: int, lines: int) -> list[str]:
    """The text in at most so many lines, broken between words; the last says if there would be more."""
    columns = max(columns, 1)
    found: list[str] = []
    rest = text.strip()
    while rest:
        piece = _cut_to_width(rest, columns)
        if len(found) == lines - 1 or len(piece) == len(rest):
            found.append(fit_text(rest, columns))
            break
        blank = piece.rfind(" ")
        if blank > 0 and not rest[len(piece)].isspace():
            piece = piece[:blank]
        found.append(piece.rstrip())
        rest = rest[max(len(piece), 1) :].lstrip()
    return found


def _cut_to_width(text: str, columns: int) -> str:
    head = text[: max(columns, 0)]
    if head.isascii() and (len(head) == len(text) or text[len(head)].isascii()):
        return head  # one column for each character, and no combining one behind them
    left = columns
    for index, character in enumerate(text):
        left -= _character_width(character)
        if left < 0:
            return text[:index]
    return text


@lru_cache(maxsize=4096)
def _character_width(character: str) -> int:
    if unicodedata.category(character) in _NO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1
