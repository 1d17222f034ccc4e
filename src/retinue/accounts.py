"""What each root conversation has started and spent: in this process, and before in others."""

from __future__ import annotations

from collections import Counter

import anyio

from retinue.guards.budget import Purse
from retinue.sessions.spending import spent_under
from retinue.sessions.store import SessionStore
from retinue.types import Code, Limits, refused


class Accounts:
    """By the ids of the conversations."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._started: Counter[str] = Counter()
        self._purses: dict[str, Purse] = {}
        self._looking_back = anyio.Lock()
        """Held by who asks the store: what it says is counted once."""

    def begin(self, root: str) -> None:
        """A conversation begins here: what the store says of it need not be asked."""
        self.purse(root)

    async def go_on(self, root: str) -> None:
        """Counts the runs of a conversation that others have begun, and what they consumed; the first time only.

        Raises:
            Refused: `storage`.
        """
        async with self._looking_back:
            if root not in self._purses:
                runs, usage = await spent_under(self._store, root)
                self._started[root] += runs
                self.purse(root).spend(usage)

    def count(self, root: str, runs: int, limit: int) -> None:
        """Counts runs that are to be started.

        Raises:
            Refused: `spawn_limit`: these are more than the conversation may start.
        """
        if self._started[root] + runs > limit:
            started = f"{self._started[root]} run{'s' * (self._started[root] != 1)}"
            raise refused(
                Code.SPAWN_LIMIT,
                f"This conversation has started {started} and may start {limit} (max_spawns); {runs} more "
                f"{'was' if runs == 1 else 'were'} refused and nothing was started. Do the rest without delegating "
                "or in another conversation, or raise max_spawns in your config.toml.",
            )
        self._started[root] += runs

    def give_back(self, root: str, runs: int) -> None:
        """Runs that were counted are not started after all."""
        self._started[root] -= runs

    def purse(self, root: str) -> Purse:
        """What all runs of a conversation spend."""
        return self._purses.setdefault(root, Purse(Limits()))
