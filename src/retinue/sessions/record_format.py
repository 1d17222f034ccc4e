"""One record per line: what a line of a session's file means, and what of a damaged one can be saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from retinue.model.event_codec import VERSION, EventRecord, EventSource, from_line

_PREFIX = b'{"v":%d,' % VERSION
_HEADER = b'"type":"session"'
_HEADER_WITHIN = 32
"""Bytes from the start of a line within which a header names its type."""


class SegmentHeader(Struct, frozen=True, kw_only=True):
    """The first line of every part of a record."""

    v: int = VERSION
    type: Literal["session"] = "session"
    id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    part: int = 1
    created: float
    """Of the session, wall clock."""
    first: int = 1
    """The oldest part that counts; what was there before it has been pruned."""

    def to_line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


class _VersionField(Struct):
    v: int


class NewerVersion(Struct, frozen=True):
    """A record of a format this program does not know: neither read nor written."""

    version: int


_read_header = msgspec.json.Decoder(SegmentHeader).decode
_read_version = msgspec.json.Decoder(_VersionField).decode


def parse_segment_header(line: bytes) -> SegmentHeader | NewerVersion | None:
    """The header that a line is; None if it is none."""
    try:
        version = _read_version(line).v
        if version > VERSION:
            return NewerVersion(version)
        return _read_header(line) if _HEADER in line[:_HEADER_WITHIN] else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class RecordDecoder:
    """Turns the lines of a record into events and counts what could not be read."""

    def __init__(self, session: str | None = None, *, root: str | None = None) -> None:
        self.damaged_count = 0
        self._session = session
        self._root = root

    def decode_events(self, line: bytes) -> Iterator[EventRecord]:
        """The event of a line; more than one where records were fused, none where it is damaged or a header."""
        if (stamped := self.decode_event(line)) is not None:
            yield stamped
        elif line.strip() and not isinstance(parse_segment_header(line), SegmentHeader):
            yield from self._recover_fused(line)

    def decode_event(self, line: bytes) -> EventRecord | None:
        """The event of a sound line; None for any other."""
        if not line.startswith(_PREFIX):
            return None
        try:
            stamped = from_line(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return stamped if self._belongs(stamped.origin) else None

    def _belongs(self, origin: EventSource) -> bool:
        # A record that strayed in from another conversation must not become part of this one.
        return self._session in {None, origin.session} and self._root in {None, origin.root}

    def _recover_fused(self, line: bytes) -> Iterator[EventRecord]:
        # Inside a JSON string the quotes of the prefix would be escaped, so it only ever begins a record.
        start = 0
        while start >= 0:
            following = line.find(_PREFIX, start + 1)
            piece = line[start:] if following < 0 else line[start:following]
            if (stamped := self.decode_event(piece)) is not None:
                yield stamped
            else:
                self.damaged_count += 1
            start = following
