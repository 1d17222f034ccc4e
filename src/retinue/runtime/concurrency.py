"""Bound how many runs are accepted, work at once, and are started by agents."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from msgspec import Struct

from retinue.model.errors import ErrorCode, refuse

MAX_BEGUN = 128
"""Runs of root calls that are accepted at once, though they wait for a slot: each has open files."""


class RunSlot:
    """One run's claim on a slot. Releasing a slot it does not hold does nothing."""

    def __init__(self, free: anyio.Semaphore) -> None:
        self._free = free
        self.is_held = False

    def try_acquire(self) -> bool:
        try:
            self._free.acquire_nowait()
        except anyio.WouldBlock:
            return False
        self.is_held = True
        return True

    async def acquire(self) -> None:
        await self._free.acquire()
        self.is_held = True

    def release(self) -> None:
        if self.is_held:
            self.is_held = False
            self._free.release()


class SpawnCount:
    """Counts the runs that agents have started below one root call."""

    def __init__(self) -> None:
        self._started = 0

    def add(self, runs: int, limit: int) -> None:
        """Count runs that an agent wants to start.

        Raises:
            RefusedError: `spawn_limit`: the agents below this root call would have started more than `limit` runs.
        """
        if self._started + runs > limit:
            started = f"{self._started} run{'s' * (self._started != 1)}"
            raise refuse(
                ErrorCode.SPAWN_LIMIT,
                f"The child runs of this call have started {started} and may start {limit} (max_spawns); {runs} more "
                f"{'was' if runs == 1 else 'were'} refused and nothing was started. Do the remaining work without "
                "delegating, or raise max_spawns in your config.toml.",
            )
        self._started += runs

    def give_back(self, runs: int) -> None:
        """Uncount runs that were not started after all."""
        self._started -= runs


class RunShare(Struct, frozen=True):
    """The slots and the spawn count that the runs of one call share with their ancestors and their child runs."""

    slots: anyio.Semaphore
    """Free slots. Runs wait for one in the order they came, and waiting does not count for their timeout."""
    spawns: SpawnCount
    is_counted: bool
    """Whether the runs of this call count as spawns: an agent made the call."""

    def slot(self) -> RunSlot:
        return RunSlot(self.slots)

    def give_back(self, runs: int) -> None:
        """Uncount runs of the call that were not started after all."""
        if self.is_counted:
            self.spawns.give_back(runs)


class RunIntake:
    """Accepts root calls in the order they came, as long as not too many of their runs are accepted already."""

    def __init__(self) -> None:
        self._accepted = 0
        self._waiting: deque[tuple[int, int, anyio.Event]] = deque()

    @asynccontextmanager
    async def accepting(self, runs: int, max_accepted: int) -> AsyncIterator[None]:
        """Wait until so many more runs may be accepted, then run the block. A single call is always accepted."""
        await self.enter(runs, max_accepted)
        try:
            yield
        finally:
            self.leave(runs)

    async def enter(self, runs: int, max_accepted: int) -> None:
        """Wait until so many more runs may be accepted; a cancelled call is not accepted."""
        if not self._waiting and self._has_room(runs, max_accepted):
            self._accepted += runs
            return
        waiting = (runs, max_accepted, anyio.Event())
        self._waiting.append(waiting)
        try:
            await waiting[2].wait()
        except BaseException:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._accept_next()
            else:
                self.leave(runs)
            raise

    def leave(self, runs: int) -> None:
        """Make room for others: so many runs have ended."""
        self._accepted -= runs
        self._accept_next()

    def _has_room(self, runs: int, max_accepted: int) -> bool:
        return self._accepted == 0 or self._accepted + runs <= max_accepted

    def _accept_next(self) -> None:
        while self._waiting and self._has_room(*self._waiting[0][:2]):
            runs, _, accepted = self._waiting.popleft()
            self._accepted += runs
            accepted.set()
