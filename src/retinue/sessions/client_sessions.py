"""The sessions of one client among all those of a state folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.store import EVERY_SESSION, Conversation, SessionFilter, SessionSummary, group_conversations


class ClientStore(JsonlStore):
    """Finds and lists the sessions of one client only.

    The root conversation of a session tells its client: the roots of a client begin with its name.
    """

    def __init__(self, folder: Path, client: str) -> None:
        super().__init__(folder)
        self._roots = make_client_root(client, "")

    async def find(self, name: str) -> str | None:
        session = await super().find(name)
        return session if session and await self.summary(session) else None

    async def summary(self, session: str) -> SessionSummary | None:
        found = await super().summary(session)
        return found if found and found.root.startswith(self._roots) else None

    async def list(
        self, session_filter: SessionFilter = EVERY_SESSION, *, refresh: bool = True
    ) -> Sequence[SessionSummary]:
        every = await super().list(structs.replace(session_filter, limit=None), refresh=refresh)
        return [each for each in every if each.root.startswith(self._roots)][: session_filter.limit]

    async def conversations(
        self, session_filter: SessionFilter = EVERY_SESSION, *, max_sessions: int, refresh: bool = True
    ) -> Sequence[Conversation]:
        return group_conversations(await self.list(refresh=refresh), session_filter, max_sessions)


def make_client_root(client: str | None, conversation: str) -> str:
    """Return the id of a root conversation of a client, or of the user's own without a client."""
    return f"{client}-{conversation}" if client else conversation
