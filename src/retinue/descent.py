"""What a process tells those it starts of the run they belong to, by their environment; what it was told itself."""

from __future__ import annotations

from collections.abc import Mapping

CHILD = "PI_SUBAGENT_CHILD"
DEPTH = "PI_SUBAGENT_DEPTH"
DEEPEST = "PI_SUBAGENT_MAX_DEPTH"
AUTHORITY = "RETINUE_AUTHORITY"
"""The tools that whoever starts this process lets its runs have at most."""


def depth_marks(depth: int, deepest: int) -> dict[str, str]:
    """What marks a process as a run's at this depth, so that no path escapes the depth guard."""
    return {CHILD: "1", DEPTH: str(depth), DEEPEST: str(deepest)}


def marked_depth(environ: Mapping[str, str]) -> tuple[int, int | None]:
    """How deep this process stands, and how deep its runs may: a child cannot make itself a root."""
    depth = _number(environ.get(DEPTH)) or 0
    if environ.get(CHILD) == "1":
        depth = max(depth, 1)
    return depth, _number(environ.get(DEEPEST))


def marked_authority(environ: Mapping[str, str]) -> frozenset[str] | None:
    """The tools that runs may have at most; None: whatever their callers say."""
    passed = environ.get(AUTHORITY)
    return None if passed is None else frozenset(filter(None, passed.split(",")))


def _number(text: str | None) -> int | None:
    """A whole number from the environment; anything else counts as not said."""
    return int(text) if text and text.isascii() and text.isdigit() else None
