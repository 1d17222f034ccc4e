"""Find the secret patterns that a text can match at all, so that clean text costs little."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from retinue.output.redaction.patterns import SECRET_PATTERNS
from retinue.support.patterns import compile_pattern


class Prefilter(Struct, frozen=True):
    """The conditions for trying rows of the table, the cheapest first."""

    needs: str
    """One of these characters must occur; empty: none."""
    shape: str
    """Then this pattern must occur in the folded text; empty: none."""
    anchors: dict[str, tuple[int, ...]]
    """Then one of these must occur; each selects its rows."""


def fold_case(text: str) -> str:
    """Return the text in lower case with the same length."""
    return text.replace("\u0130", "i").lower()  # the one letter that lower() makes longer


def find_candidate_rows(text: str, folded: str) -> list[int]:
    """Return the rows of the table that may match the text."""
    rows: set[int] = set()
    for prefilter in PREFILTERS:
        if prefilter.needs and prefilter.needs[0] not in text and prefilter.needs[-1] not in text:
            continue
        if prefilter.shape and not compile_pattern(prefilter.shape).search(folded):
            continue
        for anchor, members in prefilter.anchors.items():
            if anchor in folded:
                rows.update(members)
    return sorted(rows)


def may_contain_name(folded: str) -> bool:
    """Return whether the text may contain the name of a secret whose value is still to come."""
    for anchor in NAME_ANCHORS:  # noqa: SIM110 - any() takes three times as long, for every piece of text
        if anchor in folded:
            return True
    return False


def _make_prefilter(needs: str, shape: str) -> Prefilter:
    anchors: dict[str, tuple[int, ...]] = {}
    for row, family in enumerate(SECRET_PATTERNS):
        for anchor in family.anchors if (family.needs, family.shape) == (needs, shape) else ():
            anchors[anchor] = (*anchors.get(anchor, ()), row)
    joined = len(needs) == 1 and all(needs in anchor for anchor in anchors)
    return Prefilter(needs, shape or (_make_shape(needs, anchors) if joined else ""), anchors)


def _make_shape(needs: str, anchors: Iterable[str]) -> str:
    """Return a pattern of the character within any anchor: one search costs less than one per anchor."""
    halves = (anchor.rpartition(needs) for anchor in anchors)
    return (
        re.escape(needs)
        + "(?:"
        + "|".join(f"(?<={re.escape(before + needs)})(?={re.escape(after)})" for before, _, after in halves)
        + ")"
    )


PREFILTERS = tuple(
    _make_prefilter(*key) for key in dict.fromkeys((family.needs, family.shape) for family in SECRET_PATTERNS)
)
NAME_ANCHORS = tuple(
    dict.fromkeys(anchor for family in SECRET_PATTERNS if family.spaced for anchor in family.anchors)
)
