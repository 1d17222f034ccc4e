"""How a list of results is told: the lines, then what is missing and how to get it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retinue.output.truncate import truncate_to_limits

_MAX_NAMED = 3
"""Directories named among those that could not be read; the others are counted."""


def format_listing(lines: Sequence[str], notices: Iterable[str]) -> str:
    """The lines that fit, with notices."""
    part = truncate_to_limits("\n".join(lines))
    notes = list(notices)
    if part.truncated_by:
        notes.append(f"Only {part.shown_lines} of {part.total_lines} lines are shown")
    return append_notices(part.text, notes)


def append_notices(text: str, notices: Iterable[str]) -> str:
    """A result with what there is to know about it in one bracket beneath."""
    notes = ". ".join(notices)
    return "\n\n".join(filter(None, (text, notes and f"[{notes}.]")))


def unreadable_notices(places: Sequence[str]) -> list[str]:
    """The notice about places that could not be read; nothing if there are none."""
    if not places:
        return []
    more = f" and {len(places) - _MAX_NAMED} more" if len(places) > _MAX_NAMED else ""
    return [f"Could not read {', '.join(places[:_MAX_NAMED])}{more}"]
