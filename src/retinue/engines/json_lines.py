"""Read the JSON lines of a child process: split, decode and count them, without trusting their shape."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from retinue.model.events import TextDelta
from retinue.model.results import Finalization

MAX_LINE_BYTES = 16 * 2**20
"""Bytes in one line; a longer one is reported and skipped."""
MAX_NOISE_CHARS = 500
"""Characters kept of a line that is not a record, for diagnosis."""

Item = TypeVar("Item")


def decode_line(line: bytes) -> Any:
    """Return the value of a line; None if it is not JSON or nested too deeply."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:  # Half a surrogate pair, which msgspec refuses, is replaced by the caller; invalid UTF-8 here.
        return json.loads(line.decode(errors="replace"), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None


def _reject_constant(name: str) -> Any:
    raise ValueError(name)


def to_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def to_number(value: Any) -> int:
    try:
        return int(value) if isinstance(value, int | float) else 0
    except (OverflowError, ValueError):  # infinite, or no number
        return 0


def content_blocks(content: Any) -> Iterable[Mapping[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else ()


def join_text_blocks(content: Any) -> str:
    """Return the text of the blocks in a tool result."""
    return "\n".join(text for block in content_blocks(content) if (text := to_text(block.get("text"))))


def parse_finalization(value: Any) -> Finalization | None:
    """Return the finalization in the arguments of a finalize call; None if it breaks the rules of the tool."""
    try:
        fields = Finalization.from_arguments(value)
    except msgspec.ValidationError:
        return None
    return fields if fields.is_valid else None


class LineTooLong(Struct, frozen=True):
    """A line over the limit, of which only the size is kept."""

    size: int
    """Bytes without the LF."""


Line = bytes | LineTooLong


class LineSplitter:
    """Splits chunks of any size into lines. One CR before the LF is dropped.

    An unfinished line takes no more memory than the limit.
    """

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._size = 0
        """Bytes of the unfinished line; more than `_partial` has once it is over the limit."""

    def feed(self, chunk: bytes) -> list[Line]:
        """Return the lines that this chunk completes."""
        # Not splitlines(): U+2028, VT and a single CR are legal inside a line.
        parts = chunk.split(b"\n")
        rest = parts.pop()
        lines: list[Line] = []
        if parts:
            lines.append(self._complete_line(parts[0]))
            # A search for one byte is many times faster than for CRLF, and nearly always finds nothing.
            is_plain = b"\r" not in chunk and len(chunk) <= self._limit
            lines += parts[1:] if is_plain else [self._limit_length(part) for part in parts[1:]]
        self._append_partial(rest)
        return lines

    def flush(self) -> list[Line]:
        """Return the last line, if the stream ended without an LF."""
        return [self._complete_line(b"")] if self._size else []

    def _append_partial(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._partial += part
        elif self._partial:
            self._partial = bytearray()

    def _complete_line(self, part: bytes) -> Line:
        """Return the line that this part completes."""
        if not self._size:
            return self._limit_length(part)
        self._append_partial(part)
        line = LineTooLong(self._size) if self._size > self._limit else bytes(self._partial).removesuffix(b"\r")
        self._partial = bytearray()
        self._size = 0
        return line

    def _limit_length(self, line: bytes) -> Line:
        return LineTooLong(len(line)) if len(line) > self._limit else line.removesuffix(b"\r")


class RecordCounts:
    """Counts of the lines read from a child."""

    def __init__(self) -> None:
        self.stdout = 0
        """Bytes of relevant lines."""
        self.dropped = 0
        """Bytes of lines that were too long or not records."""
        self.noise = 0
        """Lines that are not records."""
        self.first_noise = ""
        self.is_truncated = False
        """True if the last line is half a record."""

    def count_noise(self, line: bytes) -> None:
        """Count a line that is not a record; empty lines are no noise."""
        if line.strip():
            self.noise += 1
            self.dropped += len(line)
            self.is_truncated = line.startswith(b"{")
            self.first_noise = self.first_noise or line[:MAX_NOISE_CHARS].decode(errors="replace")


def merge_deltas(items: Iterable[Item]) -> list[Item]:
    """Return the items with consecutive text deltas joined."""
    merged: list[Item] = []
    for item in items:
        if isinstance(item, TextDelta) and merged and isinstance(previous := merged[-1], TextDelta):
            merged[-1] = structs.replace(item, text=previous.text + item.text)
        else:
            merged.append(item)
    return merged
