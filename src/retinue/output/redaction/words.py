"""Find quickly which tokens a text may have: every token has a long word, and ordinary text has few.

One pass marks the characters of words, and one search per long word finds the prefixes in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from retinue.output.redaction.secret_pattern import SecretPattern
from retinue.support.cache import compile_pattern

MIN_WORD = 19
"""Every token has a run of so many letters, digits, `_` and `-`, its prefix included."""
MAX_BEFORE = 12
"""Characters right before a long word that may belong to its token, such as `dp.audit.`."""
_SIGNS_BEFORE = ".:/\\%~"
"""Characters that may end a prefix, or start an escape."""

_LONG_WORD, _END = b"x" * MIN_WORD, b" "
_CLASSES = bytes(
    ord(b"x" if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "_-") else _END) for code in range(256)
)
_MAX_ESCAPE = 6
_ESCAPE = r"(?:\\(?:[nrtbf]|u[0-9a-f]{4})|%[0-9a-f]{2})"
"""An escape, whose last letter or digit does not belong to the token behind it; see `tokens.BOUNDARIES`."""


class TokenSearch:
    """Finds the rows of the table whose prefix or shape a text has."""

    def __init__(self, rows: Sequence[SecretPattern]) -> None:
        prefixed = [(number, row) for number, row in enumerate(rows) if row.prefix and not row.shape]
        bounded = _group_by_stem((row.prefix, number) for number, row in prefixed if row.is_bounded)
        free = _group_by_stem((row.prefix, number) for number, row in prefixed if not row.is_bounded)
        shaped = [(number, row) for number, row in enumerate(rows) if row.shape]
        self._stems = {**bounded, **free}
        self._shaped = [number for number, _ in shaped]
        # Two searches cost less than one: the first fails fast within words, the second skips to few characters.
        self._find_bounded = re.compile(f"(?<![a-z0-9]){_make_trie(bounded)}").finditer
        self._escaped = f"{_ESCAPE}({_make_trie(bounded)})"
        self._find_other = re.compile("|".join([*map(re.escape, free), *(row.shape for _, row in shaped)])).finditer
        self._plain = tuple({stem for stem in bounded if stem.isalnum()} | {row.prefix for _, row in shaped} - {""})
        """The only prefixes a word without signs may have, at its start."""

    def find_rows(self, text: str, folded: str) -> set[int]:
        """Return the rows that a text may match."""
        found: set[int] = set()
        if len(text) < MIN_WORD:
            return found
        classes = text.encode("ascii", "replace").translate(_CLASSES)
        start = classes.find(_LONG_WORD)
        while start >= 0:
            end = classes.find(_END, start)
            if end < 0:
                end = len(classes)
            if (
                (start and folded[start - 1] in _SIGNS_BEFORE)
                or folded.startswith(self._plain, start)
                or "_" in (word := folded[start:end])
                or "-" in word
            ):
                self._add_rows(folded, max(0, start - MAX_BEFORE), end + 1, found)
            start = classes.find(_LONG_WORD, end)
        return found

    def _add_rows(self, folded: str, start: int, end: int, found: set[int]) -> None:
        for match in self._find_bounded(folded, start, end):
            found.update(self._stems[match[0]])
        first = max(0, start - _MAX_ESCAPE)
        if folded.find("\\", first, end) >= 0 or folded.find("%", first, end) >= 0:
            for match in compile_pattern(self._escaped).finditer(folded, first, end):
                found.update(self._stems[match[1]])
        for match in self._find_other(folded, start, end):
            found.update(self._stems.get(match[0], self._shaped))


def _group_by_stem(prefixes: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Return the rows by the shortest prefix of any row that theirs begins with."""
    groups: dict[str, tuple[int, ...]] = {}
    stem = ""
    for prefix, number in sorted(prefixes):
        stem = stem if stem and prefix.startswith(stem) else prefix
        groups[stem] = (*groups.get(stem, ()), number)
    return groups


def _make_trie(words: Iterable[str]) -> str:
    """Return a pattern that matches any of the words, none of which begins with another."""
    tails = dict.fromkeys(words, "")
    for length in range(max(map(len, tails), default=0), 0, -1):
        branches: dict[str, list[str]] = {}
        for word in sorted(word for word in tails if len(word) == length):
            branches.setdefault(word[:-1], []).append(re.escape(word[-1]) + tails.pop(word))
        tails |= {
            start: "|".join(ends) if len(ends) == 1 else f"(?:{'|'.join(ends)})" for start, ends in branches.items()
        }
    return tails.get("", "")
