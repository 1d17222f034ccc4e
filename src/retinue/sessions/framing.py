"""One record per line: what a line of a session's file means, and what of a damaged one can be saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from retinue.events import VERSION, Origin, Stamped, from_line

_PREFIX = b'{"v":%d,' % VERSION
_HEADER = b'"type":"session"'
_HEADER_WITHIN = 32
"""Bytes from the start of a line within which a header names its type."""


class Header(Struct, frozen=True, kw_only=True):
    """The first line of every part of a record."""

    v: int = VERSION
    type: Literal["session"] = "session"
    id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    part: int = 1
    created: float
    """Of the session, wall clock."""
    first: int = 1
    """The oldest part that counts; what was there before it has been pruned."""

    def line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


class _Version(Struct):
    v: int


class Newer(Struct, frozen=True):
    """A record of a format this program does not know: neither read nor written."""

    version: int


_read_header = msgspec.json.Decoder(Header).decode
_read_version = msgspec.json.Decoder(_Version).decode


def header(line: bytes) -> Header | Newer | None:
    """The header that a line is; None if it is none."""
    try:
        version = _read_version(line).v
        if version > VERSION:
            return Newer(version)
        return _read_header(line) if _HEADER in line[:_HEADER_WITHIN] else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class Decoder:
    """Turns the lines of a record into events and counts what could not be read."""

    def __init__(self, session: str | None = None, *, root: str | None = None) -> None:
        self.damaged = 0
        self._session = session
        self._root = root

    def events(self, line: bytes) -> Iterator[Stamped]:
        """The event of a line; more than one where records were fused, none where it is damaged or a header."""
        if (stamped := self.event(line)) is not None:
            yield stamped
        elif line.strip() and not isinstance(header(line), Header):
            yield from self._saved(line)

    def event(self, line: bytes) -> Stamped | None:
        """The event of a sound line; None for any other."""
        if not line.startswith(_PREFIX):
            return None
        try:
            stamped = from_line(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return stamped if self._belongs(stamped.origin) else None

    def _belongs(self, origin: Origin) -> bool:
        # A record that strayed in from another conversation must not become part of this one.
        return self._session in {None, origin.session} and self._root in {None, origin.root}

    def _saved(self, line: bytes) -> Iterator[Stamped]:
        # Inside a JSON string the quotes of the prefix would be escaped, so it only ever begins a record.
        start = 0
        while start >= 0:
            following = line.find(_PREFIX, start + 1)
            piece = line[start:] if following < 0 else line[start:following]
            if (stamped := self.event(piece)) is not None:
                yield stamped
            else:
                self.damaged += 1
            start = following
