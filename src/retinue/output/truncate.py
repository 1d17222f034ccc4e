"""Cuts an answer to what a model should be given: seed 001's limits, the head kept, a notice first."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

MAX_BYTES = 200 * 1024
MAX_LINES = 5000
CONTINUATION = range(0b1000_0000, 0b1100_0000)
"""Bytes of UTF-8 within a character."""
_UNITS = ((2**30, "GB"), (2**20, "MB"), (2**10, "KB"))


class Truncated(Struct, frozen=True, kw_only=True):
    """A text within the limits, and how much of the whole it shows."""

    text: str
    """The whole, or the notice and the head."""
    truncated: bool = False
    shown_lines: int
    total_lines: int
    shown_bytes: int
    total_bytes: int

    @property
    def extent(self) -> str:
        """How much of the whole is shown, in the unit whose limit cut it: `5000 of 6000 lines`."""
        if self.shown_lines == MAX_LINES < self.total_lines:
            return f"{self.shown_lines} of {self.total_lines} lines"
        return f"{human_size(self.shown_bytes)} of {human_size(self.total_bytes)}"


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


def truncated(
    text: str, *, max_bytes: int = MAX_BYTES, max_lines: int = MAX_LINES, rest: Callable[[int], str] | None = None
) -> Truncated:
    """The text if it fits, else its head: first by lines, then by bytes, never within a character.

    `rest` returns a second line of notice from the number of the first line that is not shown whole.
    """
    total_lines, total_bytes = _lines(text), _size(text)
    if total_lines <= max_lines and total_bytes <= max_bytes:
        return _shown(text, text, total_lines, total_bytes)
    head = first_bytes(_first_lines(text, max_lines), max_bytes)
    notice = (
        f"[TRUNCATED: showing first {_lines(head)} of {total_lines} lines, "
        f"{human_size(_size(head))} of {human_size(total_bytes)}]"
    )
    if rest:
        is_whole_line = text[len(head) : len(head) + 1] == "\n"
        notice += f"\n{rest(_lines(head) + is_whole_line)}"
    return _shown(f"{notice}\n{head}", head, total_lines, total_bytes, truncated=True)


def read_on(session: str, line: int = 1) -> str:
    """Return the command that prints the output of a session from this line on."""
    return f"retinue sessions output {session}" + (f" --start {line}" if line > 1 else "")


def human_size(size_bytes: int) -> str:
    """The size in the largest fitting unit, to one decimal: `312 B`, `50.0 KB`, `1.5 MB`."""
    for unit, name in _UNITS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes} B"


def first_bytes(text: str, count: int) -> str:
    """The beginning of a text that has at most so many bytes: cut between two characters."""
    data = _encoded(text)
    if len(data) <= count:
        return text
    while count and data[count] in CONTINUATION:
        count -= 1
    return data[:count].decode("utf-8", "surrogatepass")


def _shown(text: str, head: str, total_lines: int, total_bytes: int, *, truncated: bool = False) -> Truncated:
    return Truncated(
        text=text,
        truncated=truncated,
        shown_lines=_lines(head),
        total_lines=total_lines,
        shown_bytes=_size(head),
        total_bytes=total_bytes,
    )


def _lines(text: str) -> int:
    return text.count("\n") + 1


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(_encoded(text))


def _encoded(text: str) -> bytes:
    # A lone surrogate is a broken character, but no reason to lose an answer.
    return text.encode("utf-8", "surrogatepass")


def _first_lines(text: str, count: int) -> str:
    return text if _lines(text) <= count else "\n".join(text.split("\n", count)[:count])
