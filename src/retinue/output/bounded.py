"""What is kept of a run's texts while it goes on: bounded, whatever the child writes."""

from __future__ import annotations

from io import StringIO
from typing import Any

import msgspec

from retinue.types import ToolUse

MESSAGE_CHARS = 8 * 2**20
"""Of one message."""
ITEMS = 500
ITEM_CHARS = 2**20
"""Of all display items together."""

_encode = msgspec.json.Encoder().encode


class Draft:
    """The text of a message that is being written: whole blocks, and the deltas after the last of them."""

    def __init__(self, limit: int = MESSAGE_CHARS) -> None:
        self._limit = limit
        self._blocks: list[str] = []
        self._blocks_chars = 0
        self._deltas: StringIO | None = None  # compact, and a delta costs the same however long the text is
        self._deltas_chars = 0

    def delta(self, text: str) -> int:
        """Adds to the block being written; returns how much of it had no room."""
        room = self._limit - self._blocks_chars - self._deltas_chars
        kept = text if len(text) <= room else text[:room]
        if self._deltas is None:
            self._deltas = StringIO()
        self._deltas.write(kept)
        self._deltas_chars += len(kept)
        return len(text) - len(kept)

    def block(self, text: str) -> int:
        """Adds a whole block, which stands for the deltas before it; returns how much of it had no room."""
        self._deltas, self._deltas_chars = None, 0
        kept = text[: self._limit - self._blocks_chars]
        self._blocks.append(kept)
        self._blocks_chars += len(kept)
        return len(text) - len(kept)

    def text(self) -> str:
        """All that is not blank, a line for each block."""
        open_block = self._deltas.getvalue() if self._deltas else ""
        return "\n".join(block for block in (*self._blocks, open_block) if block.strip())


class Items:
    """Texts and tool calls in the order they came; the newest are kept."""

    def __init__(self, limit: int = ITEMS, limit_chars: int = ITEM_CHARS) -> None:
        self._limit = limit
        self._limit_chars = limit_chars
        self._items: list[tuple[str | ToolUse, int]] = []
        self._chars = 0

    def add(self, item: str | ToolUse) -> None:
        if isinstance(item, str):
            item = item[: self._limit_chars]
            size = len(item)
        else:
            size = _size(item.args)
            if size > self._limit_chars:
                item, size = ToolUse(item.id, item.name, {"[left out]": f"{size} characters"}), 0
        self._items.append((item, size))
        self._chars += size
        while len(self._items) > self._limit or self._chars > self._limit_chars:
            self._chars -= self._items.pop(0)[1]

    def all(self) -> tuple[str | ToolUse, ...]:
        return tuple(item for item, _ in self._items)


def _size(value: Any) -> int:
    """The characters of a JSON-like value, roughly; one that cannot be written as JSON counts as too large."""
    try:
        return len(_encode(value))
    except (UnicodeEncodeError, RecursionError, TypeError):
        return ITEM_CHARS + 1
