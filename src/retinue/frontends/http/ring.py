"""The last of what came in, within bounds of number and bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Ring(Generic[Item]):
    """Keeps the latest items; the oldest go first, and the latest always stays."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._items: deque[tuple[int, Item]] = deque()

    def append(self, item: Item, size: int) -> None:
        """Takes an item of so many bytes."""
        self._items.append((size, item))
        self._bytes += size
        while len(self._items) > self._most or (self._bytes > self._most_bytes and len(self._items) > 1):
            self._bytes -= self._items.popleft()[0]

    def latest(self, count: int) -> Iterator[Item]:
        """The latest items, at most so many, the oldest of them first."""
        return (self._items[place][1] for place in range(max(len(self._items) - count, 0), len(self._items)))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return (item for _, item in self._items)

    def __reversed__(self) -> Iterator[Item]:
        return (item for _, item in reversed(self._items))
