"""What one tool call may spend, and work in a thread that stops when nobody waits for it any more."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio.to_thread
from anyio import CapacityLimiter

CALL_TIMEOUT = 10.0
"""Of one call: ten times what a search of a large repository takes."""
MAX_READERS = 2
"""Threads that read and search at once: the work is Python's, so more of them only wait for one another."""
MAX_FILES = 50_000
"""Entries one call looks at."""


class CallBudget:
    """The time and the number of entries one call has left."""

    def __init__(self, seconds: float = CALL_TIMEOUT, files: int = MAX_FILES) -> None:
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        self._files = self._files_left = files
        self._slow_pattern = False

    @property
    def remaining_seconds(self) -> float:
        """What is left of the time; nothing, once it is revoked."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def exhausted(self) -> bool:
        return self._slow_pattern or self._files_left < 0 or self.remaining_seconds == 0.0

    def take_entry(self) -> bool:
        """Whether one more entry may be looked at."""
        self._files_left -= 1
        return not self.exhausted

    def mark_slow_pattern(self) -> None:
        """The pattern alone has eaten what was left."""
        self._slow_pattern = True

    def cancel(self) -> None:
        self._deadline = 0.0

    @property
    def notice(self) -> str | None:
        """What a caller must be told of a result that is not whole."""
        if self._slow_pattern:
            return (
                f"Stopped: the pattern takes too long (over {self._seconds:g}s). Results are incomplete; simplify it"
            )
        if self._files_left < 0:
            return f"Stopped after {self._files} entries. Results are incomplete; narrow the path"
        if self.remaining_seconds == 0.0:
            return f"Stopped after {self._seconds:g}s. Results are incomplete; narrow the path or the pattern"
        return None


async def run_in_thread(work: Callable[[CallBudget], str], readers: CapacityLimiter) -> str:
    """Does blocking work within an allowance. A cancelled caller does not wait for it; it ends soon by itself.

    The time counts from when one of the `readers` is free.
    """
    async with readers:
        budget = CallBudget()
        try:
            return await anyio.to_thread.run_sync(work, budget, abandon_on_cancel=True)
        finally:
            budget.cancel()
