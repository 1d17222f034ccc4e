"""Lines out of a stream of bytes: split on LF alone, bounded in length, as fast as the stream comes."""

from __future__ import annotations

from msgspec import Struct

LIMIT = 16 * 2**20
"""Bytes in one line; a longer one is told of and passed over."""


class TooLong(Struct, frozen=True):
    """A line over the limit, of which only this is kept."""

    size: int
    """Its bytes, the LF not counted."""


Line = bytes | TooLong


class Lines:
    """Cuts chunks into lines, however the chunks are cut. One CR before the LF is dropped.

    What waits for its LF takes no more memory than the limit.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._size = 0
        """Bytes of the unfinished line; more than `_rest` holds once it is over the limit."""

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines this chunk ends."""
        # Not splitlines(): U+2028, VT and a CR alone are legal inside what one line says.
        parts = chunk.split(b"\n")
        rest = parts.pop()
        lines: list[Line] = []
        if parts:
            lines.append(self._complete(parts[0]))
            # Looked for as one byte, which is many times quicker than as CRLF, and nearly never there.
            is_plain = b"\r" not in chunk and len(chunk) <= self._limit
            lines += parts[1:] if is_plain else [self._checked(part) for part in parts[1:]]
        self._keep(rest)
        return lines

    def end(self) -> list[Line]:
        """The last line, if the stream ended without an LF."""
        return [self._complete(b"")] if self._size else []

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._rest += part
        elif self._rest:
            self._rest = bytearray()

    def _complete(self, part: bytes) -> Line:
        """The line that this part ends."""
        if not self._size:
            return self._checked(part)
        self._keep(part)
        line = TooLong(self._size) if self._size > self._limit else bytes(self._rest).removesuffix(b"\r")
        self._rest = bytearray()
        self._size = 0
        return line

    def _checked(self, line: bytes) -> Line:
        return TooLong(len(line)) if len(line) > self._limit else line.removesuffix(b"\r")
