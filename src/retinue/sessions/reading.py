"""Reads records: whole and streaming, or just their last events, skipping and counting what is damaged."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, Self

import anyio
from msgspec.structs import replace

from retinue.events import RunEnded, Stamped
from retinue.sessions import faults
from retinue.sessions.framing import Decoder, Header, Newer, header
from retinue.sessions.parts import BLOCK_BYTES, Cursor, Parts, Position, backwards, session_parts
from retinue.sessions.paths import digits, open_for_reading

TORN = "session.torn"
"""Keeps what was cut off behind the last whole record, one cut per line."""


def read_header(parts: Parts) -> Header | Newer | None:
    """What the newest part says of the record; None if there is none.

    A header that is missing or damaged is made up from the part before it or from the first event.
    """
    lines = _first_lines(parts.newest)
    if lines and (found := header(lines[0])):
        return found
    older = parts.older()
    if older and (before := _first_lines(parts.path(older[-1]))):
        match header(before[0]):
            case Header() as found:
                return replace(found, part=older[-1] + 1)
            case Newer() as newer:
                return newer
    for line in lines:
        if (stamped := Decoder().event(line)) and digits(stamped.origin.session):
            part = older[-1] + 1 if older else 1
            return Header(id=stamped.origin.session, part=part, created=stamped.time)
    return None


def beginning(parts: Parts, head: Header) -> Position:
    """Where the oldest event that counts is looked for."""
    return Position(next((number for number in parts.older() if number >= head.first), head.part))


def lines_backwards(parts: Parts, head: Header) -> Iterator[tuple[Position, bytes]]:
    """The lines of a record from its end, across parts."""
    older = [number for number in parts.older() if head.first <= number < head.part]
    for number in (head.part, *reversed(older)):
        try:
            file = parts.open(number)
        except FileNotFoundError:
            continue
        with file:
            for offset, line in backwards(file):
                yield Position(number, offset), line


def last_events(folder: Path, session: str, count: int) -> list[Stamped]:
    """The last events of a session, in the order they were written.

    Raises:
        Refused: `storage`.
    """
    found: deque[Stamped] = deque()
    decoder = Decoder(session)
    with faults.refusing(f"Session {session}"):
        parts = session_parts(folder)
        head = read_header(parts)
        if count <= 0 or not isinstance(head, Header):
            return []
        for _, line in lines_backwards(parts, head):
            found.extendleft(reversed(list(decoder.events(line))))
            if len(found) >= count:
                break
    return list(found)[-count:]


class Source(Protocol):
    """Where an `EventReader` gets its events; called in a worker thread."""

    damaged: int

    def read(self) -> list[Stamped] | None:
        """The next events; None at the end."""


class EventReader:
    """Events read in batches in a worker thread."""

    def __init__(self, source: Source, *, poll: float | None = None) -> None:
        """Ends with the source, or looks again every so many seconds for what was written meanwhile."""
        self._source = source
        self._poll = poll
        self._ready: deque[Stamped] = deque()

    @property
    def damaged(self) -> int:
        return self._source.damaged

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Stamped:
        while not self._ready:
            batch = await anyio.to_thread.run_sync(self._source.read)
            if batch is not None:
                self._ready.extend(batch)
            elif self._poll is None:
                raise StopAsyncIteration
            else:
                await anyio.sleep(self._poll)
        return self._ready.popleft()


class SessionSource:
    """The events of a session, or of one of its runs."""

    def __init__(
        self,
        folder: Path,
        session: str,
        run: str | None = None,
        locate: Callable[[Parts, Header], Position | None] | None = None,
    ) -> None:
        """Reads from where `locate` finds the run, or from the start."""
        self.damaged = 0
        self._folder = folder
        self._session = session
        self._run = run
        self._locate = locate
        self._decoder = Decoder(session)
        self._torn = 0
        self._cursor: Cursor | None = None
        self._end = Position(0)
        self._at_end = False

    def read(self) -> list[Stamped] | None:
        """The next events; None at the end.

        Raises:
            Refused: `storage`.
        """
        with faults.refusing(f"Session {self._session}"):
            return self._read()

    def _read(self) -> list[Stamped] | None:
        cursor = self._cursor or self._open()
        if cursor is None or self._at_end:
            return None
        lines = cursor.read()
        if lines:
            events = [stamped for line in lines for stamped in self._decoder.events(line)]
            self._at_end = cursor.at >= self._end
        else:
            self._at_end = True
            last = self._decoder.event(cursor.rest())
            events = [last] if last else []
        self.damaged = self._torn + self._decoder.damaged + cursor.skipped
        return self._of_run(events) if self._run else events

    def _open(self) -> Cursor | None:
        parts = session_parts(self._folder)
        head = read_header(parts)
        if not isinstance(head, Header) or head.id != self._session:
            return None
        self._torn = torn_count(self._folder)
        begins = self._locate(parts, head) if self._locate else None
        self._cursor = Cursor(parts, begins or beginning(parts, head))
        self._end = _end(parts, head)
        return self._cursor

    def _of_run(self, events: list[Stamped]) -> list[Stamped]:
        own = [stamped for stamped in events if stamped.origin.run == self._run]
        if own and isinstance(own[-1].event, RunEnded):
            self._at_end = True
        return own


def _end(parts: Parts, head: Header) -> Position:
    """Where the record ends at this moment: a reader must not run for ever behind a writer that is faster."""
    try:
        with parts.open(head.part) as file:
            return Position(head.part, file.seek(0, os.SEEK_END))
    except FileNotFoundError:
        return Position(head.part)


def torn_count(folder: Path) -> int:
    """How many torn records were cut off this session's record so far."""
    try:
        with open_for_reading(folder / TORN) as file:
            return file.read(BLOCK_BYTES).count(b"\n")
    except OSError:
        return 0


def _first_lines(path: Path) -> list[bytes]:
    """The lines within the first block of a file; its beginning at least."""
    try:
        with open_for_reading(path) as file:
            return file.read(BLOCK_BYTES).split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return []
