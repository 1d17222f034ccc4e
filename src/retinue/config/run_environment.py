"""What a process tells those it starts of the run they belong to, by their environment; what it was told itself."""

from __future__ import annotations

from collections.abc import Mapping

CHILD_VARIABLE = "PI_SUBAGENT_CHILD"
DEPTH_VARIABLE = "PI_SUBAGENT_DEPTH"
MAX_DEPTH_VARIABLE = "PI_SUBAGENT_MAX_DEPTH"
AUTHORITY_VARIABLE = "RETINUE_AUTHORITY"
"""The tools that whoever starts this process lets its runs have at most."""


def depth_variables(depth: int, max_depth: int) -> dict[str, str]:
    """What marks a process as a run's at this depth, so that no path escapes the depth guard."""
    return {CHILD_VARIABLE: "1", DEPTH_VARIABLE: str(depth), MAX_DEPTH_VARIABLE: str(max_depth)}


def read_depth(environ: Mapping[str, str]) -> tuple[int, int | None]:
    """How deep this process stands, and how deep its runs may: a child cannot make itself a root."""
    depth = _parse_number(environ.get(DEPTH_VARIABLE)) or 0
    if environ.get(CHILD_VARIABLE) == "1":
        depth = max(depth, 1)
    return depth, _parse_number(environ.get(MAX_DEPTH_VARIABLE))


def read_tool_ceiling(environ: Mapping[str, str]) -> frozenset[str] | None:
    """The tools that runs may have at most; None: whatever their callers say."""
    passed = environ.get(AUTHORITY_VARIABLE)
    return None if passed is None else frozenset(filter(None, passed.split(",")))


def _parse_number(text: str | None) -> int | None:
    """A whole number from the environment; anything else counts as not said."""
    return int(text) if text and text.isascii() and text.isdigit() else None
