"""Whether the machine has nothing to do: then runs wait for models, and one more process would serve them."""

from __future__ import annotations

from pathlib import Path

WINDOW = 8
"""Ticks, of a hundredth of a second and per core: less tells nothing."""


class Cores:
    """The time of all cores since it was made, as Linux tells it; elsewhere they count as busy."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._total, self._idle = _ticks()

    def are_idle(self) -> bool:
        """Whether more than the share of their time went unused; then counted anew."""
        total, idle = _ticks()
        if not self._total or total - self._total < WINDOW:
            return False
        is_idle = idle - self._idle > self._share * (total - self._total)
        self._total, self._idle = total, idle
        return is_idle


def _ticks() -> tuple[int, int]:
    """Of all cores together: those that passed, and those in which nothing was done."""
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0]
        numbers = [int(word) for word in first.split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]
    except (OSError, ValueError, IndexError):
        return 0, 0
