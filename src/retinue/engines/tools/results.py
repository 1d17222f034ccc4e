"""How a list of results is told: the lines, then what is missing and how to get it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retinue.engines.bounds import head

_NAMED = 3
"""Directories named among those that could not be read; the others are counted."""


def listing(lines: Sequence[str], notices: Iterable[str]) -> str:
    """The lines that fit, with notices."""
    part = head("\n".join(lines))
    said = list(notices)
    if part.cut_by:
        said.append(f"Only {part.shown} of {part.total} lines are shown")
    return noted(part.text, said)


def noted(text: str, notices: Iterable[str]) -> str:
    """A result with what there is to know about it in one bracket beneath."""
    said = ". ".join(notices)
    return "\n\n".join(filter(None, (text, said and f"[{said}.]")))


def unreadable(places: Sequence[str]) -> list[str]:
    """The notice about places that could not be read; nothing if there are none."""
    if not places:
        return []
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return [f"Could not read {', '.join(places[:_NAMED])}{more}"]
