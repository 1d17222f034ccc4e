"""Events to live watchers. A slow watcher never blocks a run: it loses deltas, never durable events."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Self

import anyio

from retinue.events import LIVE, Stamped

DELTA_CAPACITY = 1_000
"""Events a watcher may be behind before deltas are dropped for it."""
DURABLE_CAPACITY = 100_000
"""Durable events it may be behind before it is cut off, so that a stalled watcher cannot eat the memory."""

_LAGGED = f"more than {DURABLE_CAPACITY} events behind; read the rest from the store"


class Lagged(Exception):  # noqa: N818 - it says what happened to the watcher
    """The watcher fell too far behind and was cut off; everything durable is in the store."""


class Bus:
    """Where the events of all runs of a process are published."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()
        self.wants_deltas = False
        """Whether anyone would see a delta: nobody masks or stamps what nobody sees."""

    def publish(self, stamped: Stamped) -> None:
        for watcher in self._watchers:
            watcher.offer(stamped)

    def watch(self, *, deltas: bool = True) -> Watcher:
        """A watcher of everything published from entering its block until leaving it."""
        return Watcher(self, deltas=deltas)

    def add(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)
        self.wants_deltas = self.wants_deltas or watcher.deltas

    def remove(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)
        self.wants_deltas = any(other.deltas for other in self._watchers)


class Watcher:
    """One view of the bus: iterate inside `async with`."""

    def __init__(self, bus: Bus, *, deltas: bool) -> None:
        self._bus = bus
        self._behind: deque[Stamped] = deque()
        self._news: anyio.Event | None = None
        self._cut_off = False
        self.deltas = deltas
        self.dropped = 0
        """Deltas lost to slowness."""

    def offer(self, stamped: Stamped) -> None:
        if isinstance(stamped.event, LIVE):
            if not self.deltas:
                return
            if len(self._behind) >= DELTA_CAPACITY:
                self.dropped += 1
                return
        elif len(self._behind) >= DURABLE_CAPACITY:
            self._behind.clear()
            self._cut_off = True
        if not self._cut_off:
            self._behind.append(stamped)
        if self._news is not None:
            self._news.set()

    def waiting(self) -> tuple[Stamped, ...]:
        """Takes everything that has arrived, without waiting: for screens that draw at their own pace.

        Raises:
            Lagged: it was cut off.
        """
        if self._cut_off:
            raise Lagged(_LAGGED)
        taken = tuple(self._behind)
        self._behind.clear()
        return taken

    async def __aenter__(self) -> Self:
        self._bus.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bus.remove(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Stamped:
        while not self._behind:
            if self._cut_off:
                raise Lagged(_LAGGED)
            self._news = anyio.Event()
            await self._news.wait()
        return self._behind.popleft()
