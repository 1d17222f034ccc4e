"""How many runs work at once, and the claim of one run on that."""

from __future__ import annotations

import anyio


class Slots:
    """How many runs work at once. Others wait in the order they came, and waiting costs them no timeout."""

    def __init__(self, size: int) -> None:
        self._free = anyio.Semaphore(size, fast_acquire=True)

    def seat(self) -> Seat:
        return Seat(self._free)


class Seat:
    """One run's claim on a slot. Giving back a slot it does not hold does nothing."""

    def __init__(self, free: anyio.Semaphore) -> None:
        self._free = free
        self.is_held = False

    def take_at_once(self) -> bool:
        try:
            self._free.acquire_nowait()
        except anyio.WouldBlock:
            return False
        self.is_held = True
        return True

    async def take(self) -> None:
        await self._free.acquire()
        self.is_held = True

    def give(self) -> None:
        if self.is_held:
            self.is_held = False
            self._free.release()
