"""Truncate answers and tool results to what a model should get: the head is kept, with a notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

MAX_BYTES = 200 * 1024
MAX_LINES = 5000
CONTINUATION_BYTES = range(0b1000_0000, 0b1100_0000)
"""Bytes of UTF-8 that continue a character."""
_UNITS = ((2**30, "GB"), (2**20, "MB"), (2**10, "KB"))


class TruncatedText(Struct, frozen=True, kw_only=True):
    """A text within the limits, and how much of the original it shows."""

    text: str
    """The original, or the notice and the head."""
    truncated: bool = False
    shown_lines: int
    total_lines: int
    shown_bytes: int
    total_bytes: int

    @property
    def extent(self) -> str:
        """Return how much is shown, in the unit of the limit that applied: `5000 of 6000 lines`."""
        if self.shown_lines == MAX_LINES < self.total_lines:
            return f"{self.shown_lines} of {self.total_lines} lines"
        return f"{format_size(self.shown_bytes)} of {format_size(self.total_bytes)}"


class LineRange(Struct, frozen=True):
    """Some lines of a text, counted from 1, both ends included."""

    text: str
    first: int
    last: int
    total: int


def select_lines(text: str, start: int | None, count: int | None) -> LineRange:
    """Return the lines from `start` on, at most `count` of them.

    Raises:
        IndexError: the text has fewer lines; the message says how many.
    """
    lines, first = text.split("\n"), start or 1
    if first > len(lines):
        total = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
        raise IndexError(f"start is {first}, but the output has {total}")
    chosen = lines[first - 1 :] if count is None else lines[first - 1 : first - 1 + count]
    return LineRange("\n".join(chosen), first, first - 1 + len(chosen), len(lines))


def truncate_text(
    text: str, *, max_bytes: int = MAX_BYTES, max_lines: int = MAX_LINES, rest: Callable[[int], str] | None = None
) -> TruncatedText:
    """Return the text if it fits, else its head, cut by lines, then by bytes, never within a character.

    `rest` returns a second line of notice from the number of the first line that is not shown whole.
    """
    total_lines, total_bytes = _count_lines(text), _byte_size(text)
    if total_lines <= max_lines and total_bytes <= max_bytes:
        return _make_result(text, text, total_lines, total_bytes)
    head = take_first_bytes(_take_first_lines(text, max_lines), max_bytes)
    notice = (
        f"[TRUNCATED: showing first {_count_lines(head)} of {total_lines} lines, "
        f"{format_size(_byte_size(head))} of {format_size(total_bytes)}]"
    )
    if rest:
        is_whole_line = text[len(head) : len(head) + 1] == "\n"
        notice += f"\n{rest(_count_lines(head) + is_whole_line)}"
    return _make_result(f"{notice}\n{head}", head, total_lines, total_bytes, truncated=True)


def read_on(session: str, line: int = 1) -> str:
    """Return the command that prints the output of a session from this line on."""
    return f"retinue sessions output {session}" + (f" --start {line}" if line > 1 else "")


def format_size(size_bytes: int) -> str:
    """Return the size in the largest fitting unit, to one decimal: `312 B`, `50.0 KB`, `1.5 MB`."""
    for unit, name in _UNITS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes} B"


def take_first_bytes(text: str, count: int) -> str:
    """Return the longest start of a text that has at most `count` bytes, cut between two characters."""
    data = _encode_text(text)
    if len(data) <= count:
        return text
    while count and data[count] in CONTINUATION_BYTES:
        count -= 1
    return data[:count].decode("utf-8", "surrogatepass")


def _make_result(
    text: str, head: str, total_lines: int, total_bytes: int, *, truncated: bool = False
) -> TruncatedText:
    return TruncatedText(
        text=text,
        truncated=truncated,
        shown_lines=_count_lines(head),
        total_lines=total_lines,
        shown_bytes=_byte_size(head),
        total_bytes=total_bytes,
    )


def _count_lines(text: str) -> int:
    return text.count("\n") + 1


def _byte_size(text: str) -> int:
    return len(text) if text.isascii() else len(_encode_text(text))


def _encode_text(text: str) -> bytes:
    # A lone surrogate must not lose an answer.
    return text.encode("utf-8", "surrogatepass")


def _take_first_lines(text: str, count: int) -> str:
    return text if _count_lines(text) <= count else "\n".join(text.split("\n", count)[:count])


MAX_TOOL_BYTES = 50 * 1024
"""Bytes of one tool result, as in pi: about 12,000 tokens."""
MAX_TOOL_LINES = 2000
"""Lines of one tool result, as in pi."""
_NOTICE_BYTES, _NOTICE_LINES = 1024, 10
"""Room for the notice of a tool that has truncated its result itself."""


class TruncatedLines(Struct, frozen=True):
    """The first lines of a text that fit."""

    text: str
    shown_lines: int
    """Lines shown completely or in part."""
    total_lines: int
    truncated_by: Literal["lines", "bytes", "line"] | None = None
    """The limit that applied; `line` is that of bytes within the first line; None: it is complete."""


def truncate_to_limits(
    text: str, *, max_bytes: int = MAX_TOOL_BYTES, max_lines: int = MAX_TOOL_LINES
) -> TruncatedLines:
    """Return the first lines of a text that fit both limits.

    Lines are kept whole, except a first line that is too long by itself: it is cut between two characters.
    """
    lines = text.split("\n")
    size, line_count = -1, 0
    for line in lines[:max_lines]:
        size += 1 + len(line.encode("utf-8", "replace"))
        if size > max_bytes:
            break
        line_count += 1
    if line_count == len(lines):
        return TruncatedLines(text, line_count, line_count)
    if line_count == 0:
        return TruncatedLines(take_first_bytes(lines[0], max_bytes), 1, len(lines), "line")
    return TruncatedLines(
        "\n".join(lines[:line_count]), line_count, len(lines), "lines" if line_count == max_lines else "bytes"
    )


def truncate_result(text: str) -> str:
    """Return a tool result of any size for a model: valid UTF-8, with a notice if it was cut."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_TOOL_BYTES + _NOTICE_BYTES and data.count(b"\n") < MAX_TOOL_LINES + _NOTICE_LINES:
        return data.decode()
    truncated = truncate_to_limits(data.decode())
    return (
        f"{truncated.text}\n\n[Showing the first {truncated.shown_lines} of {truncated.total_lines} lines, "
        f"{format_size(len(truncated.text.encode()))} of {format_size(len(data))}. Ask for a smaller part to see "
        "the remainder.]"
    )
