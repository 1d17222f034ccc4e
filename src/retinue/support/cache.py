"""Cache values until one of the objects they were made from is replaced, and compiled patterns."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import cache
from typing import Generic, TypeVar

MAX_CACHED = 1024
"""Largest number of entries: a process has fewer working directories, toolsets and folders."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class IdentityCache(Generic[Key, Value]):
    """Caches values by key, each with the parts it was made from, which are compared by identity.

    Safe to use from several threads: a value is stored in one step.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, tuple[tuple[object, ...], Value]] = {}

    def get_or_make(self, key: Key, parts: tuple[object, ...], make: Callable[[], Value]) -> Value:
        """Return the value made from these parts; make it if it is missing or has other parts."""
        cached = self._entries.get(key)
        if cached and _are_identical(cached[0], parts):
            return cached[1]
        if len(self._entries) >= MAX_CACHED:
            self._entries.clear()
        value = make()
        self._entries[key] = (parts, value)
        return value


class LastEqual(Generic[Key, Value]):
    """Keeps the last value of each key, so that an equal value is the same object."""

    def __init__(self) -> None:
        self._values: dict[Key, Value] = {}

    def get(self, key: Key, value: Value) -> Value:
        """Return the kept value if it is equal; else keep this one."""
        kept = self._values.get(key)
        if kept == value:
            return kept
        if len(self._values) >= MAX_CACHED:
            self._values.clear()
        self._values[key] = value
        return value


def _are_identical(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    if len(some) != len(others):
        return False
    for one, other in zip(some, others, strict=True):  # noqa: SIM110 - on the path of every call; all() takes twice as long
        if one is not other:
            return False
    return True


compile_pattern: Callable[[str], re.Pattern[str]] = cache(re.compile)
