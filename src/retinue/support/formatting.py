"""Format numbers, times, ids and spelling suggestions, the same in all interfaces.

Imports nothing heavy: the list of commands uses it, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable

SHORT_ID_LENGTH = 8
"""Digits of an id in messages."""
UNKNOWN_TIME = "-"
"""Shown instead of an impossible time."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", re.ASCII)
_UNIT_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def pluralize(number: int, one: str, many: str = "") -> str:
    """Return `1 file` or `12,000 files`; pass `many` if adding an s is not enough."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


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


def format_duration(seconds: float) -> str:
    """Return how long something took: `7.4s`, `42s`, `5m 30s`, `2h 05m`; the dashboard has the same forms."""
    if seconds < 9.95:  # noqa: PLR2004 - below ten seconds when rounded
        return f"{max(seconds, 0.0):.1f}s"
    return _format_whole_seconds(round(seconds))


def format_running_time(seconds: float, limit: float = 0.0) -> str:
    """Return the time of a run that is active, in whole seconds, with its limit if there is one: `3s / 15m`."""
    elapsed = _format_whole_seconds(int(max(seconds, 0.0)))
    return f"{elapsed} / {format_limit(limit)}" if limit else elapsed


def format_limit(seconds: float) -> str:
    """Return a limit as a round number where it is one: `15m`, not `15m 00s`."""
    text = _format_whole_seconds(round(seconds))
    return text.removesuffix(" 00s").removesuffix(" 00m")


def _format_whole_seconds(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    if not minutes:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {rest:02}s"


def format_count(number: int) -> str:
    """Return a number in at most four characters: `950`, `1.2k`, `34k`, `5.0M`."""
    for digits, unit in ((3, ""), (6, "k"), (9, "M"), (12, "G")):
        scaled = number / 10 ** (digits - 3)
        if scaled < 999.5 or unit == "G":  # noqa: PLR2004 - three digits when rounded
            break
    return f"{scaled:.1f}{unit}" if unit and scaled < 9.95 else f"{scaled:.0f}{unit}"  # noqa: PLR2004 - as above


def format_cost(dollars: float) -> str:
    """Return an amount of dollars: `$0.032`, `$1.25`."""
    if not dollars:
        return "$0"
    if dollars < 0.001:  # noqa: PLR2004 - three digits after the point
        return "<$0.001"
    return f"${dollars:.3f}" if dollars < 0.1 else f"${dollars:.2f}"  # noqa: PLR2004 - cents are enough from 10 on


def parse_duration(text: str) -> float | None:
    """Return the seconds of `90`, `90s`, `15m`, `2h`, `30d` or `4w`; None for any other text."""
    found = _DURATION.fullmatch(text.strip().lower())
    return float(found[1]) * _UNIT_SECONDS[found[2]] if found else None


def suggest_spelling(word: str, known: Iterable[str]) -> str:
    """Return a question that suggests a known word similar to an unknown one; empty if there is none."""
    near = find_similar_word(word, known)
    return f" Did you mean {near}?" if near else ""


def find_similar_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to an unknown one; None if none is."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1)), None)


MAX_NAMES_BESIDE_SUGGESTION = 15
"""Known names that a message lists although it has a suggestion."""


def unknown_name_message(what: str, word: str, known: Collection[str], title: str = "") -> str:
    """Return a message such as `Unknown agent: scuot. Did you mean scout? Agents: scout, coder`, with that title.

    A long list is left out where the suggestion is enough.
    """
    suggestion = suggest_spelling(word, known)
    if suggestion and len(known) > MAX_NAMES_BESIDE_SUGGESTION:
        return f"Unknown {what}: {word}.{suggestion}"
    return f"Unknown {what}: {word}.{suggestion} {title or f'{what.title()}s'}: {', '.join(known)}"
