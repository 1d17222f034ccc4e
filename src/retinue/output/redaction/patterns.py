"""The table of secrets, one row per kind, and the quick choice of those that a text may match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import compress

from msgspec import Struct

from retinue.output.redaction.named_secrets import LABELED_SECRETS, NAMED_SECRETS
from retinue.output.redaction.tokens import SHAPED_TOKENS, TOKEN_FORMATS, SecretPattern
from retinue.support.cache import compile_pattern

MAX_REACH = 512
"""Characters of the longest head, look-ahead included: a position this far from the end of a text is decided."""
CONTEXT = 32
"""Characters of the longest look-behind."""

BLOCK_BEGIN = "-----BEGIN"
"""The start of the only head that may contain line breaks."""

LINE_START = 224
"""Characters of the longest `line_start`: so much of a line decides whether it has one."""

SECRET_PATTERNS = (
    *LABELED_SECRETS,
    *(token.to_pattern() for token in TOKEN_FORMATS),
    *SHAPED_TOKENS,
    *NAMED_SECRETS,
)
"""If two start at the same position, the earlier row gives the mark."""


STEMS = ("auth", "cookie", "hook", "key", "pass")
"""Anchors that contain one of these are searched only if it occurs: one search saves several."""


class AnchorSearch(Struct, frozen=True):
    """The anchors of the rows that a text with certain signs may match."""

    anchors: dict[str, tuple[int, ...]]
    """Each selects its rows if it occurs in the folded text."""
    stems: dict[str, dict[str, tuple[int, ...]]]
    """The same for anchors with a stem, which is searched first."""


def fold_case(text: str) -> str:
    """Return the text in lower case with the same length."""
    if text.isascii():
        return text.lower()
    return text.replace("\u0130", "i").lower()  # the one letter that lower() makes longer


def find_candidate_rows(text: str, folded: str) -> list[int]:
    """Return the rows of the table that may match the text."""
    rows = _token_search().find_rows(text, folded)
    search = _select_anchors(tuple([sign in text for sign in SIGNS]))
    for anchor, members in search.anchors.items():
        if anchor in folded:
            rows.update(members)
    for stem, anchors in search.stems.items():
        if stem in folded:
            rows.update(*(members for anchor, members in anchors.items() if anchor in folded))
    return sorted(rows) if rows else []


def may_contain_name(folded: str) -> bool:
    """Return whether the text may contain the name of a secret whose value is still to come."""
    for anchor in NAME_ANCHORS:  # noqa: SIM110 - any() takes three times as long, for every piece of text
        if anchor in folded:
            return True
    return False


@cache
def _token_search() -> TokenSearch:
    return TokenSearch(SECRET_PATTERNS)


@cache
def _select_anchors(present: tuple[bool, ...]) -> AnchorSearch:
    """Return the anchors of the rows that need no sign or one of the present, in the order of `SIGNS`."""
    search = AnchorSearch({}, {})
    signs = set(compress(SIGNS, present))
    for row, family in enumerate(SECRET_PATTERNS):
        for anchor in family.anchors if not family.needs or signs & set(family.needs) else ():
            stem = next((stem for stem in STEMS if stem in anchor and stem != anchor), None)
            anchors = search.stems.setdefault(stem, {}) if stem else search.anchors
            anchors[anchor] = (*anchors.get(anchor, ()), row)
    return search


def _find_name_anchors() -> tuple[str, ...]:
    """Return the anchors that a name of a secret has; none that contains another."""
    rows = [family for family in SECRET_PATTERNS if family.spaced]
    every = dict.fromkeys(anchor for row in rows for anchor in ([row.start] if row.start else row.anchors))
    return tuple(anchor for anchor in every if not any(other in anchor for other in every if other != anchor))


SIGNS = tuple(sorted({sign for family in SECRET_PATTERNS for sign in family.needs}))
NAME_ANCHORS = _find_name_anchors()


# -- the search for tokens ----------------------------------------------------------------------------


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
    """Finds the rows of the table whose prefix or shape a text has.

    Every token has a long word, and ordinary text has few: one pass marks the characters of words, and one search per
    long word finds the prefixes in it.
    """

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
