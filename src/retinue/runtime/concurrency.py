"""How many runs work at once, the claim of one run on that, and how many more are begun and wait."""

from __future__ import annotations

from collections import deque

import anyio

MAX_BEGUN = 128
"""Runs of root calls that are begun at once, though they wait for a slot: each has open files."""


class RunLimiter:
    """How many runs work at once. Others wait in the order they came, and waiting costs them no timeout."""

    def __init__(self, size: int) -> None:
        self._free = anyio.Semaphore(size, fast_acquire=True)

    def slot(self) -> RunSlot:
        return RunSlot(self._free)


class RunSlot:
    """One run's claim on a slot. Giving back a slot it does not hold does nothing."""

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


class Intake:
    """Lets root calls begin in the order they came, as long as not too many of their runs have begun already."""

    def __init__(self) -> None:
        self._begun = 0
        self._waiting: deque[tuple[int, int, anyio.Event]] = deque()

    async def enter(self, runs: int, max_begun: int) -> None:
        """Wait until so many more runs may begin; one call alone may always. Cancelled, it has not entered."""
        if not self._waiting and self._has_room(runs, max_begun):
            self._begun += runs
            return
        waiting = (runs, max_begun, anyio.Event())
        self._waiting.append(waiting)
        try:
            await waiting[2].wait()
        except BaseException:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._admit_next()
            else:
                self.leave(runs)
            raise

    def leave(self, runs: int) -> None:
        """Make room for others: so many runs have ended."""
        self._begun -= runs
        self._admit_next()

    def _has_room(self, runs: int, max_begun: int) -> bool:
        return self._begun == 0 or self._begun + runs <= max_begun

    def _admit_next(self) -> None:
        while self._waiting and self._has_room(*self._waiting[0][:2]):
            runs, _, admitted = self._waiting.popleft()
            self._begun += runs
            admitted.set()
