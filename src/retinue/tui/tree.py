"""Order items as a tree: each right after its parent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from msgspec import Struct, structs

from retinue.runtime.progress import RunView

T = TypeVar("T")

MAX_GUIDE_WIDTH = 24
"""Columns of the guide before an item; deeper items show their level instead."""


class TreeNode(Struct, Generic[T], frozen=True):
    """An item and its place in a tree."""

    item: T
    level: int
    """1 at the top."""
    guide: str = ""
    """Lines that connect the item with its parent: `│ └ `."""


def build_tree(items: Iterable[T], name: Callable[[T], str], parent: Callable[[T], str | None]) -> list[TreeNode[T]]:
    """Return each item right after its parent, else in the given order; items with unknown parents are at the top."""
    items_by_name = {name(item): item for item in items}
    children: dict[str | None, list[str]] = {}
    for own, item in items_by_name.items():
        above = parent(item)
        children.setdefault(above if above in items_by_name else None, []).append(own)
    nodes: dict[str, TreeNode[T]] = {}
    stack = [(own, 1, "", "") for own in reversed(children.get(None, []))]
    while stack:
        own, level, guide, inner = stack.pop()
        nodes[own] = TreeNode(items_by_name[own], level, _limit_guide(guide, level))
        *others, last = children.get(own) or [""]
        if last:
            stack.append((last, level + 1, inner + "└ ", inner + "  "))
        stack += [(child, level + 1, inner + "├ ", inner + "│ ") for child in reversed(others)]
    # An item that is its own ancestor is in no tree: events of other processes may contain anything.
    cyclic = [TreeNode(item, 1) for own, item in items_by_name.items() if own not in nodes]
    return [*nodes.values(), *cyclic]


def _limit_guide(guide: str, level: int) -> str:
    if len(guide) <= MAX_GUIDE_WIDTH:
        return guide
    depth = f"…{level} "
    return depth + guide[len(depth) - MAX_GUIDE_WIDTH :]


def order_as_tree(views: Iterable[RunView]) -> list[RunView]:
    """Return child runs right after their parents, with their depth counted from the topmost run shown."""
    nodes = build_tree(views, lambda view: view.run, lambda view: view.parent_run)
    return [
        node.item if node.item.depth == node.level else structs.replace(node.item, depth=node.level) for node in nodes
    ]
