"""The files of a record: `stem.1.jsonl`, `stem.2.jsonl`… and the newest, `stem.jsonl`; one JSON record per line.

No file stays open between two reads, so a reader may be dropped at any time, and rotation may happen meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
from msgspec import Meta, Struct

from retinue.model.event_codec import VERSION, EventRecord, from_line
from retinue.sessions.paths import RecordPosition, open_for_reading

BLOCK_BYTES = 64 * 1024
"""Read at a time from the end."""
BATCH_BYTES = 2**20
"""Read at a time from the start."""
MAX_LINE_BYTES = 64 * 2**20
"""A longer line is damage: a 16 MiB text is shorter in any escaping."""

_PREFIX = b'{"v":%d,' % VERSION
_HEADER = b'"type":"session"'
_HEADER_WITHIN = 32
"""Bytes from the start of a line within which a header names its type."""
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


# -- lines -----------------------------------------------------------------------------------------


class SegmentHeader(Struct, frozen=True, kw_only=True):
    """The first line of every segment of a record."""

    v: int = VERSION
    type: Literal["session"] = "session"
    id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    part: int = 1
    created: float
    """When the session was created, wall clock."""
    first: int = 1
    """The oldest segment that counts; older ones have been pruned."""

    def to_line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


class _VersionField(Struct):
    v: int


class NewerVersion(Struct, frozen=True):
    """A record in a format this program does not know: neither read nor written."""

    version: int


_decode_header = msgspec.json.Decoder(SegmentHeader).decode
_decode_version = msgspec.json.Decoder(_VersionField).decode


def parse_segment_header(line: bytes) -> SegmentHeader | NewerVersion | None:
    """Return the header in a line; None if the line is not a header."""
    try:
        version = _decode_version(line).v
        if version > VERSION:
            return NewerVersion(version)
        return _decode_header(line) if _HEADER in line[:_HEADER_WITHIN] else None
    except _DECODE_ERRORS:
        return None


class RecordDecoder:
    """Decodes the lines of a record into events and counts the damaged ones.

    Events of another session, or of another root conversation, count as damage.
    """

    def __init__(self, session: str | None = None, *, root: str | None = None) -> None:
        self.damaged_count = 0
        self._session = session
        self._root = root

    def decode_events(self, line: bytes) -> Iterator[EventRecord]:
        """Yield the event of a line: several where records were fused, none for a damaged line or a header."""
        if (record := self.decode_event(line)) is not None:
            yield record
        elif line.strip() and not isinstance(parse_segment_header(line), SegmentHeader):
            yield from self._recover_fused(line)

    def decode_event(self, line: bytes) -> EventRecord | None:
        """Return the event of an undamaged line; None for any other line."""
        if not line.startswith(_PREFIX):
            return None
        try:
            record = from_line(line)
        except _DECODE_ERRORS:
            return None
        origin = record.origin
        return record if self._session in {None, origin.session} and self._root in {None, origin.root} else None

    def _recover_fused(self, line: bytes) -> Iterator[EventRecord]:
        # Inside a JSON string the quotes of the prefix would be escaped, so the prefix always starts a record.
        start = 0
        while start >= 0:
            following = line.find(_PREFIX, start + 1)
            piece = line[start:] if following < 0 else line[start:following]
            if (record := self.decode_event(piece)) is not None:
                yield record
            else:
                self.damaged_count += 1
            start = following


# -- files -----------------------------------------------------------------------------------------


RECORD_STEM = "session"
RECORD_FILE = f"{RECORD_STEM}.jsonl"
"""The newest segment of the record of a session."""


class SegmentedFile:
    """The segment files of one record."""

    def __init__(self, folder: Path, stem: str = RECORD_STEM) -> None:
        self.folder = folder
        self.newest = folder / f"{stem}.jsonl"
        self._stem = stem

    def list_closed(self) -> list[int]:
        """Return the numbers of the segments that rotation has closed, ascending."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        middles = (name.removeprefix(f"{self._stem}.").removesuffix(".jsonl") for name in names)
        return sorted(int(middle) for middle in middles if middle.isascii() and middle.isdigit())

    def segment_path(self, number: int) -> Path:
        """Return the path of a closed segment."""
        return self.folder / f"{self._stem}.{number}.jsonl"

    def list_files(self) -> list[Path]:
        """Return the existing files, oldest first."""
        return [path for path in (*map(self.segment_path, self.list_closed()), self.newest) if path.exists()]

    def open_segment(self, number: int) -> BinaryIO:
        """Open the segment of this number: the newest if none is closed under it.

        Raises:
            OSError: the segment does not exist or cannot be read.
        """
        closed = self.segment_path(number)
        try:
            return open_for_reading(closed)
        except FileNotFoundError:
            newest = open_for_reading(self.newest)
        if not closed.exists():
            return newest
        # Rotated between the two attempts: the file just opened is one segment too far.
        newest.close()
        return open_for_reading(closed)


class SegmentCursor:
    """A position in a record from which reading continues, also after the record grew or was rotated."""

    def __init__(
        self,
        segments: SegmentedFile,
        at: RecordPosition,
        batch_bytes: int = BATCH_BYTES,
        line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self.skipped = 0
        """Lines too long to be records."""
        self.at = at
        self._segments = segments
        self._batch_bytes = batch_bytes
        self._line_bytes = line_bytes
        self._file: tuple[int, int] | None = None

    def read(self) -> list[bytes]:
        """Return the next whole lines, about a batch of them; none at the end of what is written so far."""
        while True:
            if lines := self._read_segment():
                return lines
            if not self._segments.segment_path(self.at.part).exists():
                return []
            if lines := self._read_segment():
                return lines
            # The rest of a closed segment without a newline is torn; the decoder counts it as damage.
            torn = self.read_rest()
            following = (number for number in self._segments.list_closed() if number > self.at.part)
            self.at, self._file = RecordPosition(min(following, default=self.at.part + 1)), None
            if torn:
                return torn.split(b"\n")

    def read_rest(self) -> bytes:
        """Return the bytes after the last newline: a record that is torn or being written right now."""
        try:
            with self._reopen() as file:
                return file.read(self._line_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return b""

    def _reopen(self) -> BinaryIO:
        file = self._segments.open_segment(self.at.part)
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino)
        if self._file not in {None, identity} or status.st_size < self.at.offset:
            # Another file took its place: the old content is gone, and the new file is read from its start.
            self.at = RecordPosition(self.at.part)
        self._file = identity
        file.seek(self.at.offset)
        return file

    def _read_segment(self) -> list[bytes]:
        try:
            file = self._reopen()
        except (FileNotFoundError, NotADirectoryError):
            return []
        with file:
            piece = file.read(self._batch_bytes)
            cut = piece.rfind(b"\n")
            if cut < 0:
                return self._read_long_line(file, piece)
            self._advance(cut + 1)
            return piece[:cut].split(b"\n")

    def _read_long_line(self, file: BinaryIO, start: bytes) -> list[bytes]:
        """Return the one line that is longer than a batch; nothing while its newline is missing."""
        pieces, size = [start], len(start)
        while piece := file.read(self._batch_bytes):
            cut = piece.find(b"\n")
            size += len(piece) if cut < 0 else cut
            if size <= self._line_bytes:
                pieces.append(piece if cut < 0 else piece[:cut])
            if cut >= 0:
                self._advance(size + 1)
                if size <= self._line_bytes:
                    return [b"".join(pieces)]
                self.skipped += 1
                return [b""]
        return []

    def _advance(self, size: int) -> None:
        self.at = RecordPosition(self.at.part, self.at.offset + size)


def read_backwards(
    file: BinaryIO, block_bytes: int = BLOCK_BYTES, line_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file from its end, each with its offset; first the bytes after the last newline."""
    at = file.seek(0, os.SEEK_END)
    partial = _PartialLine(line_bytes)
    while at:
        size = min(block_bytes, at)
        at -= size
        file.seek(at)
        *whole, last = _read_exactly(file, size).split(b"\n")
        partial.prepend(last)
        if not whole:
            continue
        start = at + size - len(last)
        yield start, partial.line()
        for line in reversed(whole[1:]):
            start -= len(line) + 1
            yield start, line
        partial = _PartialLine(line_bytes)
        partial.prepend(whole[0])
    yield 0, partial.line()


class _PartialLine:
    """The end of a line whose start has not been read yet."""

    def __init__(self, line_bytes: int) -> None:
        self._line_bytes = line_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def prepend(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._line_bytes:
            self._pieces.append(piece)

    def line(self) -> bytes:
        return b"".join(reversed(self._pieces)) if self._size <= self._line_bytes else b"(too long)"


def _read_exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data
