"""Runs of other processes as one stream of events: what they did before anyone looked, then what they do.

Their processes are found by the leases they hold, their past is in the store, their presence comes by their sockets.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from msgspec import Struct

from retinue.client import Retinue
from retinue.ipc.client import ControlConnection, ProcessUnreachableError, open_connection
from retinue.ipc.messages import (
    CancelCommand,
    CancelReply,
    ExtendCommand,
    ExtendReply,
    SteerCommand,
    SteerReply,
)
from retinue.model.errors import RefusedError
from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import RunEnded, RunStarted
from retinue.sessions.store import INTERRUPTED, LeaseOwner
from retinue.support.formatting import SHORT_ID_LENGTH, normalize_id

POLL_INTERVAL = 0.25
"""Seconds between two looks for processes that have begun since."""
MAX_PENDING_EVENTS = 20_000
"""Events nobody has taken yet; beyond them we read no more, and the other process leaves deltas out."""

NO_SOCKET = "It has no socket by which it could be reached."


class _RemoteRun(Struct):
    """A run, as far as it was told."""

    last: EventRecord
    started: float | None = None
    address: str = ""
    """Of the process that told it."""

    @property
    def has_ended(self) -> bool:
        return isinstance(self.last.event, RunEnded)


class RemoteRuns:
    """What happens in the runs of other processes, for a view that looks at its own pace."""

    def __init__(self, retinue: Retinue, wanted: str = "", *, deltas: bool = True) -> None:
        """Of all runs, or of those whose run, session or root conversation has an id that begins like this."""
        self._retinue = retinue
        self._root, self._id = wanted, normalize_id(wanted)
        self._deltas = deltas
        self._pending: list[EventRecord] = []
        self._drained = anyio.Event()
        self._runs: dict[str, _RemoteRun] = {}
        self._attached: set[str] = set()
        """Addresses of processes that are being looked at."""
        self._remarks: dict[str, bool] = {}
        """What is to be said of processes that cannot be looked at, and whether it has been."""

    def drain(self) -> tuple[EventRecord, ...]:
        """Takes what has arrived, without waiting."""
        pending, self._pending = self._pending, []
        self._drained.set()
        return tuple(pending)

    def take_remarks(self) -> list[str]:
        """What is to be said beside the runs, each once."""
        new = [remark for remark, is_taken in self._remarks.items() if not is_taken]
        self._remarks |= dict.fromkeys(new, True)
        return new

    async def follow(self, *, forever: bool) -> None:
        """Looks on until nothing runs any more, or for ever."""
        async with anyio.create_task_group() as group:
            while True:
                owners = await self._list_owners()
                for owner in owners:
                    if owner.control and owner.control not in self._attached:
                        self._attached.add(owner.control)
                        group.start_soon(self._follow_process, owner, owner.control)
                await self._end_lost_runs({owner.run for owner in owners})
                reachable = any(owner.control for owner in owners)
                if not forever and not reachable and all(seen.has_ended for seen in self._runs.values()):
                    break
                await anyio.sleep(POLL_INTERVAL)
            group.cancel_scope.cancel()

    async def cancel_run(self, run: str) -> CancelReply:
        """Stops a run, wherever it is; returns once it has ended.

        Raises:
            Unreachable: its process cannot be spoken to.
        """
        for owner in await self._retinue.owners():
            if owner.run == run:
                return await cancel_remote(owner)
        return CancelReply(run, found=False)

    async def _list_owners(self) -> list[LeaseOwner]:
        """Those whose runs are wanted; says of each that cannot be reached, why."""
        owners = [owner for owner in await self._retinue.owners() if await self._is_wanted_owner(owner)]
        for owner in owners:
            if owner.control is None:
                self._add_remark(describe_unreachable(owner, NO_SOCKET))
        return owners

    async def _is_wanted_owner(self, owner: LeaseOwner) -> bool:
        if any(name.startswith(self._id) for name in (owner.run, owner.session)) or owner.run in self._runs:
            return True
        summary = await self._retinue.session(owner.session)
        return summary is not None and (
            summary.root.startswith(self._root) or (summary.parent_run or "") in self._runs
        )

    def _add_remark(self, text: str) -> None:
        self._remarks.setdefault(text, False)

    async def _end_lost_runs(self, owned: set[str]) -> None:
        """Ends the runs whose process is gone without a word: it was killed, and the next to start writes it down."""
        for run, seen in list(self._runs.items()):
            if seen.has_ended or run in owned or seen.address in self._attached:
                continue
            await self._load_run(run, seen.address)
            if not seen.has_ended:
                last = seen.last
                await self._add_event(make_interrupted_event(last.origin, last.seq + 1, seen.started), seen.address)

    # -- one process -------------------------------------------------------------------------------

    async def _follow_process(self, owner: LeaseOwner, address: str) -> None:
        async def load_live_runs(live: tuple[str, ...]) -> None:
            for run in live:
                await self._load_run(run, address)

        async def receive(stamped: EventRecord) -> None:
            await self._add_event(stamped, address)

        try:
            async with open_connection(address) as control:
                await control.watch(load_live_runs, receive, deltas=self._deltas)
        except ProcessUnreachableError as problem:
            self._add_remark(describe_unreachable(owner, str(problem)))
        except anyio.BrokenResourceError:
            pass  # it ended
        finally:
            self._attached.discard(address)

    async def _load_run(self, run: str, address: str) -> None:
        """Takes what a run did before."""
        try:
            if summary := await self._retinue.session(run):
                async for stamped in self._retinue.history(summary.session, run=run):
                    await self._add_event(stamped, address)
        except RefusedError as refusal:  # its record cannot be read; what it does from now on can be seen
            self._add_remark(refusal.failure.message)

    async def _add_event(self, stamped: EventRecord, address: str) -> None:
        seen = self._runs.get(stamped.origin.run)
        # What was stored while we began to look is told twice: by the store, and by its process.
        if not self._is_wanted(stamped) or (seen and stamped.seq <= seen.last.seq):
            return
        while len(self._pending) >= MAX_PENDING_EVENTS:
            self._drained = anyio.Event()
            await self._drained.wait()
        if seen is None:
            seen = self._runs[stamped.origin.run] = _RemoteRun(stamped)
        seen.last, seen.address = stamped, address
        if isinstance(stamped.event, RunStarted):
            seen.started = stamped.time
        self._pending.append(stamped)

    def _is_wanted(self, stamped: EventRecord) -> bool:
        origin = stamped.origin
        return (
            any(name.startswith(self._id) for name in (origin.run, origin.session))
            or origin.root.startswith(self._root)
            or origin.parent_run in self._runs
        )


def make_interrupted_event(origin: EventSource, seq: int, started: float | None) -> EventRecord:
    """The end of a run whose process is gone without a word; it started then, if it had."""
    now = time.time()
    elapsed = max(now - started, 0.0) if started else 0.0
    return EventRecord(origin, seq, now, RunEnded(failure=INTERRUPTED, exit_code=1, elapsed=elapsed))


@asynccontextmanager
async def connect_owner(owner: LeaseOwner) -> AsyncIterator[ControlConnection]:
    """A connection for the block to the process that carries a run out.

    Raises:
        Unreachable: it cannot be spoken to.
    """
    if owner.control is None:
        raise ProcessUnreachableError(NO_SOCKET)
    async with open_connection(owner.control) as control:
        yield control


async def cancel_remote(owner: LeaseOwner) -> CancelReply:
    """Stops the run of an owner; returns once it has ended.

    Raises:
        Unreachable: its process cannot be spoken to.
    """
    async with connect_owner(owner) as control:
        return await control.request(CancelCommand(owner.run), CancelReply)


async def steer_remote(owner: LeaseOwner, text: str) -> SteerReply:
    """Says something to the agent of an owner's run.

    Raises:
        Unreachable: the same.
    """
    async with connect_owner(owner) as control:
        return await control.request(SteerCommand(owner.run, text), SteerReply)


async def extend_remote(owner: LeaseOwner, seconds: float) -> ExtendReply:
    """Gives the run of an owner more time.

    Raises:
        Unreachable: the same.
    """
    async with connect_owner(owner) as control:
        return await control.request(ExtendCommand(owner.run, seconds), ExtendReply)


def describe_unreachable(owner: LeaseOwner, problem: str) -> str:
    """Why the run of another process cannot be seen or given orders from here, and what helps."""
    return (
        f"Run {owner.run[:SHORT_ID_LENGTH]} is carried out by process {owner.pid} on {owner.host}. {problem} To "
        f"see what it stored: retinue sessions show {owner.session[:SHORT_ID_LENGTH]}. To stop it: kill {owner.pid}"
    )
