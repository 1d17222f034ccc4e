"""Which families a text may hold at all: asked of every text, so that clean text costs little."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from retinue.output.redaction.patterns import SECRET_PATTERNS
from retinue.support.patterns import compile_pattern


class Prefilter(Struct, frozen=True):
    """What must occur before rows of the table are tried, the cheapest question first."""

    needs: str
    """One of these characters; empty: nothing."""
    shape: str
    """Then this, in folded text; empty: nothing."""
    anchors: dict[str, tuple[int, ...]]
    """Then one of these, with the rows it opens."""


def fold_case(text: str) -> str:
    """The text in lower case, character by character."""
    return text.replace("\u0130", "i").lower()  # the one letter that lower() makes longer


def find_candidate_rows(text: str, folded: str) -> list[int]:
    """The rows of the table whose secrets the text may hold."""
    rows: set[int] = set()
    for gate in PREFILTERS:
        if gate.needs and gate.needs[0] not in text and gate.needs[-1] not in text:
            continue
        if gate.shape and not compile_pattern(gate.shape).search(folded):
            continue
        for anchor, members in gate.anchors.items():
            if anchor in folded:
                rows.update(members)
    return sorted(rows)


def may_contain_name(folded: str) -> bool:
    """Whether the name of a secret may stand in the text, its value still to come."""
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
    """The character with the rest of an anchor around it: one search for it costs less than one for each anchor."""
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
