"""Format numbers, times, ids and spelling suggestions, the same in all interfaces.

Imports nothing heavy: the list of commands uses it, too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

SHORT_ID_LENGTH = 8
"""Digits of an id in messages."""
UNKNOWN_TIME = "-"
"""Shown instead of an impossible time."""


def pluralize(number: int, one: str, many: str = "") -> str:
    """Return `1 file` or `2 files`; pass `many` if adding an s is not enough."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def normalize_id(name: str) -> str:
    """Return the stored form of an id of a run or a session, from any form it was shown in."""
    return name.strip().replace("-", "").lower()


def format_time(when: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a wall-clock time; a dash for an impossible one."""
    if when <= 0:
        return UNKNOWN_TIME
    try:
        return time.strftime(form, time.localtime(when))
    except (OverflowError, ValueError, OSError):
        return UNKNOWN_TIME


def suggest_spelling(word: str, known: Iterable[str]) -> str:
    """Return a question that suggests a known word similar to an unknown one; empty if there is none."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def unknown_name_message(what: str, word: str, known: Collection[str], title: str = "") -> str:
    """Return a message such as `Unknown agent: scuot. Did you mean scout? Agents: scout, coder`, with that title."""
    return f"Unknown {what}: {word}.{suggest_spelling(word, known)} {title or f'{what.title()}s'}: {', '.join(known)}"
