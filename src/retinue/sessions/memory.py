"""Store sessions in memory, for tests with a virtual clock and for callers that want nothing written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Self

import anyio
from msgspec.structs import replace

from retinue.model.errors import ErrorCode, RefusedError, refuse
from retinue.model.event_codec import EventRecord
from retinue.model.runs import RunSpec
from retinue.sessions.lease import busy_failure
from retinue.sessions.paths import SHORT_ID_LENGTH, make_random_id, parse_id_digits
from retinue.sessions.search import find_event_match
from retinue.sessions.store import (
    EVERY_SESSION,
    Conversation,
    SessionFilter,
    SessionSummary,
    group_conversations,
    sort_sessions,
)
from retinue.sessions.summary import summarize_events


class MemoryStore:
    """Keeps everything until the process ends. No threads, no files."""

    def __init__(self, new_id: Callable[[], str] = make_random_id) -> None:
        self._new_id = new_id
        self._claimed: dict[str, str] = {}
        """Session by the first digits of every id."""
        self._sessions: dict[str, Session] = {}

    def claim(self, session: str | None = None) -> str:
        while (fresh := self._new_id())[:SHORT_ID_LENGTH] in self._claimed:
            pass
        self._claimed[fresh[:SHORT_ID_LENGTH]] = session or fresh
        return fresh

    async def open_record(self, spec: RunSpec) -> MemoryRecord:
        await anyio.lowlevel.checkpoint()
        if spec.resumes and not self._has_begun(spec.session):
            raise refuse(ErrorCode.SESSION_NOT_FOUND, f"Session {spec.session} not found. Start a new session.")
        session = self._sessions.setdefault(spec.session, Session(spec.session))
        if session.is_busy:
            raise RefusedError(busy_failure(spec.session, None))
        self._claimed.setdefault(spec.run[:SHORT_ID_LENGTH], spec.session)
        session.is_busy = True
        return MemoryRecord(session)

    async def find(self, name: str) -> str | None:
        await anyio.lowlevel.checkpoint()
        session_filter = parse_id_digits(name)
        session = (
            self._sessions.get(self._claimed.get(session_filter[:SHORT_ID_LENGTH], "")) if session_filter else None
        )
        if session is None or session_filter is None:
            return None
        return session.id if any(known.startswith(session_filter) for known in session.ids()) else None

    async def is_locked(self, session: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return session in self._sessions and self._sessions[session].is_busy

    async def summary(self, session: str) -> SessionSummary | None:
        await anyio.lowlevel.checkpoint()
        found = self._sessions.get(session)
        return found.summary() if found else None

    async def list(self, session_filter: SessionFilter = EVERY_SESSION) -> Sequence[SessionSummary]:
        await anyio.lowlevel.checkpoint()
        return sort_sessions(self._summaries(session_filter.text), session_filter)

    async def conversations(
        self, session_filter: SessionFilter = EVERY_SESSION, *, max_sessions: int
    ) -> Sequence[Conversation]:
        await anyio.lowlevel.checkpoint()
        return group_conversations(self._summaries(session_filter.text), session_filter, max_sessions)

    def events(self, session: str, *, run: str | None = None) -> _MemoryEvents:
        found = self._sessions.get(session)
        return _MemoryEvents(record for record in (found.events if found else ()) if run in {None, record.origin.run})

    async def tail(self, session: str, count: int) -> Sequence[EventRecord]:
        await anyio.lowlevel.checkpoint()
        found = self._sessions.get(session)
        return found.events[-count:] if found and count > 0 else ()

    async def recover(self) -> Sequence[SessionSummary]:
        await anyio.lowlevel.checkpoint()
        return ()

    def _summaries(self, text: str | None) -> Iterator[SessionSummary]:
        for session in self._sessions.values():
            if summary := session.summary():
                yield (
                    summary
                    if text is None
                    else replace(summary, match=find_event_match(summary, session.events, text))
                )

    def _has_begun(self, session: str) -> bool:
        return session in self._sessions and bool(self._sessions[session].events)


class Session:
    """The events of one session."""

    def __init__(self, session: str) -> None:
        self.id = session
        self.is_busy = False
        self.events: list[EventRecord] = []

    def ids(self) -> set[str]:
        return {self.id, *(record.origin.run for record in self.events)} if self.events else set()

    def summary(self) -> SessionSummary | None:
        return summarize_events(self.id, self.events, is_live=self.is_busy)


class MemoryRecord:
    """The record of one run in memory."""

    file = None
    fault = None

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_released = False

    def append(self, record: EventRecord) -> None:
        if not self._is_released:
            self._session.events.append(record)

    async def sync(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._session.is_busy = False


class _MemoryEvents:
    damaged_count = 0

    def __init__(self, events: Iterator[EventRecord]) -> None:
        self._events = events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventRecord:
        await anyio.lowlevel.checkpoint()
        for record in islice(self._events, 1):
            return record
        raise StopAsyncIteration
