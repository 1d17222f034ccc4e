"""The budgets of root conversations: spent in this process, and before in others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from retinue.guards.budget import Budget
from retinue.model.runs import Limits
from retinue.sessions.store import SessionStore, sum_usage_under

MAX_CONVERSATIONS = 10_000
"""Conversations that stay loaded while nothing runs in them: a long-lived server sees ever new ones."""


class _ConversationUsage:
    def __init__(self) -> None:
        self.budget = Budget(Limits())
        self.active_calls = 0
        """Calls that run now."""


class ConversationBudgets:
    """The budget of each conversation, by its id."""

    def __init__(self, store: SessionStore, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._store = store
        self._max_conversations = max_conversations
        self._conversations: dict[str, _ConversationUsage] = {}
        """In the order of their last use."""
        self._has_evicted = False
        self._load_lock = anyio.Lock()
        """Held while the store is read, so that stored usage is counted once."""

    def __len__(self) -> int:
        return len(self._conversations)

    def start(self, root: str) -> None:
        """Start a new conversation, of which the store has nothing."""
        self._get_or_create(root)

    def is_loaded(self, root: str) -> bool:
        """Return whether everything the conversation spent here is counted; else `load_from_store` first."""
        return root in self._conversations or not self._has_evicted

    async def load_from_store(self, root: str) -> None:
        """Count the usage of earlier runs of the conversation, once.

        Raises:
            RefusedError: `storage`.
        """
        async with self._load_lock:
            if root not in self._conversations:
                usage = await sum_usage_under(self._store, root)
                self._get_or_create(root).budget.add(usage)

    @contextmanager
    def in_use(self, root: str) -> Iterator[None]:
        """Keep the conversation loaded during the block, in which its runs work."""
        conversation = self._get_or_create(root)
        conversation.active_calls += 1
        try:
            yield
        finally:
            conversation.active_calls -= 1
            self._conversations[root] = self._conversations.pop(root)

    def budget(self, root: str) -> Budget:
        """Return the budget that all runs of a conversation share."""
        return self._get_or_create(root).budget

    def _get_or_create(self, root: str) -> _ConversationUsage:
        conversation = self._conversations.get(root)
        if conversation is None:
            self._evict_idle()
            conversation = self._conversations[root] = _ConversationUsage()
        return conversation

    def _evict_idle(self) -> None:
        """Unload the conversation that was not used for the longest time; the store has its usage."""
        if len(self._conversations) >= self._max_conversations:
            idle = next(
                (root for root, conversation in self._conversations.items() if not conversation.active_calls), None
            )
            if idle is not None:
                del self._conversations[idle]
                self._has_evicted = True
