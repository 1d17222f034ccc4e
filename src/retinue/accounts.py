"""What each root conversation has started and spent: in this process, and before in others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from retinue.guards.budget import Purse
from retinue.sessions.spending import spent_under
from retinue.sessions.store import SessionStore
from retinue.types import Code, Limits, refused

MOST = 10_000
"""Conversations that are remembered although nothing runs in them: a server sees new ones for as long as it lives."""


class _Account:
    def __init__(self) -> None:
        self.started = 0
        self.purse = Purse(Limits())
        """What all its runs spend."""
        self.calls = 0
        """Of it, under way at this moment."""


class Accounts:
    """By the ids of the conversations."""

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
        """Whether all that the conversation started here is counted; else it is to `go_on`."""
        return root in self._accounts or not self._has_forgotten

    async def go_on(self, root: str) -> None:
        """Counts the runs of a conversation that others have begun, and what they consumed; the first time only.

        Raises:
            Refused: `storage`.
        """
        async with self._looking_back:
            if root not in self._accounts:
                runs, usage = await spent_under(self._store, root)
                account = self._of(root)
                account.started += runs
                account.purse.spend(usage)

    def count(self, root: str, runs: int, limit: int) -> None:
        """Counts runs that are to be started.

        Raises:
            Refused: `spawn_limit`: these are more than the conversation may start.
        """
        account = self._of(root)
        if account.started + runs > limit:
            started = f"{account.started} run{'s' * (account.started != 1)}"
            raise refused(
                Code.SPAWN_LIMIT,
                f"This conversation has started {started} and may start {limit} (max_spawns); {runs} more "
                f"{'was' if runs == 1 else 'were'} refused and nothing was started. Do the rest without delegating "
                "or in another conversation, or raise max_spawns in your config.toml.",
            )
        account.started += runs

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

    def give_back(self, root: str, runs: int) -> None:
        """Runs that were counted are not started after all."""
        self._of(root).started -= runs

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
