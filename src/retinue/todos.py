"""The todo list of an agent, as far as its own tool calls tell: how many items there are, and how many are done.

Folded from `write_todos {mode, todos, index}` and `edit_todos {action, indices}`, as pi's todo extension has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from retinue.types import Args

TOOLS = frozenset({"write_todos", "edit_todos"})
MOST = 1_000
"""Items of a list that are counted: a model may write what it likes."""

_OVER = frozenset({"completed", "complete", "done", "abandoned", "cancelled"})
"""What an item may be marked with once nobody will work on it any more."""
_ACTIONS = {"complete": True, "abandon": True, "start": False}


class Todos(Struct, frozen=True):
    """One list, item by item."""

    items: tuple[bool, ...] = ()
    """Whether each of them is over: done, or given up."""

    @property
    def total(self) -> int:
        return len(self.items)

    @property
    def completed(self) -> int:
        return sum(self.items)

    @property
    def are_open(self) -> bool:
        """Whether there is something to do, and not all of it is done."""
        return not all(self.items)

    def after(self, tool: str, args: Args) -> Todos:
        """The list once this call has succeeded; the same if the call makes no sense."""
        return self._written(args) if tool == "write_todos" else self._edited(args)

    def _written(self, args: Args) -> Todos:
        todos = args.get("todos")
        if not isinstance(todos, list):
            return self
        new, before = tuple(map(_is_over, todos)), self.items
        match args.get("mode"), args.get("index"):
            case "append", _:
                items = before + new
            case "insert", int(index) if 0 <= index <= len(before):
                items = before[:index] + new + before[index:]
            case "insert", _:
                items = before
            case _:
                items = new
        return Todos(items[:MOST])

    def _edited(self, args: Args) -> Todos:
        is_over, indices = _ACTIONS.get(str(args.get("action"))), args.get("indices")
        if is_over is None or not isinstance(indices, Sequence) or isinstance(indices, str):
            return self
        items = list(self.items)
        if any(not isinstance(index, int) or not 0 <= index < len(items) for index in indices):
            return self  # the tool itself changes all of them or none
        for index in indices:
            items[index] = is_over
        return Todos(tuple(items))


def _is_over(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("status", "")).lower() in _OVER
