"""Read access to the sessions of a store: works without opening Retinue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from retinue.model.errors import ErrorCode, refuse
from retinue.model.event_codec import EventRecord
from retinue.sessions.store import (
    EVERY_SESSION,
    Conversation,
    IndexProgress,
    LeaseOwner,
    LocalSessionStore,
    SessionFilter,
    SessionStore,
    SessionSummary,
    StoredEvents,
)
from retinue.support.formatting import SHORT_ID_LENGTH


class StoredSessions:
    """Lists, finds and reads sessions."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._local_store = store if isinstance(store, LocalSessionStore) else None

    async def sessions(self, wanted: SessionFilter = EVERY_SESSION, *, look: bool = True) -> Sequence[SessionSummary]:
        """Return the sessions that match the filter, last changed first; without `look`, as they were last read."""
        if self._local_store:
            return await self._local_store.list(wanted, refresh=look)
        return await self._store.list(wanted)

    async def conversations(self, wanted: SessionFilter, *, most: int, look: bool = True) -> Sequence[Conversation]:
        """Return the conversations of matching sessions, last changed first, with at most `most` sessions each."""
        if self._local_store:
            return await self._local_store.conversations(wanted, max_sessions=most, refresh=look)
        return await self._store.conversations(wanted, max_sessions=most)

    async def advance_index(self, max_seconds: float, *, for_search: bool = False) -> IndexProgress | None:
        """Read changed records for at most so many seconds; None if the store has no index that is read in parts.

        `for_search` reads their texts, too, for the next search.
        """
        if self._local_store is None:
            return None
        return await self._local_store.advance_index(max_seconds, for_search=for_search)

    @property
    def scans_records(self) -> bool:
        """Whether the last search read every record, because SQLite has no full-text index here: it took longer."""
        return self._local_store is not None and self._local_store.has_scanned_records()

    async def names(self) -> frozenset[str]:
        """Return the first 8 digits of every session and latest run, so that a caller can find new ones."""
        if self._local_store:
            return await self._local_store.names()
        sessions = await self._store.list()
        return frozenset(id_[:SHORT_ID_LENGTH] for each in sessions for id_ in (each.session, each.latest.run))

    async def session(self, name: str) -> SessionSummary | None:
        """Return the session that an id, or a prefix of at least 8 digits, of it or of one of its runs names."""
        session = await self._store.find(name)
        return await self._store.summary(session) if session else None

    async def history(self, name: str, *, run: str | None = None) -> AsyncIterator[EventRecord]:
        """Yield the events of a session, or of one of its runs, from the first.

        Raises:
            RefusedError: `session_not_found`.
        """
        async for record in self._store.events(await self._find(name), run=run):
            yield record

    async def tail(self, name: str, count: int) -> Sequence[EventRecord]:
        """Return the last events of a session, at a cost that does not grow with its size.

        Raises:
            RefusedError: `session_not_found`.
        """
        return await self._store.tail(await self._find(name), count)

    async def recover(self) -> Sequence[SessionSummary]:
        """End the runs whose process has died, with what they had; return their sessions."""
        return await self._store.recover()

    async def owners(self) -> Sequence[LeaseOwner]:
        """Return the processes that execute runs of this store now; none if processes cannot share the store."""
        return await self._local_store.owners() if self._local_store else ()

    def root_history(self, root: str, *, follow: bool = False) -> StoredEvents:
        """Return every durable event under a root conversation; with `follow` also those to come, without end.

        Raises:
            RefusedError: `unsupported`: the store keeps no log of conversations.
        """
        store = self._require_local_store()
        return store.follow(root) if follow else store.root_events(root)

    def _require_local_store(self) -> LocalSessionStore:
        if self._local_store is None:
            raise refuse(
                ErrorCode.UNSUPPORTED,
                "This function needs a store of session files, but this Retinue was created with another store.",
            )
        return self._local_store

    async def _find(self, name: str) -> str:
        session = await self._store.find(name)
        if session is None:
            raise refuse(
                ErrorCode.SESSION_NOT_FOUND,
                f'Session "{name}" not found. `retinue sessions list` shows the existing sessions.',
            )
        return session
