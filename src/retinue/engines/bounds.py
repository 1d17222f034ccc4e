"""How much of a text a model is shown at once: the head of it, and words about what was cut."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from retinue.output.truncate import first_bytes, human_size

MAX_BYTES = 50 * 1024
"""Of one tool result, as pi has it: about 12,000 tokens."""
MAX_LINES = 2000
"""The same, as pi has it."""
_NOTICE_BYTES, _NOTICE_LINES = 1024, 10
"""What a tool may add to a result it has cut itself."""


class Head(Struct, frozen=True):
    """The beginning of a text that fits."""

    text: str
    shown: int
    """Lines of which something is shown."""
    total: int
    cut_by: Literal["lines", "bytes", "line"] | None = None
    """What cut it: a limit, or that of bytes within the first line; None: it is whole."""


def head(text: str, *, max_bytes: int = MAX_BYTES, max_lines: int = MAX_LINES) -> Head:
    """The first lines of a text that fit both limits.

    Lines are kept whole, but for a first line that is too long by itself: it is cut between two characters.
    """
    lines = text.split("\n")
    size, shown = -1, 0
    for line in lines[:max_lines]:
        size += 1 + len(line.encode("utf-8", "replace"))
        if size > max_bytes:
            break
        shown += 1
    if shown == len(lines):
        return Head(text, shown, shown)
    if shown == 0:
        return Head(first_bytes(lines[0], max_bytes), 1, len(lines), "line")
    return Head("\n".join(lines[:shown]), shown, len(lines), "lines" if shown == max_lines else "bytes")


def bounded(text: str) -> str:
    """A tool result of any size, as a model may see it: UTF-8 can carry it, and a notice says what was cut."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_BYTES + _NOTICE_BYTES and data.count(b"\n") < MAX_LINES + _NOTICE_LINES:
        return data.decode()
    part = head(data.decode())
    return (
        f"{part.text}\n\n[Showing the first {part.shown} of {part.total} lines, "
        f"{human_size(len(part.text.encode()))} of {human_size(len(data))}. Ask for less to see the rest.]"
    )
