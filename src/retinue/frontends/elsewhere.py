"""Runs of other processes as one stream of events: what they did before anyone looked, then what they do.

Their processes are found by the leases they hold, their past is in the store, their presence comes by their sockets.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from msgspec import Struct

from retinue.app import Retinue
from retinue.control.client import Connection, Unreachable, connected
from retinue.control.protocol import Cancelled, Extended, Steered
from retinue.events import Origin, RunEnded, RunStarted, Stamped
from retinue.frontends.wording import SHORT, digits
from retinue.sessions.owner import Owner
from retinue.sessions.store import INTERRUPTED
from retinue.types import Refused

LOOK = 0.25
"""Seconds between two looks for processes that have begun since."""
MOST_WAITING = 20_000
"""Events nobody has taken yet; beyond them we read no more, and the other process leaves deltas out."""

NO_ORDERS = "It has no socket by which it could be reached."


class _Seen(Struct):
    """A run, as far as it was told."""

    last: Stamped
    started: float | None = None
    address: str = ""
    """Of the process that told it."""

    @property
    def is_over(self) -> bool:
        return isinstance(self.last.event, RunEnded)


class Elsewhere:
    """What happens in the runs of other processes, for a view that looks at its own pace."""

    def __init__(self, retinue: Retinue, wanted: str = "", *, deltas: bool = True) -> None:
        """Of all runs, or of those whose run, session or root conversation has an id that begins like this."""
        self._retinue = retinue
        self._root, self._id = wanted, digits(wanted)
        self._deltas = deltas
        self._news: list[Stamped] = []
        self._taken = anyio.Event()
        self._runs: dict[str, _Seen] = {}
        self._attached: set[str] = set()
        """Addresses of processes that are being looked at."""
        self._remarks: dict[str, bool] = {}
        """What is to be said of processes that cannot be looked at, and whether it has been."""

    def waiting(self) -> tuple[Stamped, ...]:
        """Takes what has arrived, without waiting."""
        news, self._news = self._news, []
        self._taken.set()
        return tuple(news)

    def remarks(self) -> list[str]:
        """What is to be said beside the runs, each once."""
        new = [remark for remark, is_said in self._remarks.items() if not is_said]
        self._remarks |= dict.fromkeys(new, True)
        return new

    async def follow(self, *, forever: bool) -> None:
        """Looks on until nothing runs any more, or for ever."""
        async with anyio.create_task_group() as group:
            while True:
                owners = await self._owners()
                for owner in owners:
                    if owner.control and owner.control not in self._attached:
                        self._attached.add(owner.control)
                        group.start_soon(self._attach, owner, owner.control)
                await self._end_lost({owner.run for owner in owners})
                reachable = any(owner.control for owner in owners)
                if not forever and not reachable and all(seen.is_over for seen in self._runs.values()):
                    break
                await anyio.sleep(LOOK)
            group.cancel_scope.cancel()

    async def cancel(self, run: str) -> Cancelled:
        """Stops a run, wherever it is; returns once it has ended.

        Raises:
            Unreachable: its process cannot be spoken to.
        """
        for owner in await self._retinue.owners():
            if owner.run == run:
                return await cancelled(owner)
        return Cancelled(run, found=False)

    async def _owners(self) -> list[Owner]:
        """Those whose runs are wanted; says of each that cannot be reached, why."""
        owners = [owner for owner in await self._retinue.owners() if await self._is_wanted_owner(owner)]
        for owner in owners:
            if owner.control is None:
                self._remark(unreachable(owner, NO_ORDERS))
        return owners

    async def _is_wanted_owner(self, owner: Owner) -> bool:
        if any(name.startswith(self._id) for name in (owner.run, owner.session)) or owner.run in self._runs:
            return True
        summary = await self._retinue.session(owner.session)
        return summary is not None and (
            summary.root.startswith(self._root) or (summary.parent_run or "") in self._runs
        )

    def _remark(self, text: str) -> None:
        self._remarks.setdefault(text, False)

    async def _end_lost(self, owned: set[str]) -> None:
        """Ends the runs whose process is gone without a word: it was killed, and the next to start writes it down."""
        for run, seen in list(self._runs.items()):
            if seen.is_over or run in owned or seen.address in self._attached:
                continue
            await self._recall(run, seen.address)
            if not seen.is_over:
                last = seen.last
                await self._take(interrupted(last.origin, last.seq + 1, seen.started), seen.address)

    # -- one process -------------------------------------------------------------------------------

    async def _attach(self, owner: Owner, address: str) -> None:
        async def catch_up(live: tuple[str, ...]) -> None:
            for run in live:
                await self._recall(run, address)

        async def take(stamped: Stamped) -> None:
            await self._take(stamped, address)

        try:
            async with connected(address) as control:
                await control.watch(catch_up, take, deltas=self._deltas)
        except Unreachable as problem:
            self._remark(unreachable(owner, str(problem)))
        except anyio.BrokenResourceError:
            pass  # it ended
        finally:
            self._attached.discard(address)

    async def _recall(self, run: str, address: str) -> None:
        """Takes what a run did before."""
        try:
            if summary := await self._retinue.session(run):
                async for stamped in self._retinue.history(summary.session, run=run):
                    await self._take(stamped, address)
        except Refused as refusal:  # its record cannot be read; what it does from now on can be seen
            self._remark(refusal.failure.message)

    async def _take(self, stamped: Stamped, address: str) -> None:
        seen = self._runs.get(stamped.origin.run)
        # What was stored while we began to look is told twice: by the store, and by its process.
        if not self._is_wanted(stamped) or (seen and stamped.seq <= seen.last.seq):
            return
        while len(self._news) >= MOST_WAITING:
            self._taken = anyio.Event()
            await self._taken.wait()
        if seen is None:
            seen = self._runs[stamped.origin.run] = _Seen(stamped)
        seen.last, seen.address = stamped, address
        if isinstance(stamped.event, RunStarted):
            seen.started = stamped.time
        self._news.append(stamped)

    def _is_wanted(self, stamped: Stamped) -> bool:
        origin = stamped.origin
        return (
            any(name.startswith(self._id) for name in (origin.run, origin.session))
            or origin.root.startswith(self._root)
            or origin.parent_run in self._runs
        )


def interrupted(origin: Origin, seq: int, started: float | None) -> Stamped:
    """The end of a run whose process is gone without a word; it started then, if it had."""
    now = time.time()
    elapsed = max(now - started, 0.0) if started else 0.0
    return Stamped(origin, seq, now, RunEnded(failure=INTERRUPTED, exit_code=1, elapsed=elapsed))


@asynccontextmanager
async def reached(owner: Owner) -> AsyncIterator[Connection]:
    """A connection for the block to the process that carries a run out.

    Raises:
        Unreachable: it cannot be spoken to.
    """
    if owner.control is None:
        raise Unreachable(NO_ORDERS)
    async with connected(owner.control) as control:
        yield control


async def cancelled(owner: Owner) -> Cancelled:
    """Stops the run of an owner; returns once it has ended.

    Raises:
        Unreachable: its process cannot be spoken to.
    """
    async with reached(owner) as control:
        return await control.cancel(owner.run)


async def steered(owner: Owner, text: str) -> Steered:
    """Says something to the agent of an owner's run.

    Raises:
        Unreachable: the same.
    """
    async with reached(owner) as control:
        return await control.steer(owner.run, text)


async def extended(owner: Owner, seconds: float) -> Extended:
    """Gives the run of an owner more time.

    Raises:
        Unreachable: the same.
    """
    async with reached(owner) as control:
        return await control.extend(owner.run, seconds)


def unreachable(owner: Owner, problem: str) -> str:
    """Why the run of another process cannot be seen or given orders from here, and what helps."""
    return (
        f"Run {owner.run[:SHORT]} is carried out by process {owner.pid} on {owner.host}. {problem} "
        f"To see what it stored: retinue sessions show {owner.session[:SHORT]}. To stop it: kill {owner.pid}"
    )
