"""What could not be written: kept in memory for as long as the process lives, bounded, and read from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Self

import msgspec

from retinue.model.event_codec import EventRecord, from_line
from retinue.sessions.memory import Session
from retinue.sessions.reader import EventReader
from retinue.sessions.store import SessionSummary

MAX_BYTES = 64 * 2**20
"""Of all lines that are kept; the oldest sessions are forgotten first."""


class UnsavedSessions:
    """The lines of sessions that could not be written, by session."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lines: dict[str, list[bytes]] = {}
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def lines(self, session: str) -> Sequence[bytes]:
        return self._lines.get(session, ())

    def add(self, session: str, lines: Iterable[bytes]) -> None:
        """Keep lines of a session after those it has; forget the oldest sessions if there is no room."""
        kept = [*self._lines.pop(session, ())]
        new = list(lines)
        self._lines[session] = kept + new
        self._size += sum(map(len, new))
        while self._size > self._max_bytes:
            oldest = next(iter(self._lines))
            self._size -= sum(map(len, self._lines.pop(oldest)))


class UnsavedReader:
    """Reads the stored events of a session, then those that wait to be stored."""

    def __init__(self, stored: EventReader, unsaved: Sequence[EventRecord]) -> None:
        self._stored: EventReader | None = stored
        self._unsaved = iter(unsaved)
        self._newest: dict[str, int] = {}
        """The last stored event of each run: what was written meanwhile is not read twice."""
        self.damaged_count = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventRecord:
        while self._stored is not None:
            try:
                stored = await anext(self._stored)
                self._newest[stored.origin.run] = stored.seq
            except StopAsyncIteration:
                self.damaged_count, self._stored = self._stored.damaged_count, None
            else:
                return stored
        for stamped in self._unsaved:
            if stamped.seq > self._newest.get(stamped.origin.run, 0):
                return stamped
        raise StopAsyncIteration


def decode_lines(lines: Iterable[bytes], run: str | None = None) -> list[EventRecord]:
    """Return the events of the lines, or those of one run."""
    found = []
    for line in lines:
        with suppress(msgspec.MsgspecError):
            stamped = from_line(line)
            if run in {None, stamped.origin.run}:
                found.append(stamped)
    return found


def find_unsaved(wanted: str, sessions: Iterable[str], lines: Callable[[str], Sequence[bytes]]) -> str | None:
    """Return the session whose id, or the id of one of whose runs, starts with the digits."""
    run = b'"run":"%b' % wanted.encode()  # a quote inside a text would be escaped
    for session in sessions:
        if session.startswith(wanted) or any(run in line for line in lines(session)):
            return session
    return None


def summarize(session: str, events: Iterable[EventRecord], *, live: bool) -> SessionSummary | None:
    """Return the summary of a session from its events."""
    found = Session(session)
    found.is_busy = live
    found.events.extend(events)
    return found.summary()
