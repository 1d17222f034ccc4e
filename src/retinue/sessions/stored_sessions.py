"""The sessions of a store, as programs read them: known without opening Retinue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from retinue.model.errors import ErrorCode, refuse
from retinue.model.event_codec import EventRecord
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.store import (
    EVERY_SESSION,
    Conversation,
    LeaseOwner,
    SessionFilter,
    SessionStore,
    SessionSummary,
)


class StoredSessions:
    """Lists, finds and reads sessions."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def sessions(self, wanted: SessionFilter = EVERY_SESSION, *, look: bool = True) -> Sequence[SessionSummary]:
        """Sessions, last changed first. Known without opening Retinue, like all that follows.

        Without a look at what has changed they are as they were at the last look.
        """
        return await (self._store.list(wanted) if look else self._files.list(wanted, refresh=False))

    async def conversations(self, wanted: SessionFilter, *, most: int, look: bool = True) -> Sequence[Conversation]:
        """The root conversations of such sessions, last changed first, each with at most so many of its sessions."""
        return await self._files.conversations(wanted, max_sessions=most, refresh=look)

    async def names(self) -> frozenset[str]:
        """The first 8 digits of every session and later run: who has seen them before knows which are new."""
        return await self._files.names()

    async def session(self, name: str) -> SessionSummary | None:
        """The session that an id, or a prefix of at least 8 digits, of it or of one of its runs names."""
        session = await self._store.find(name)
        return await self._store.summary(session) if session else None

    async def history(self, name: str, *, run: str | None = None) -> AsyncIterator[EventRecord]:
        """The events of a session, or of one of its runs, from the first.

        Raises:
            Refused: `session_not_found`.
        """
        async for stamped in self._store.events(await self._found(name), run=run):
            yield stamped

    async def tail(self, name: str, count: int) -> Sequence[EventRecord]:
        """The last events of a session, at a cost that does not grow with its size.

        Raises:
            Refused: `session_not_found`.
        """
        return await self._store.tail(await self._found(name), count)

    async def recover(self) -> Sequence[SessionSummary]:
        """Ends the runs whose process has died since this one was opened, with what they had; their sessions."""
        return await self._store.recover()

    async def owners(self) -> Sequence[LeaseOwner]:
        """Who carries out runs in this state folder at this moment, in whatever process."""
        return await self._files.owners()

    async def _found(self, name: str) -> str:
        session = await self._store.find(name)
        if session is None:
            raise refuse(
                ErrorCode.SESSION_NOT_FOUND, f'Session "{name}" not found. `retinue sessions list` shows them.'
            )
        return session

    def root_history(self, root: str, *, follow: bool = False) -> AsyncIterator[EventRecord]:
        """Every durable event under a root conversation; with `follow` those to come, too, for ever."""
        return self._files.follow(root) if follow else self._files.root_events(root)

    @property
    def _files(self) -> JsonlStore:
        """The store, where sessions are in files.

        Raises:
            TypeError: another store was given.
        """
        if not isinstance(self._store, JsonlStore):
            raise TypeError("This is about sessions in files; Retinue was given another store.")
        return self._store
