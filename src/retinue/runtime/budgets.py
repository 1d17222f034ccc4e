"""What each root conversation has spent: in this process, and before in others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from retinue.guards.budget import Budget
from retinue.model.runs import Limits
from retinue.sessions.store import SessionStore, sum_usage_under

MAX_CONVERSATIONS = 10_000
"""Conversations that are remembered although nothing runs in them: a server sees new ones for as long as it lives."""


class _ConversationUsage:
    def __init__(self) -> None:
        self.budget = Budget(Limits())
        """What all its runs spend."""
        self.active_calls = 0
        """Of it, under way at this moment."""


class ConversationBudgets:
    """What each conversation has spent, by its id."""

    def __init__(self, store: SessionStore, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._store = store
        self._max_conversations = max_conversations
        self._conversations: dict[str, _ConversationUsage] = {}
        """Those last used stand last."""
        self._has_evicted = False
        self._load_lock = anyio.Lock()
        """Held by who asks the store: what it says is counted once."""

    def __len__(self) -> int:
        return len(self._conversations)

    def start(self, root: str) -> None:
        """A conversation begins here: what the store says of it need not be asked."""
        self._get_or_create(root)

    def is_loaded(self, root: str) -> bool:
        """Whether all that the conversation spent here is counted; else it is to `go_on`."""
        return root in self._conversations or not self._has_evicted

    async def load_from_store(self, root: str) -> None:
        """Counts what earlier runs of the conversation consumed; the first time only.

        Raises:
            Refused: `storage`.
        """
        async with self._load_lock:
            if root not in self._conversations:
                usage = await sum_usage_under(self._store, root)
                self._get_or_create(root).budget.add(usage)

    @contextmanager
    def in_use(self, root: str) -> Iterator[None]:
        """A block in which the conversation is not forgotten: runs of it are at work."""
        conversation = self._get_or_create(root)
        conversation.active_calls += 1
        try:
            yield
        finally:
            conversation.active_calls -= 1
            self._conversations[root] = self._conversations.pop(root)

    def budget(self, root: str) -> Budget:
        """What all runs of a conversation spend."""
        return self._get_or_create(root).budget

    def _get_or_create(self, root: str) -> _ConversationUsage:
        conversation = self._conversations.get(root)
        if conversation is None:
            self._evict_idle()
            conversation = self._conversations[root] = _ConversationUsage()
        return conversation

    def _evict_idle(self) -> None:
        """Forgets the conversation that was not used for the longest: the store has what there is to know of it."""
        if len(self._conversations) >= self._max_conversations:
            idle = next(
                (root for root, conversation in self._conversations.items() if not conversation.active_calls), None
            )
            if idle is not None:
                del self._conversations[idle]
                self._has_evicted = True
