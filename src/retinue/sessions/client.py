"""The sessions of one client among all those of a state folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from retinue.sessions.grouping import grouped
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.store import ALL, Conversation, SessionSummary, Wanted


class ClientStore(JsonlStore):
    """Finds and lists what one client began: whatever else is in the folder does not exist for it.

    A session is a client's by the root conversation it stands under: the roots of a client begin with its name.
    """

    def __init__(self, folder: Path, client: str) -> None:
        super().__init__(folder)
        self._roots = client_root(client, "")

    async def find(self, name: str) -> str | None:
        session = await super().find(name)
        return session if session and await self.summary(session) else None

    async def summary(self, session: str) -> SessionSummary | None:
        found = await super().summary(session)
        return found if found and found.root.startswith(self._roots) else None

    async def list(self, wanted: Wanted = ALL, *, look: bool = True) -> Sequence[SessionSummary]:
        every = await super().list(structs.replace(wanted, limit=None), look=look)
        return [each for each in every if each.root.startswith(self._roots)][: wanted.limit]

    async def conversations(self, wanted: Wanted = ALL, *, most: int, look: bool = True) -> Sequence[Conversation]:
        return grouped(await self.list(look=look), wanted, most)


def client_root(client: str | None, conversation: str) -> str:
    """The id of a root conversation of a client; of the user's own where there is none."""
    return f"{client}-{conversation}" if client else conversation
