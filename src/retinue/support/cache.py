"""Values that are made again only when what they were made of is no longer the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

MAX_CACHED = 1024
"""Remembered at once; working directories, surfaces and folders are fewer in one process."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class IdentityCache(Generic[Key, Value]):
    """By keys, each value with the parts it was made of. A part is the same only if it is the same object.

    May be asked from several threads at once: a value is put in place in one step.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, tuple[tuple[object, ...], Value]] = {}

    def get_or_make(self, key: Key, parts: tuple[object, ...], make: Callable[[], Value]) -> Value:
        """The value as it was made of these parts; made now if it was not."""
        cached = self._entries.get(key)
        if cached and _are_identical(cached[0], parts):
            return cached[1]
        if len(self._entries) >= MAX_CACHED:
            self._entries.clear()
        value = make()
        self._entries[key] = (parts, value)
        return value


def _are_identical(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    if len(some) != len(others):
        return False
    for one, other in zip(some, others, strict=True):  # noqa: SIM110 - asked by every call; all() takes twice as long
        if one is not other:
            return False
    return True
