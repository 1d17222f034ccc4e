"""Home: where a run that may delegate calls, so that depth, spawns, slots and events are kept in one place.

While its engine works a run is registered here by a token of its own. What it asks for is done
within its life: whatever ends the run ends that, too.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
from msgspec import Struct, structs

from retinue.guards.budget import Budget
from retinue.guards.spawns import SpawnCount
from retinue.model.runs import RunSpec, Secret
from retinue.model.tasks import AncestorTask, CallContext
from retinue.model.tool_names import is_delegation
from retinue.runtime.concurrency import RunLimiter, RunSlot
from retinue.support.tasks import BackgroundTasks

MAX_CONNECTIONS = 16
"""Of one run at once: no model asks for more, and a child that floods us gets no further."""
MAX_CALL_ID_CHARS = 1024
"""Characters of the id a provider gave a tool call."""
TOKEN_BYTES = 32


class DelegationTools(Struct, frozen=True):
    """The tools that runs delegate with, whatever toolset they were called by."""

    toolset: str
    names: tuple[str, ...]


def child_context(call: CallContext, spec: RunSpec, max_depth: int, toolset: str) -> CallContext | None:
    """Return the context of the calls a run makes, with no more rights than the run; None if it may make none."""
    if not spec.agent.tools.delegates or not any(map(is_delegation, spec.grant.tools)):
        return None
    return CallContext(
        toolset=toolset,
        cwd=spec.cwd,
        lineage=spec.lineage,
        authority=spec.authority,
        roots=call.roots,
        host_tools=spec.grant.tools,
        settings=call.settings,
        max_depth=max_depth,
        offline_may_answer=call.offline_may_answer,
    )


def with_prompt_as_ancestor(call: CallContext, spec: RunSpec) -> CallContext:
    """The call of a run that sees more than its task: what stands there in all is not to be handed on, either."""
    lineage = call.lineage
    ancestor = AncestorTask(spec.agent.name, spec.prompt, spec.cwd)
    return structs.replace(call, lineage=structs.replace(lineage, ancestors=(*lineage.ancestors, ancestor)))


def create_token() -> Secret:
    return Secret(os.urandom(TOKEN_BYTES).hex())


class Share(Struct, frozen=True):
    """What the runs of one call share with the runs above and below them."""

    slots: RunLimiter
    spawns: SpawnCount
    """Counts the runs that agents start below their root call."""
    is_counted: bool
    """Whether the runs of this call are among those: an agent made it."""

    def give_back(self, runs: int) -> None:
        """Uncounts runs of the call that were not started after all."""
        if self.is_counted:
            self.spawns.give_back(runs)


class DelegatingRun:
    """A run that may delegate, while its engine works."""

    def __init__(
        self, run: str, token: Secret, call: CallContext, slot: RunSlot, share: Share, budget: Budget
    ) -> None:
        self.run_id = run
        self.share = share
        """What its runs share with it: there are no more slots further down."""
        self.budget = budget
        self._token = token.reveal().encode()
        self._context = structs.replace(call, lineage=structs.replace(call.lineage, parent_run=run))
        self._slot = slot
        self._slot_lock = anyio.Lock(fast_acquire=True)
        self._waiting_calls = 0
        """Calls it waits for."""
        self._connections = 0
        self.is_running = False
        """Whether its engine works; before and after that nothing is done or told for it."""

    def matches_token(self, token: str) -> bool:
        import hmac

        return hmac.compare_digest(self._token, token.encode(errors="surrogatepass"))

    @property
    def context(self) -> CallContext:
        """As whom it asks, outside any tool call."""
        return self._context

    def tool_call_context(self, name: str) -> CallContext:
        """As whom it asks in the tool call of this id.

        Raises:
            ValueError: that is no id.
        """
        if len(name) > MAX_CALL_ID_CHARS:
            raise ValueError(f"The id of a tool call has at most {MAX_CALL_ID_CHARS} characters.")
        return structs.replace(self._context, lineage=structs.replace(self._context.lineage, parent_call=name))

    @contextmanager
    def connection(self) -> Iterator[bool]:
        """A connection of it for the block; whether there is room for it."""
        self._connections += 1
        try:
            yield self._connections <= MAX_CONNECTIONS
        finally:
            self._connections -= 1

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does the run's own work; what it had asked for by then ends with it."""
        async with BackgroundTasks() as self._group:
            self.is_running = True
            try:
                await work()
            finally:
                self.is_running = False

    def start_child(self, work: Callable[[], Awaitable[None]]) -> anyio.CancelScope | None:
        """Begins what the run asks for; it ends with the run, or with the scope. None if the run has ended.

        The work must not raise: that would end the run.
        """
        if not self.is_running:
            return None
        scope = anyio.CancelScope()

        async def run_in_scope() -> None:
            with scope:
                await work()

        self._group.start_soon(run_in_scope)
        return scope

    @asynccontextmanager
    async def releasing_slot(self) -> AsyncIterator[None]:
        """A block in which the run waits for others: they may have its slot. It has one again afterwards."""
        self._waiting_calls += 1
        self._slot.release()
        try:
            try:
                yield
            finally:
                self._waiting_calls -= 1
            await self._reacquire_slot()
        except BaseException:
            # It did not wait for the answer, and is at work already; unless it has ended.
            if self.is_running:
                self._group.start_soon(self._reacquire_slot)
            raise

    async def _reacquire_slot(self) -> None:
        async with self._slot_lock:
            if self._waiting_calls or self._slot.is_held:
                return
            await self._slot.acquire()
            if self._waiting_calls:
                self._slot.release()


class DelegationRegistry:
    """The runs that may call home."""

    def __init__(self) -> None:
        self.get_address: Callable[[], str | None] = lambda: None
        """Where they call; None: they cannot."""
        self._runs: dict[str, DelegatingRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, run: str | None) -> DelegatingRun | None:
        return self._runs.get(run) if run else None

    def find_by_token(self, token: str) -> DelegatingRun | None:
        """The run of a token, compared in the same time whatever it is."""
        return next(
            (delegating_run for delegating_run in [*self._runs.values()] if delegating_run.matches_token(token)), None
        )

    async def run_registered(self, delegating_run: DelegatingRun, work: Callable[[], Awaitable[None]]) -> None:
        """Does a run's own work, and lets it call home meanwhile."""
        self._runs[delegating_run.run_id] = delegating_run
        try:
            await delegating_run.run(work)
        finally:
            del self._runs[delegating_run.run_id]
