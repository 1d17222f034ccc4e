"""What each root conversation has spent: in this process, and before in others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from retinue.guards.budget import Purse
from retinue.sessions.spending import spent_under
from retinue.sessions.store import SessionStore
from retinue.types import Limits

MOST = 10_000
"""Conversations that are remembered although nothing runs in them: a server sees new ones for as long as it lives."""


class _Account:
    def __init__(self) -> None:
        self.purse = Purse(Limits())
        """What all its runs spend."""
        self.calls = 0
        """Of it, under way at this moment."""


class Accounts:
    """What each conversation has spent, by its id."""

    def __init__(self, store: SessionStore, most: int = MOST) -> None:
        self._store = store
        self._most = most
        self._accounts: dict[str, _Account] = {}
        """Those last used stand last."""
        self._has_forgotten = False
        self._looking_back = anyio.Lock()
        """Held by who asks the store: what it says is counted once."""

    def __len__(self) -> int:
        return len(self._accounts)

    def begin(self, root: str) -> None:
        """A conversation begins here: what the store says of it need not be asked."""
        self._of(root)

    def knows(self, root: str) -> bool:
        """Whether all that the conversation spent here is counted; else it is to `go_on`."""
        return root in self._accounts or not self._has_forgotten

    async def go_on(self, root: str) -> None:
        """Counts what earlier runs of the conversation consumed; the first time only.

        Raises:
            Refused: `storage`.
        """
        async with self._looking_back:
            if root not in self._accounts:
                usage = await spent_under(self._store, root)
                self._of(root).purse.spend(usage)

    @contextmanager
    def kept(self, root: str) -> Iterator[None]:
        """A block in which the conversation is not forgotten: runs of it are at work."""
        account = self._of(root)
        account.calls += 1
        try:
            yield
        finally:
            account.calls -= 1
            self._accounts[root] = self._accounts.pop(root)

    def purse(self, root: str) -> Purse:
        """What all runs of a conversation spend."""
        return self._of(root).purse

    def _of(self, root: str) -> _Account:
        account = self._accounts.get(root)
        if account is None:
            self._make_room()
            account = self._accounts[root] = _Account()
        return account

    def _make_room(self) -> None:
        """Forgets the conversation that was not used for the longest: the store has what there is to know of it."""
        if len(self._accounts) >= self._most:
            idle = next((root for root, account in self._accounts.items() if not account.calls), None)
            if idle is not None:
                del self._accounts[idle]
                self._has_forgotten = True
