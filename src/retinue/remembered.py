"""Values that are made again only when what they were made of is no longer the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

MOST = 1024
"""Remembered at once; working directories, surfaces and folders are fewer in one process."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """By keys, each value with the parts it was made of. A part is the same only if it is the same object.

    May be asked from several threads at once: a value is put in place in one step.
    """

    def __init__(self) -> None:
        self._made: dict[Key, tuple[tuple[object, ...], Value]] = {}

    def made_of(self, key: Key, parts: tuple[object, ...], make: Callable[[], Value]) -> Value:
        """The value as it was made of these parts; made now if it was not."""
        known = self._made.get(key)
        if known and _are_same(known[0], parts):
            return known[1]
        if len(self._made) >= MOST:
            self._made.clear()
        value = make()
        self._made[key] = (parts, value)
        return value


def _are_same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    if len(some) != len(others):
        return False
    for one, other in zip(some, others, strict=True):  # noqa: SIM110 - asked by every call; all() takes twice as long
        if one is not other:
            return False
    return True
