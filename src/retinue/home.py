"""Home: where a run that may delegate calls, so that depth, spawns, slots and events are kept in one place.

While its engine works a run is a member of the household, known by a token of its own. What it asks for is done
within its life: whatever ends the run ends that, too.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
from msgspec import Struct, structs

from retinue.beside import Beside
from retinue.guards.budget import Purse
from retinue.guards.spawns import SpawnCount
from retinue.secret import Secret
from retinue.slots import Seat, Slots
from retinue.tool_names import is_delegation
from retinue.types import Ancestor, Call, RunSpec

SURFACE = "nested"
"""The surface whose tools a run delegates with, whatever surface it was itself asked for by."""
TOOLS = ("spawn_subagent", "agent_info")

MOST_CONNECTIONS = 16
"""Of one run at once: no model asks for more, and a child that floods us gets no further."""
MOST_CALL_ID = 1024
"""Characters of the id a provider gave a tool call."""
TOKEN_BYTES = 32


def call_below(call: Call, spec: RunSpec, deepest: int) -> Call | None:
    """The call as which a run delegates: nothing in it is more than the run has. None: it may not."""
    if not spec.agent.tools.delegates or not any(map(is_delegation, spec.grant.tools)):
        return None
    return Call(
        surface=SURFACE,
        cwd=spec.cwd,
        lineage=spec.lineage,
        authority=spec.authority,
        roots=call.roots,
        host_tools=spec.grant.tools,
        settings=call.settings,
        max_depth=deepest,
        offline_may_answer=call.offline_may_answer,
    )


def knowing_prompt(call: Call, spec: RunSpec) -> Call:
    """The call of a run that sees more than its task: what stands there in all is not to be handed on, either."""
    line = call.lineage
    seen = Ancestor(spec.agent.name, spec.prompt, spec.cwd)
    return structs.replace(call, lineage=structs.replace(line, ancestors=(*line.ancestors, seen)))


def new_token() -> Secret:
    return Secret(os.urandom(TOKEN_BYTES).hex())


class Share(Struct, frozen=True):
    """What the runs of one call share with the runs above and below them."""

    slots: Slots
    spawns: SpawnCount
    """Counts the runs that agents start below their root call."""
    is_counted: bool
    """Whether the runs of this call are among those: an agent made it."""

    def give_back(self, runs: int) -> None:
        """Uncounts runs of the call that were not started after all."""
        if self.is_counted:
            self.spawns.give_back(runs)


class Member:
    """A run that may delegate, while its engine works."""

    def __init__(self, run: str, token: Secret, call: Call, seat: Seat, share: Share, purse: Purse) -> None:
        self.run = run
        self.share = share
        """What its runs share with it: there are no more slots further down."""
        self.purse = purse
        self._token = token.reveal().encode()
        self._call = structs.replace(call, lineage=structs.replace(call.lineage, parent_run=run))
        self._seat = seat
        self._sitting = anyio.Lock(fast_acquire=True)
        self._waiting = 0
        """Calls it waits for."""
        self._connections = 0
        self.is_live = False
        """Whether its engine works; before and after that nothing is done or told for it."""

    def has(self, token: str) -> bool:
        import hmac

        return hmac.compare_digest(self._token, token.encode(errors="surrogatepass"))

    @property
    def call(self) -> Call:
        """As whom it asks, outside any tool call."""
        return self._call

    def tool_call(self, name: str) -> Call:
        """As whom it asks in the tool call of this id.

        Raises:
            ValueError: that is no id.
        """
        if len(name) > MOST_CALL_ID:
            raise ValueError(f"The id of a tool call has at most {MOST_CALL_ID} characters.")
        return structs.replace(self._call, lineage=structs.replace(self._call.lineage, parent_call=name))

    @contextmanager
    def connected(self) -> Iterator[bool]:
        """A connection of it for the block; whether there is room for it."""
        self._connections += 1
        try:
            yield self._connections <= MOST_CONNECTIONS
        finally:
            self._connections -= 1

    async def live(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does the run's own work; what it had asked for by then ends with it."""
        async with Beside() as self._group:
            self.is_live = True
            try:
                await work()
            finally:
                self.is_live = False

    def begin(self, work: Callable[[], Awaitable[None]]) -> anyio.CancelScope | None:
        """Begins what the run asks for; it ends with the run, or with the scope. None if the run has ended.

        The work must not raise: that would end the run.
        """
        if not self.is_live:
            return None
        scope = anyio.CancelScope()

        async def one() -> None:
            with scope:
                await work()

        self._group.start_soon(one)
        return scope

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """A block in which the run waits for others: they may have its slot. It has one again afterwards."""
        self._waiting += 1
        self._seat.give()
        try:
            try:
                yield
            finally:
                self._waiting -= 1
            await self._sit()
        except BaseException:
            # It did not wait for the answer, and is at work already; unless it has ended.
            if self.is_live:
                self._group.start_soon(self._sit)
            raise

    async def _sit(self) -> None:
        async with self._sitting:
            if self._waiting or self._seat.is_held:
                return
            await self._seat.take()
            if self._waiting:
                self._seat.give()


class Household:
    """The runs that may call home."""

    def __init__(self) -> None:
        self.address: Callable[[], str | None] = lambda: None
        """Where they call; None: they cannot."""
        self._members: dict[str, Member] = {}

    def __len__(self) -> int:
        return len(self._members)

    def member(self, run: str | None) -> Member | None:
        return self._members.get(run) if run else None

    def known_by(self, token: str) -> Member | None:
        """The run of a token, compared in the same time whatever it is."""
        return next((member for member in [*self._members.values()] if member.has(token)), None)

    async def host(self, member: Member, work: Callable[[], Awaitable[None]]) -> None:
        """Does a run's own work, and lets it call home meanwhile."""
        self._members[member.run] = member
        try:
            await member.live(work)
        finally:
            del self._members[member.run]
