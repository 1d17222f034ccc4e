"""Sessions in memory: for tests under a virtual clock and for callers that want nothing written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Self

import anyio

from retinue.events import RunQueued, RunStarted, Stamped
from retinue.sessions.claims import random_id
from retinue.sessions.grouping import grouped, in_order
from retinue.sessions.lease import busy
from retinue.sessions.paths import SHORT, digits
from retinue.sessions.store import ALL, Conversation, SessionSummary, Wanted
from retinue.sessions.summary import Beginning, facts_of, summary_of
from retinue.types import Code, Refused, RunSpec, refused


class MemoryStore:
    """Keeps everything as long as it lives. No threads, no files; a run's owner is always alive."""

    def __init__(self, new_id: Callable[[], str] = random_id) -> None:
        self._new_id = new_id
        self._claimed: dict[str, str] = {}
        """Session by the first digits of every id."""
        self._sessions: dict[str, Session] = {}

    def claim(self, session: str | None = None) -> str:
        while (fresh := self._new_id())[:SHORT] in self._claimed:
            pass
        self._claimed[fresh[:SHORT]] = session or fresh
        return fresh

    async def begin(self, spec: RunSpec) -> MemoryRecord:
        await anyio.lowlevel.checkpoint()
        if spec.resumes and not self._has_begun(spec.session):
            raise refused(Code.SESSION_NOT_FOUND, f"Session {spec.session} is not known. Begin a new one.")
        session = self._sessions.setdefault(spec.session, Session(spec.session))
        if session.is_busy:
            raise Refused(busy(spec.session, None))
        self._claimed.setdefault(spec.run[:SHORT], spec.session)
        session.is_busy = True
        return MemoryRecord(session)

    async def find(self, name: str) -> str | None:
        await anyio.lowlevel.checkpoint()
        wanted = digits(name)
        session = self._sessions.get(self._claimed.get(wanted[:SHORT], "")) if wanted else None
        if session is None or wanted is None:
            return None
        return session.id if any(known.startswith(wanted) for known in session.ids()) else None

    async def busy(self, session: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return session in self._sessions and self._sessions[session].is_busy

    async def summary(self, session: str) -> SessionSummary | None:
        await anyio.lowlevel.checkpoint()
        found = self._sessions.get(session)
        return found.summary() if found else None

    async def list(self, wanted: Wanted = ALL) -> Sequence[SessionSummary]:
        await anyio.lowlevel.checkpoint()
        return in_order(self._summaries(), wanted)

    async def conversations(self, wanted: Wanted = ALL, *, most: int) -> Sequence[Conversation]:
        await anyio.lowlevel.checkpoint()
        return grouped(self._summaries(), wanted, most)

    def events(self, session: str, *, run: str | None = None) -> _Events:
        found = self._sessions.get(session)
        return _Events(stamped for stamped in (found.events if found else ()) if run in {None, stamped.origin.run})

    async def tail(self, session: str, count: int) -> Sequence[Stamped]:
        await anyio.lowlevel.checkpoint()
        found = self._sessions.get(session)
        return found.events[-count:] if found and count > 0 else ()

    async def recover(self) -> Sequence[SessionSummary]:
        await anyio.lowlevel.checkpoint()
        return ()

    def _summaries(self) -> Iterator[SessionSummary]:
        return filter(None, (session.summary() for session in self._sessions.values()))

    def _has_begun(self, session: str) -> bool:
        return session in self._sessions and bool(self._sessions[session].events)


class Session:
    """The events of one session."""

    def __init__(self, session: str) -> None:
        self.id = session
        self.is_busy = False
        self.events: list[Stamped] = []

    def ids(self) -> set[str]:
        return {self.id, *(stamped.origin.run for stamped in self.events)} if self.events else set()

    def summary(self) -> SessionSummary | None:
        if not self.events:
            return None
        run = self.events[-1].origin.run
        queued = [stamped for stamped in self.events if isinstance(stamped.event, RunQueued)]
        started = (each for each in self.events if isinstance(each.event, RunStarted) and each.origin.run == run)
        begins = Beginning(len(queued), queued[-1], next(started, None)) if queued else None
        first = Beginning(1, queued[0]) if queued else None
        facts = facts_of(self.id, self.events[0].time, begins, reversed(self.events), first=first)
        return summary_of(facts, live=self.is_busy)


class MemoryRecord:
    """The record of one run in memory."""

    file = None
    fault = None

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_released = False

    def append(self, stamped: Stamped) -> None:
        if not self._is_released:
            self._session.events.append(stamped)

    async def sync(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._session.is_busy = False


class _Events:
    damaged = 0

    def __init__(self, events: Iterator[Stamped]) -> None:
        self._events = events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Stamped:
        await anyio.lowlevel.checkpoint()
        for stamped in islice(self._events, 1):
            return stamped
        raise StopAsyncIteration
