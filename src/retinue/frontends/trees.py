"""Things that came of one another in the order of a tree, with the lines that are drawn before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")

MOST_GUIDE = 24
"""Columns of what is drawn before something; what stands deeper says so."""


class Branch(Struct, Generic[T], frozen=True):
    """One thing and where it stands."""

    item: T
    level: int
    """1 at the top."""
    guide: str = ""
    """What is drawn before it: `│ └ `."""


def as_tree(items: Iterable[T], name: Callable[[T], str], parent: Callable[[T], str | None]) -> list[Branch[T]]:
    """Each right after what it came of, else in the order given. What came of something unknown stands at the top."""
    everyone = {name(item): item for item in items}
    below: dict[str | None, list[str]] = {}
    for own, item in everyone.items():
        above = parent(item)
        below.setdefault(above if above in everyone else None, []).append(own)
    found = _walked(everyone, below, below.get(None, []))
    # What came of itself, by however many steps, hangs nowhere: events of others may say anything.
    missing = [own for own in everyone if own not in found]
    return [*found.values(), *(Branch(everyone[own], 1) for own in missing)]


def _walked(everyone: dict[str, T], below: dict[str | None, list[str]], top: list[str]) -> dict[str, Branch[T]]:
    found: dict[str, Branch[T]] = {}
    waiting = [(own, 1, "", "") for own in reversed(top)]
    while waiting:
        own, level, guide, within = waiting.pop()
        found[own] = Branch(everyone[own], level, _bounded(guide, level))
        children = below.get(own, [])
        for child in reversed(children):
            is_last = child == children[-1]
            waiting.append(
                (child, level + 1, within + ("└ " if is_last else "├ "), within + ("  " if is_last else "│ "))
            )
    return found


def _bounded(guide: str, level: int) -> str:
    if len(guide) <= MOST_GUIDE:
        return guide
    depth = f"…{level} "
    return depth + guide[len(depth) - MOST_GUIDE :]
