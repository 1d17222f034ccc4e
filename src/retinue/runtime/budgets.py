"""The budgets of root conversations, and of a run for the requests of its engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
from msgspec import structs

from retinue.engines.base import EngineError
from retinue.guards.budget import Budget
from retinue.guards.reservations import PendingRequest
from retinue.model.errors import Failure
from retinue.model.runs import NO_DEADLINE, Limits, RequestGrant, RequestSize
from retinue.runtime.active_run import ActiveRun
from retinue.sessions.store import SessionStore, sum_usage_under

MAX_CONVERSATIONS = 10_000
"""Conversations that stay loaded while nothing runs in them: a long-lived server sees ever new ones."""
MAX_WRAP_UP_SECONDS = 60.0
"""Seconds before the timeout at which an agent is asked for its answer; a tenth of shorter timeouts."""


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


class RunClock:
    """The time of an active run: its last request is sent before its timeout."""

    def __init__(self, run: ActiveRun) -> None:
        self._run = run

    @property
    def _margin(self) -> float:
        return min(self._run.spec.limits.timeout / 10, MAX_WRAP_UP_SECONDS)

    @property
    def calls_end(self) -> float:
        """When tool calls end: half of the time for the answer may go to the calls that are in flight before it."""
        return self._run.guards.timeout_end - self._margin / 2

    def find_last_reason(self) -> str | None:
        """Return why the next request must be the last one; None if there is time."""
        is_late = anyio.current_time() >= self._run.guards.timeout_end - self._margin
        return f"The time of {self._run.spec.limits.timeout:g}s is nearly over." if is_late else None


class RunRequestBudget:
    """Implements `RequestBudget` for one run."""

    def __init__(self, budget: Budget, clock: RunClock | None = None) -> None:
        self._budget = budget
        self._clock = clock

    @property
    def is_limited(self) -> bool:
        return bool(self._budget.limits)

    @property
    def limits_cost(self) -> bool:
        return self._budget.limits_cost

    @property
    def calls_end(self) -> float:
        return self._clock.calls_end if self._clock else NO_DEADLINE

    @asynccontextmanager
    async def reserve(
        self, size: RequestSize | None, on_wait: Callable[[bool], Awaitable[None]]
    ) -> AsyncIterator[RequestGrant]:
        if not self.is_limited:
            yield RequestGrant(last_reason=self._find_time_reason())
            return
        decided = anyio.Event()
        request = PendingRequest(self._budget, size, decided.set)
        try:
            if request.decision is None:
                await on_wait(True)
                await decided.wait()
                await on_wait(False)
            assert request.decision is not None
            if isinstance(request.decision, Failure):
                raise EngineError(request.decision)
            grant = request.decision
            yield structs.replace(grant, last_reason=grant.last_reason or self._find_time_reason())
        finally:
            request.close()

    def _find_time_reason(self) -> str | None:
        return self._clock.find_last_reason() if self._clock else None
