"""Reads records: whole and streaming, or just their last events, skipping and counting what is damaged."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, Self

import anyio
from msgspec.structs import replace

from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded
from retinue.sessions import storage_errors as faults
from retinue.sessions.paths import open_for_reading, parse_id_digits
from retinue.sessions.record_format import NewerVersion, RecordDecoder, SegmentHeader, parse_segment_header
from retinue.sessions.segments import (
    BLOCK_BYTES,
    RecordPosition,
    SegmentCursor,
    SegmentedFile,
    read_backwards,
    session_segments,
)

TORN_FILE = "session.torn"
"""Keeps what was cut off behind the last whole record, one cut per line."""


def read_header(parts: SegmentedFile) -> SegmentHeader | NewerVersion | None:
    """What the newest part says of the record; None if there is none.

    A header that is missing or damaged is made up from the part before it or from the first event.
    """
    lines = _read_first_lines(parts.newest)
    if lines and (found := parse_segment_header(lines[0])):
        return found
    older = parts.list_closed()
    if older and (before := _read_first_lines(parts.segment_path(older[-1]))):
        match parse_segment_header(before[0]):
            case SegmentHeader() as found:
                return replace(found, part=older[-1] + 1)
            case NewerVersion() as newer:
                return newer
    for line in lines:
        if (stamped := RecordDecoder().decode_event(line)) and parse_id_digits(stamped.origin.session):
            part = older[-1] + 1 if older else 1
            return SegmentHeader(id=stamped.origin.session, part=part, created=stamped.time)
    return None


def find_start(parts: SegmentedFile, head: SegmentHeader) -> RecordPosition:
    """Where the oldest event that counts is looked for."""
    return RecordPosition(next((number for number in parts.list_closed() if number >= head.first), head.part))


def read_record_backwards(parts: SegmentedFile, head: SegmentHeader) -> Iterator[tuple[RecordPosition, bytes]]:
    """The lines of a record from its end, across parts."""
    older = [number for number in parts.list_closed() if head.first <= number < head.part]
    for number in (head.part, *reversed(older)):
        try:
            file = parts.open_segment(number)
        except FileNotFoundError:
            continue
        with file:
            for offset, line in read_backwards(file):
                yield RecordPosition(number, offset), line


def read_last_events(folder: Path, session: str, count: int) -> list[EventRecord]:
    """The last events of a session, in the order they were written.

    Raises:
        Refused: `storage`.
    """
    found: deque[EventRecord] = deque()
    decoder = RecordDecoder(session)
    with faults.raise_storage_errors(f"Session {session}"):
        parts = session_segments(folder)
        head = read_header(parts)
        if count <= 0 or not isinstance(head, SegmentHeader):
            return []
        for _, line in read_record_backwards(parts, head):
            found.extendleft(reversed(list(decoder.decode_events(line))))
            if len(found) >= count:
                break
    return list(found)[-count:]


class EventBatchSource(Protocol):
    """Where an `EventReader` gets its events; called in a worker thread."""

    damaged_count: int

    def read(self) -> list[EventRecord] | None:
        """The next events; None at the end."""


class EventReader:
    """Events read in batches in a worker thread."""

    def __init__(self, source: EventBatchSource, *, poll: float | None = None) -> None:
        """Ends with the source, or looks again every so many seconds for what was written meanwhile."""
        self._source = source
        self._poll = poll
        self._ready: deque[EventRecord] = deque()

    @property
    def damaged_count(self) -> int:
        return self._source.damaged_count

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventRecord:
        while not self._ready:
            batch = await anyio.to_thread.run_sync(self._source.read)
            if batch is not None:
                self._ready.extend(batch)
            elif self._poll is None:
                raise StopAsyncIteration
            else:
                await anyio.sleep(self._poll)
        return self._ready.popleft()


class SessionEventSource:
    """The events of a session, or of one of its runs."""

    def __init__(
        self,
        folder: Path,
        session: str,
        run: str | None = None,
        locate: Callable[[SegmentedFile, SegmentHeader], RecordPosition | None] | None = None,
    ) -> None:
        """Reads from where `locate` finds the run, or from the start."""
        self.damaged_count = 0
        self._folder = folder
        self._session = session
        self._run = run
        self._locate = locate
        self._decoder = RecordDecoder(session)
        self._torn = 0
        self._cursor: SegmentCursor | None = None
        self._end = RecordPosition(0)
        self._at_end = False

    def read(self) -> list[EventRecord] | None:
        """The next events; None at the end.

        Raises:
            Refused: `storage`.
        """
        with faults.raise_storage_errors(f"Session {self._session}"):
            return self._read()

    def _read(self) -> list[EventRecord] | None:
        cursor = self._cursor or self._open()
        if cursor is None or self._at_end:
            return None
        lines = cursor.read()
        if lines:
            events = [stamped for line in lines for stamped in self._decoder.decode_events(line)]
            self._at_end = cursor.at >= self._end
        else:
            self._at_end = True
            last = self._decoder.decode_event(cursor.read_rest())
            events = [last] if last else []
        self.damaged_count = self._torn + self._decoder.damaged_count + cursor.skipped
        return self._select_run(events) if self._run else events

    def _open(self) -> SegmentCursor | None:
        parts = session_segments(self._folder)
        head = read_header(parts)
        if not isinstance(head, SegmentHeader) or head.id != self._session:
            return None
        self._torn = count_torn_records(self._folder)
        begins = self._locate(parts, head) if self._locate else None
        self._cursor = SegmentCursor(parts, begins or find_start(parts, head))
        self._end = _find_end(parts, head)
        return self._cursor

    def _select_run(self, events: list[EventRecord]) -> list[EventRecord]:
        own = [stamped for stamped in events if stamped.origin.run == self._run]
        if own and isinstance(own[-1].event, RunEnded):
            self._at_end = True
        return own


def _find_end(parts: SegmentedFile, head: SegmentHeader) -> RecordPosition:
    """Where the record ends at this moment: a reader must not run for ever behind a writer that is faster."""
    try:
        with parts.open_segment(head.part) as file:
            return RecordPosition(head.part, file.seek(0, os.SEEK_END))
    except FileNotFoundError:
        return RecordPosition(head.part)


def count_torn_records(folder: Path) -> int:
    """How many torn records were cut off this session's record so far."""
    try:
        with open_for_reading(folder / TORN_FILE) as file:
            return file.read(BLOCK_BYTES).count(b"\n")
    except OSError:
        return 0


def _read_first_lines(path: Path) -> list[bytes]:
    """The lines within the first block of a file; its beginning at least."""
    try:
        with open_for_reading(path) as file:
            return file.read(BLOCK_BYTES).split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return []
