"""Read records: all events in batches, or only the last ones, skipping and counting damaged lines."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, Self

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded, RunQueued, RunStarted
from retinue.sessions import storage_errors as faults
from retinue.sessions.paths import (
    RecordPosition,
    RunLocation,
    StateLayout,
    open_for_reading,
    parse_id_digits,
    read_run_pointer,
)
from retinue.sessions.segments import (
    BLOCK_BYTES,
    NewerVersion,
    RecordDecoder,
    SegmentCursor,
    SegmentedFile,
    SegmentHeader,
    parse_segment_header,
    read_backwards,
)

TORN_FILE = "session.torn"
"""Keeps the bytes cut off after the last whole record, one cut per line."""
_MAX_FIRST_LINES = 4
"""Lines within which the start of a run is found: header, queued, started."""


def read_header(segments: SegmentedFile) -> SegmentHeader | NewerVersion | None:
    """Return the header of the newest segment; None if the record has none.

    A missing or damaged header is derived from the last segment before it that has one, or from the first event.
    """
    lines = _read_first_lines(segments.newest)
    if lines and (found := parse_segment_header(lines[0])):
        return found
    older = segments.list_closed()
    for number in reversed(older):  # after a power cut several may be empty
        before = _read_first_lines(segments.segment_path(number))
        match parse_segment_header(before[0]) if before else None:
            case SegmentHeader() as found:
                return replace(found, part=older[-1] + 1)
            case NewerVersion() as newer:
                return newer
    for line in lines:
        if (record := RecordDecoder().decode_event(line)) and parse_id_digits(record.origin.session):
            part = older[-1] + 1 if older else 1
            return SegmentHeader(id=record.origin.session, part=part, created=record.time)
    return None


def _read_first_lines(path: Path) -> list[bytes]:
    """Return the lines within the first block of a file; at least the start of the first line."""
    try:
        with open_for_reading(path) as file:
            return file.read(BLOCK_BYTES).split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return []


def count_torn_records(folder: Path) -> int:
    """Return how many torn records were cut off this session's record so far."""
    try:
        with open_for_reading(folder / TORN_FILE) as file:
            return file.read(BLOCK_BYTES).count(b"\n")
    except OSError:
        return 0


def find_start(segments: SegmentedFile, head: SegmentHeader) -> RecordPosition:
    """Return the position from which the oldest event that counts is searched."""
    return RecordPosition(next((number for number in segments.list_closed() if number >= head.first), head.part))


def read_record_backwards(segments: SegmentedFile, head: SegmentHeader) -> Iterator[tuple[RecordPosition, bytes]]:
    """Yield the lines of a record from its end, across segments."""
    older = [number for number in segments.list_closed() if head.first <= number < head.part]
    for number in (head.part, *reversed(older)):
        try:
            file = segments.open_segment(number)
        except FileNotFoundError:
            continue
        with file:
            for offset, line in read_backwards(file):
                yield RecordPosition(number, offset), line


class RunStart(Struct, frozen=True):
    """The first events of a run."""

    number: int
    """1 for the session's first run."""
    queued: EventRecord
    started: EventRecord | None = None
    """None if it is not among the first lines."""


def find_run_location(
    layout: StateLayout, segments: SegmentedFile, head: SegmentHeader, run: str
) -> RunLocation | None:
    """Return where a run should start; None if its claim is lost or has no location."""
    if run == head.id:
        return RunLocation(1, find_start(segments, head))
    claimed = read_run_pointer(layout.session(run)) if parse_id_digits(run) else None
    return claimed[1] if claimed and claimed[0].session == head.id and claimed[0].run == run else None


def read_run_start(segments: SegmentedFile, location: RunLocation, run: str) -> RunStart | None:
    """Return the first events of a run; None if they are not at this location, because pruning moves records."""
    decoder = RecordDecoder()
    lines = SegmentCursor(segments, location.at, BLOCK_BYTES).read()[:_MAX_FIRST_LINES]
    events = [event for line in lines if (event := decoder.decode_event(line)) and event.origin.run == run]
    queued = next((event for event in events if isinstance(event.event, RunQueued)), None)
    started = next((event for event in events if isinstance(event.event, RunStarted)), None)
    return RunStart(location.number, queued, started) if queued else None


def read_last_events(folder: Path, session: str, count: int) -> list[EventRecord]:
    """Return the last events of a session, in the order they were written.

    Raises:
        RefusedError: `storage`.
    """
    found: deque[EventRecord] = deque()
    decoder = RecordDecoder(session)
    with faults.raise_storage_errors(f"Session {session}"):
        segments = SegmentedFile(folder)
        head = read_header(segments)
        if count <= 0 or not isinstance(head, SegmentHeader):
            return []
        for _, line in read_record_backwards(segments, head):
            found.extendleft(reversed(list(decoder.decode_events(line))))
            if len(found) >= count:
                break
    return list(found)[-count:]


class EventBatchSource(Protocol):
    """A source of events for `EventReader`; called in a worker thread."""

    damaged_count: int

    def read(self) -> list[EventRecord] | None:
        """Return the next events; None at the end.

        Raises:
            RefusedError: `storage`.
        """


class EventReader:
    """An async iterator over events that are read in batches in a worker thread."""

    def __init__(self, source: EventBatchSource, *, poll: float | None = None) -> None:
        """End with the source, or check every `poll` seconds for new events."""
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

    def __init__(self, layout: StateLayout, folder: Path, session: str, run: str | None = None) -> None:
        self.damaged_count = 0
        self._layout = layout
        self._folder = folder
        self._session = session
        self._run = run
        self._decoder = RecordDecoder(session)
        self._torn = 0
        self._cursor: SegmentCursor | None = None
        self._end = RecordPosition(0)
        self._at_end = False

    def read(self) -> list[EventRecord] | None:
        with faults.raise_storage_errors(f"Session {self._session}"):
            cursor = self._cursor or self._open()
            if cursor is None or self._at_end:
                return None
            if lines := cursor.read():
                events = [record for line in lines for record in self._decoder.decode_events(line)]
                self._at_end = cursor.at >= self._end
            else:
                self._at_end = True
                last = self._decoder.decode_event(cursor.read_rest())
                events = [last] if last else []
        self.damaged_count = self._torn + self._decoder.damaged_count + cursor.skipped
        return self._select_run(events) if self._run else events

    def _open(self) -> SegmentCursor | None:
        segments = SegmentedFile(self._folder)
        head = read_header(segments)
        if not isinstance(head, SegmentHeader) or head.id != self._session:
            return None
        self._torn = count_torn_records(self._folder)
        start = find_start(segments, head)
        if self._run:
            location = find_run_location(self._layout, segments, head, self._run)
            if location and read_run_start(segments, location, self._run):
                start = location.at
        self._cursor = SegmentCursor(segments, start)
        self._end = _find_end(segments, head)
        return self._cursor

    def _select_run(self, events: list[EventRecord]) -> list[EventRecord]:
        selected = [record for record in events if record.origin.run == self._run]
        if selected and isinstance(selected[-1].event, RunEnded):
            self._at_end = True
        return selected


def _find_end(segments: SegmentedFile, head: SegmentHeader) -> RecordPosition:
    """Return where the record ends now, so that a reader does not follow a faster writer for ever."""
    try:
        with segments.open_segment(head.part) as file:
            return RecordPosition(head.part, file.seek(0, os.SEEK_END))
    except FileNotFoundError:
        return RecordPosition(head.part)
