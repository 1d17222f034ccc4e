"""The table of secrets, one row per kind, and the quick choice of those that a text may match."""

from __future__ import annotations

from functools import cache
from itertools import compress

from msgspec import Struct

from retinue.output.redaction.named_secrets import LABELED_SECRETS, NAMED_SECRETS
from retinue.output.redaction.tokens import SHAPED_TOKENS, TOKEN_FORMATS
from retinue.output.redaction.words import TokenSearch

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
