"""Measure, cut, pad and wrap text by the columns it takes on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

ELLIPSIS = "…"
# Latin letters and the signs of our own screens: one column each, and none of them joins its neighbor. Texts of these
# alone are measured without the library, so that most commands never import it.
_NARROW = re.compile(r"[ -~¡-¬®-˿‐-‧›←-⇿─-╿■○◌✓✗⠁-⣿]*")


def text_width(text: str) -> int:
    """Return the columns of a line, as a terminal draws it: an emoji of several code points takes two."""
    return len(text) if _NARROW.fullmatch(text) else sum(map(_cluster_width, _clusters(text)))


def fit_text(text: str, columns: int) -> str:
    """Return the text if it fits into the columns, else its start and an ellipsis."""
    if columns <= 0:
        return ""
    if text_width(text) <= columns:
        return text
    return _cut_to_width(text, columns - 1).rstrip() + ELLIPSIS


def pad_text(text: str, columns: int) -> str:
    """Return the text fitted into the columns and padded with blanks."""
    fitted = fit_text(text, columns)
    return fitted + " " * (columns - text_width(fitted))


def wrap_text(text: str, columns: int, lines: int) -> list[str]:
    """Break the text between words into at most so many lines; the last ends with an ellipsis if text is left."""
    wrapped: list[str] = []
    columns, rest = max(columns, 1), text.strip()
    while rest:
        piece = _cut_to_width(rest, columns)
        if len(wrapped) == lines - 1 or len(piece) == len(rest):
            wrapped.append(fit_text(rest, columns))
            break
        blank = piece.rfind(" ")
        if blank > 0 and not rest[len(piece)].isspace():
            piece = piece[:blank]
        wrapped.append(piece.rstrip())
        # A cluster wider than all columns is dropped.
        rest = rest[len(piece or next(_clusters(rest))) :].lstrip()
    return wrapped


def _cut_to_width(text: str, columns: int) -> str:
    """Return as many whole grapheme clusters from the start as fit into the columns."""
    columns = max(columns, 0)
    if _NARROW.fullmatch(text, 0, columns + 1):
        return text[:columns]
    length = 0
    for cluster in _clusters(text):
        columns -= _cluster_width(cluster)
        if columns < 0:
            break
        length += len(cluster)
    return text[:length]


def _clusters(text: str) -> Iterator[str]:
    from wcwidth import iter_graphemes

    return iter_graphemes(text)


@lru_cache(maxsize=4096)
def _cluster_width(cluster: str) -> int:
    from wcwidth import wcswidth

    return max(wcswidth(cluster), 0)
