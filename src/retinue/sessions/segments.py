"""A record in several files: `stem.1.jsonl`, `stem.2.jsonl`… and the newest, `stem.jsonl`; read from both ends.

Nothing is held open between two reads, so a reader may be dropped at any time, and rotation may go on meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from retinue.sessions.paths import open_for_reading

BLOCK_BYTES = 64 * 1024
"""Read at a time from the end."""
BATCH_BYTES = 2**20
"""Read at a time from the start."""
MAX_LINE_BYTES = 64 * 2**20
"""A longer line is damage: a 16 MiB text, however escaped, is shorter."""


class RecordPosition(Struct, frozen=True, order=True):
    part: int
    offset: int = 0


class SegmentedFile:
    """The files of one record."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.folder = folder
        self.newest = folder / f"{stem}.jsonl"
        self._stem = stem

    def list_closed(self) -> list[int]:
        """Numbers of the parts that rotation has closed, ascending."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        middles = (name.removeprefix(f"{self._stem}.").removesuffix(".jsonl") for name in names)
        return sorted(int(middle) for middle in middles if middle.isascii() and middle.isdigit())

    def segment_path(self, number: int) -> Path:
        """Of a closed part."""
        return self.folder / f"{self._stem}.{number}.jsonl"

    def list_files(self) -> list[Path]:
        """Those that exist, oldest first."""
        return [path for path in (*map(self.segment_path, self.list_closed()), self.newest) if path.exists()]

    def next_number(self, number: int) -> int:
        """The number of the part that follows a closed one."""
        return min((other for other in self.list_closed() if other > number), default=number + 1)

    def open_segment(self, number: int) -> BinaryIO:
        """The part of this number, which is the newest if none is closed under it.

        Raises:
            OSError: there is none, or it cannot be read.
        """
        closed = self.segment_path(number)
        try:
            return open_for_reading(closed)
        except FileNotFoundError:
            newest = open_for_reading(self.newest)
        if not closed.exists():
            return newest
        # Rotated between the two attempts: what was just opened is one part too far.
        newest.close()
        return open_for_reading(closed)


def session_segments(folder: Path) -> SegmentedFile:
    """The record of the session in a folder."""
    return SegmentedFile(folder, "session")


class SegmentCursor:
    """A place in a record from which reading goes on, also after the record grew or was rotated."""

    def __init__(
        self,
        parts: SegmentedFile,
        at: RecordPosition,
        batch_bytes: int = BATCH_BYTES,
        line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self.skipped = 0
        """Lines too long to be records."""
        self.at = at
        self._parts = parts
        self._batch_bytes = batch_bytes
        self._line_bytes = line_bytes
        self._file: tuple[int, int] | None = None

    def read(self) -> list[bytes]:
        """The next whole lines, about a batch of them; none at the end of what is written so far."""
        while True:
            if lines := self._read_part():
                return lines
            if not self._parts.segment_path(self.at.part).exists():
                return []
            if lines := self._read_part():
                return lines
            # The rest of a closed part without a newline is torn; whoever decodes it will count it.
            torn = self.read_rest()
            self.at, self._file = RecordPosition(self._parts.next_number(self.at.part)), None
            if torn:
                return torn.split(b"\n")

    def read_rest(self) -> bytes:
        """What stands behind the last newline: a record being written at this moment, or torn."""
        try:
            with self._reopen() as file:
                return file.read(self._line_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return b""

    def seek_end(self) -> None:
        """Moves behind everything written so far."""
        self.at = RecordPosition(max(self._parts.list_closed(), default=0) + 1)
        try:
            with self._reopen() as file:
                self.at = RecordPosition(self.at.part, file.seek(0, os.SEEK_END))
        except (FileNotFoundError, NotADirectoryError):
            return

    def _reopen(self) -> BinaryIO:
        file = self._parts.open_segment(self.at.part)
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino)
        if self._file not in {None, identity} or status.st_size < self.at.offset:
            # Another file took its place: what stood here is gone, and this one is read from its start.
            self.at = RecordPosition(self.at.part)
        self._file = identity
        file.seek(self.at.offset)
        return file

    def _read_part(self) -> list[bytes]:
        try:
            file = self._reopen()
        except (FileNotFoundError, NotADirectoryError):
            return []
        with file:
            piece = file.read(self._batch_bytes)
            cut = piece.rfind(b"\n")
            if cut < 0:
                return self._read_long(file, piece)
            self._advance(cut + 1)
            return piece[:cut].split(b"\n")

    def _read_long(self, file: BinaryIO, start: bytes) -> list[bytes]:
        """The one line that is longer than a batch; nothing while it has no end."""
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
    """The lines of a file from its end, each with its offset; the first is what stands behind the last newline."""
    at = file.seek(0, os.SEEK_END)
    held = _PartialLine(line_bytes)
    while at:
        size = min(block_bytes, at)
        at -= size
        file.seek(at)
        *whole, last = _read_exactly(file, size).split(b"\n")
        held.prepend(last)
        if not whole:
            continue
        start = at + size - len(last)
        yield start, held.line()
        for line in reversed(whole[1:]):
            start -= len(line) + 1
            yield start, line
        held = _PartialLine(line_bytes)
        held.prepend(whole[0])
    yield 0, held.line()


class _PartialLine:
    """The end of a line whose beginning has not been read yet."""

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
