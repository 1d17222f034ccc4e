"""How numbers, times, ids and guesses are said, the same in every way in.

Imports nothing heavy: the list of commands needs its words, too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

SHORT_ID_LENGTH = 8
"""Digits of an id, as it is said."""
UNKNOWN_TIME = "-"
"""In the place of a time nobody can believe."""


def pluralize(number: int, one: str, many: str = "") -> str:
    """`1 file`, `2 files`; `many` where an s is not enough."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def normalize_id(name: str) -> str:
    """The id of a run or a session, in any form it was shown in, as it is stored."""
    return name.strip().replace("-", "").lower()


def format_time(when: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time of the wall clock; a dash for one that nobody can believe."""
    if when <= 0:
        return UNKNOWN_TIME
    try:
        return time.strftime(form, time.localtime(when))
    except (OverflowError, ValueError, OSError):
        return UNKNOWN_TIME


def suggest_spelling(word: str, known: Iterable[str]) -> str:
    """A question to append to a sentence about a word nobody knows; empty if none is like it."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def unknown_name_message(what: str, word: str, known: Collection[str], title: str = "") -> str:
    """`Unknown surface: singel. Did you mean single? Surfaces: single, sticky`; `title` says what those known are."""
    return f"Unknown {what}: {word}.{suggest_spelling(word, known)} {title or f'{what.title()}s'}: {', '.join(known)}"
