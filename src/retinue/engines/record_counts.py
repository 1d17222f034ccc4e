"""What the lines of a child amount to, beside what they say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec import structs

from retinue.events import TextDelta

NOISE_KEPT = 500
"""Characters of what is no record, for a diagnosis."""

Said = TypeVar("Said")


class RecordCounts:
    """The count of whoever reads a child's lines."""

    def __init__(self) -> None:
        self.stdout = 0
        """Bytes of lines worth keeping."""
        self.dropped = 0
        """Bytes of lines that were too long, or no records."""
        self.noise = 0
        """Lines that are no records."""
        self.first_noise = ""
        self.is_cut = False
        """Whether the last line is half a record."""

    def no_record(self, line: bytes) -> None:
        """Counts a line that says nothing; empty ones are no noise."""
        if line.strip():
            self.noise += 1
            self.dropped += len(line)
            self.is_cut = line.startswith(b"{")
            self.first_noise = self.first_noise or line[:NOISE_KEPT].decode(errors="replace")


def joined(said: Iterable[Said]) -> list[Said]:
    """All that was said, with deltas of text that follow each other as one."""
    together: list[Said] = []
    for one in said:
        if isinstance(one, TextDelta) and together and isinstance(before := together[-1], TextDelta):
            together[-1] = structs.replace(one, text=before.text + one.text)
        else:
            together.append(one)
    return together
