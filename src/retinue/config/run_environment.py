"""The environment variables by which child processes know their depth and the tools they may use."""

from __future__ import annotations

from collections.abc import Mapping

CHILD_VARIABLE = "PI_SUBAGENT_CHILD"
DEPTH_VARIABLE = "PI_SUBAGENT_DEPTH"
MAX_DEPTH_VARIABLE = "PI_SUBAGENT_MAX_DEPTH"
AUTHORITY_VARIABLE = "RETINUE_AUTHORITY"
"""The tools that runs of this process may have at most."""


def depth_variables(depth: int, max_depth: int) -> dict[str, str]:
    """Return the variables that mark the process of a run at this depth, so that none escapes the depth guard."""
    return {CHILD_VARIABLE: "1", DEPTH_VARIABLE: str(depth), MAX_DEPTH_VARIABLE: str(max_depth)}


def read_depth(environ: Mapping[str, str]) -> tuple[int, int | None]:
    """Return the depth of this process and the maximum of its runs: a child process cannot become a root."""
    depth = _parse_number(environ.get(DEPTH_VARIABLE)) or 0
    if environ.get(CHILD_VARIABLE) == "1":
        depth = max(depth, 1)
    return depth, _parse_number(environ.get(MAX_DEPTH_VARIABLE))


def read_tool_ceiling(environ: Mapping[str, str]) -> frozenset[str] | None:
    """Return the tools that runs may have at most; None: as their callers choose."""
    passed = environ.get(AUTHORITY_VARIABLE)
    return None if passed is None else frozenset(filter(None, passed.split(",")))


def _parse_number(text: str | None) -> int | None:
    """Return a whole number from the environment; None for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() else None
