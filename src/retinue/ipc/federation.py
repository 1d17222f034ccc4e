"""Follow the runs of all processes: first their stored events, then the events that their control sockets report.

Processes are found by the leases they hold. Following changes nothing in the store.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from retinue.client import Retinue
from retinue.ipc.client import CommandReply, ProcessUnreachableError, open_connection
from retinue.ipc.messages import (
    CancelCommand,
    CancelReply,
    Command,
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
"""Seconds between two searches for new processes."""
MAX_PENDING_EVENTS = 20_000
"""Events that were not drained yet; beyond them nothing is read, and the other process leaves deltas out."""

NO_SOCKET = "The process has no socket and cannot be reached."


class RemoteRun(Struct):
    """A run of another process, as far as its events are known."""

    origin: EventSource
    seq: int = 0
    """Number of its last event."""
    started: float | None = None
    address: str = ""
    """Socket of its process."""
    has_ended: bool = False


class ProcessFollower(ABC):
    """Follow the runs of other processes; a subclass receives the events and keeps the state of the runs."""

    def __init__(self, retinue: Retinue, *, deltas: bool) -> None:
        self._retinue = retinue
        self._deltas = deltas
        self._attached: set[str] = set()
        """Sockets of the processes that are being followed."""

    @abstractmethod
    async def add_event(self, record: EventRecord, address: str) -> None:
        """Take an event of a run of the process at the address; it may have been taken before."""

    @abstractmethod
    def list_open_runs(self) -> Iterable[RemoteRun]:
        """Return the runs of other processes whose end was not seen."""

    @abstractmethod
    def report_problem(self, message: str) -> None:
        """Take a sentence about a process that cannot be reached, or a record that cannot be read."""

    def attach(self, owners: Iterable[LeaseOwner], group: TaskGroup) -> None:
        """Start to follow the processes of the owners that are not followed yet."""
        for owner in owners:
            if owner.control and owner.control not in self._attached:
                self._attached.add(owner.control)
                group.start_soon(self._follow_process, owner, owner.control)

    async def _follow_process(self, owner: LeaseOwner, address: str) -> None:
        """Take the stored events of the live runs of a process, then its events until it ends."""

        async def load_live_runs(live: tuple[str, ...]) -> None:
            # Also those that ended while the process was not followed.
            known = [run.origin.run for run in self.list_open_runs() if run.address == address]
            for run in dict.fromkeys((*known, *live)):
                await self.load_run(run, address)

        async def receive(record: EventRecord) -> None:
            await self.receive_event(record, address)

        try:
            async with open_connection(address) as control:
                await control.watch(load_live_runs, receive, deltas=self._deltas)
        except ProcessUnreachableError as problem:  # attached again while it holds a lease
            self.report_problem(describe_unreachable(owner, str(problem)))
        except anyio.BrokenResourceError:
            pass  # it ended
        finally:
            self._attached.discard(address)

    async def receive_event(self, record: EventRecord, address: str) -> None:
        """Take an event that a process reports."""
        await self.add_event(record, address)

    async def load_run(self, run: str, address: str) -> None:
        """Take the stored events of a run."""
        try:
            if summary := await self._retinue.session(run):
                async for record in self._retinue.history(summary.session, run=run):
                    await self.add_event(record, address)
        except RefusedError as refusal:  # its record cannot be read; its next events still arrive
            self.report_problem(refusal.failure.message)

    async def end_lost_runs(self, owned: set[str]) -> None:
        """End the runs whose process was killed; the next process to start stores that end."""
        for run in list(self.list_open_runs()):
            name = run.origin.run
            if name in owned or run.address in self._attached:
                continue
            await self.load_run(name, run.address)
            if last := next((each for each in self.list_open_runs() if each.origin.run == name), None):
                await self.add_event(_make_interrupted_event(last), run.address)


def _make_interrupted_event(run: RemoteRun) -> EventRecord:
    now = time.time()
    elapsed = max(now - run.started, 0.0) if run.started else 0.0
    return EventRecord(run.origin, run.seq + 1, now, RunEnded(failure=INTERRUPTED, exit_code=1, elapsed=elapsed))


class RemoteRuns(ProcessFollower):
    """The events of the runs of other processes, for a view that drains them at its own pace."""

    def __init__(self, retinue: Retinue, wanted: str = "", *, deltas: bool = True) -> None:
        """Follow all runs, or those whose run, session or root conversation has an id with the prefix `wanted`."""
        super().__init__(retinue, deltas=deltas)
        self._root, self._id = wanted, normalize_id(wanted)
        self._pending: list[EventRecord] = []
        self._drained = anyio.Event()
        self._runs: dict[str, RemoteRun] = {}
        self._problems: dict[str, bool] = {}
        """Sentences about unreachable processes; true if taken."""

    def drain(self) -> tuple[EventRecord, ...]:
        """Return the events that have arrived, without waiting."""
        pending, self._pending = self._pending, []
        self._drained.set()
        return tuple(pending)

    def take_problems(self) -> list[str]:
        """Return the sentences to show beside the runs, each once."""
        new = [problem for problem, is_taken in self._problems.items() if not is_taken]
        self._problems |= dict.fromkeys(new, True)
        return new

    async def follow(self, *, forever: bool) -> None:
        """Follow until no run is active, or forever."""
        async with anyio.create_task_group() as group:
            while True:
                owners = [owner for owner in await self._retinue.owners() if await self._is_wanted_owner(owner)]
                for owner in owners:
                    if owner.control is None:
                        self.report_problem(describe_unreachable(owner, NO_SOCKET))
                self.attach(owners, group)
                await self.end_lost_runs({owner.run for owner in owners})
                reachable = any(owner.control for owner in owners)
                if not forever and not reachable and not any(self.list_open_runs()):
                    break
                await anyio.sleep(POLL_INTERVAL)
            group.cancel_scope.cancel()

    async def cancel_run(self, run: str) -> CancelReply:
        """Cancel a run of any process and return when it has ended.

        Raises:
            ProcessUnreachableError: its process cannot be reached.
        """
        for owner in await self._retinue.owners():
            if owner.run == run:
                return await cancel_remote(owner)
        return CancelReply(run, found=False)

    def report_problem(self, message: str) -> None:
        self._problems.setdefault(message, False)

    def list_open_runs(self) -> list[RemoteRun]:
        return [run for run in self._runs.values() if not run.has_ended]

    async def add_event(self, record: EventRecord, address: str) -> None:
        origin = record.origin
        run = self._runs.get(origin.run) or RemoteRun(origin)
        # An event that was stored when the connection began comes twice: from the store and from its process.
        if record.seq <= run.seq or not self._is_wanted(origin.run, origin.session, origin.root, origin.parent_run):
            return
        while len(self._pending) >= MAX_PENDING_EVENTS:
            self._drained = anyio.Event()
            await self._drained.wait()
        self._runs[origin.run] = run
        run.seq, run.address, run.has_ended = record.seq, address, isinstance(record.event, RunEnded)
        if isinstance(record.event, RunStarted):
            run.started = record.time
        self._pending.append(record)

    async def _is_wanted_owner(self, owner: LeaseOwner) -> bool:
        if self._is_wanted(owner.run, owner.session) or owner.run in self._runs:
            return True
        summary = await self._retinue.session(owner.session)
        return summary is not None and self._is_wanted(owner.run, owner.session, summary.root, summary.parent_run)

    def _is_wanted(self, run: str, session: str, root: str | None = None, parent_run: str | None = None) -> bool:
        return (
            any(name.startswith(self._id) for name in (run, session))
            or (root is not None and root.startswith(self._root))
            or parent_run in self._runs
        )


async def cancel_remote(owner: LeaseOwner) -> CancelReply:
    """Cancel the run of an owner and return when it has ended.

    Raises:
        ProcessUnreachableError: its process cannot be reached.
    """
    return await _request(owner, CancelCommand(owner.run), CancelReply)


async def steer_remote(owner: LeaseOwner, text: str) -> SteerReply:
    """Send a text to the agent of an owner's run.

    Raises:
        ProcessUnreachableError: its process cannot be reached.
    """
    return await _request(owner, SteerCommand(owner.run, text), SteerReply)


async def extend_remote(owner: LeaseOwner, seconds: float) -> ExtendReply:
    """Extend the timeout of an owner's run.

    Raises:
        ProcessUnreachableError: its process cannot be reached.
    """
    return await _request(owner, ExtendCommand(owner.run, seconds), ExtendReply)


async def _request(owner: LeaseOwner, command: Command, reply_type: type[CommandReply]) -> CommandReply:
    if owner.control is None:
        raise ProcessUnreachableError(NO_SOCKET)
    async with open_connection(owner.control) as control:
        return await control.request(command, reply_type)


def describe_unreachable(owner: LeaseOwner, problem: str) -> str:
    """Return why the run of another process cannot be followed or controlled, and what to do."""
    return (
        f"Run {owner.run[:SHORT_ID_LENGTH]} belongs to process {owner.pid} on {owner.host}. {problem} Show what is "
        f"stored: retinue sessions show {owner.session[:SHORT_ID_LENGTH]}. Stop it: kill {owner.pid}"
    )
