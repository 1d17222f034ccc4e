"""The sources of the event feed: the runs of this process, and those of all others that share the state directory."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

import anyio
from anyio.abc import TaskGroup, TaskStatus

from retinue.client import Retinue
from retinue.ipc.client import ProcessUnreachableError, open_connection
from retinue.ipc.federation import POLL_INTERVAL, ProcessFollower, RemoteRun
from retinue.model.errors import RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.events import EPHEMERAL_EVENTS, RunQueued
from retinue.runtime.event_bus import SubscriberLaggedError
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.run_list import ACTIVE_STATES, find_session_id
from retinue.sessions.store import RunSummary, SessionSummary

MAX_LOOKUPS = 40
"""Lookups after which an id that was claimed and never used is given up."""
UNREACHABLE_LOOKUPS = 8
"""Scans between two lookups of the record of a run whose process has no socket."""
UNREACHABLE_ADDRESS = "?"
"""Stands for the socket of a process that has none, or has ended."""


class EventSources(ProcessFollower):
    """Publish the events of all runs of all processes to the feed."""

    def __init__(self, retinue: Retinue, feed: EventFeed) -> None:
        super().__init__(retinue, deltas=False)
        self._feed = feed
        self._with_deltas: set[str] = set()
        """Sockets of the processes whose deltas are followed, too."""
        self._known: frozenset[str] = frozenset()
        """Prefixes of ids that need no lookup."""
        self._claimed: dict[str, int] = {}
        """Prefixes of ids whose session has not started, and how often each was looked up."""
        self._scans = 0
        self._here = (os.getpid(), socket.gethostname())

    async def follow(self, *, task_status: TaskStatus[None]) -> None:
        """Follow forever; has started once no event of a new run is missed."""
        async with anyio.create_task_group() as group:
            await group.start(self._follow_own)
            group.start_soon(self._follow_own_deltas)
            self._known = await self._list_ids()
            task_status.started()
            while True:
                await self._scan_processes(group)
                await anyio.sleep(POLL_INTERVAL)

    async def add_event(self, record: EventRecord, address: str = "") -> None:
        continues = await self._find_continued(record)
        parent_session = await self._find_parent_session(record, continues)
        # A fault costs one event, never the rest: no run depends on being followed.
        with suppress(Exception):
            self._feed.publish(record, continues=continues, parent_session=parent_session, address=address)

    def list_open_runs(self) -> list[RemoteRun]:
        live = self._feed.live.values()
        return [RemoteRun(run.origin, run.seq, run.started, run.address) for run in live if not run.is_own]

    def report_problem(self, message: str) -> None:
        """Ignore the problem: a page shows the owner of each run and what can be done with it."""

    async def receive_event(self, record: EventRecord, address: str) -> None:
        # A run that was ending when the connection began is not among the live ones: its record has the start.
        if not self._feed.last_seq(record.origin.run) and not isinstance(record.event, RunQueued):
            await self.load_run(record.origin.run, address)
        await self.add_event(record, address)

    async def _find_continued(self, record: EventRecord) -> SessionSummary | None:
        """Return the session that a run continues; looked up when the run is queued."""
        if not isinstance(record.event, RunQueued) or record.origin.run == record.origin.session:
            return None
        try:
            return await self._retinue.session(record.origin.session)
        except RefusedError:
            return None

    async def _find_parent_session(self, record: EventRecord, continues: SessionSummary | None) -> str | None:
        """Return the session of the parent run; looked up when the run is queued."""
        parent = continues.parent_run if continues else record.origin.parent_run
        if parent is None or not isinstance(record.event, RunQueued):
            return None
        known = self._feed.find_row(parent)
        return known.session if known else await find_session_id(self._retinue, parent)

    # -- this process ------------------------------------------------------------------------------

    async def _follow_own(self, *, task_status: TaskStatus[None]) -> None:
        started: Callable[[], None] = task_status.started
        while True:
            try:
                async with self._retinue.events(deltas=False) as subscription:
                    started()
                    while True:
                        for record in (await anext(subscription), *subscription.drain()):
                            await self.add_event(record)
            except SubscriberLaggedError:
                started = _do_nothing
                self._feed.restart()
                for run in [run for run in self._feed.live.values() if run.is_own]:
                    await self.load_run(run.origin.run, run.address)

    async def _follow_own_deltas(self) -> None:
        while True:
            await self._feed.wait_watched()
            # A subscriber that lags misses deltas; the complete texts come by the other subscription.
            with suppress(SubscriberLaggedError):
                async with self._retinue.events(deltas=True) as subscription:
                    while self._feed.wants_deltas:
                        for record in (await anext(subscription), *subscription.drain()):
                            if isinstance(record.event, EPHEMERAL_EVENTS):
                                await self.add_event(record)

    # -- other processes ---------------------------------------------------------------------------

    async def _scan_processes(self, group: TaskGroup) -> None:
        names = await self._list_ids()
        try:
            owners = await self._retinue.owners()
        except RefusedError:
            return  # the directory cannot be read now; the known owners stay
        others = [owner for owner in owners if (owner.pid, owner.host) != self._here]
        self._feed.update_owners(others)
        self.attach(others, group)
        for owner in others:
            if owner.control and self._feed.wants_deltas and owner.control not in self._with_deltas:
                self._with_deltas.add(owner.control)
                group.start_soon(self._follow_deltas, owner.control)
        unreachable = {owner.run for owner in others if not owner.control}
        await self._add_unreported_runs(names, unreachable)
        self._scans += 1
        if self._scans % UNREACHABLE_LOOKUPS == 0:
            for run in unreachable:
                await self.load_run(run, UNREACHABLE_ADDRESS)
        await self.end_lost_runs({owner.run for owner in owners})

    async def _follow_deltas(self, address: str) -> None:
        """Publish the deltas of one process while the feed wants them."""
        with anyio.CancelScope() as scope:

            async def receive(record: EventRecord) -> None:
                if isinstance(record.event, EPHEMERAL_EVENTS):
                    await self.add_event(record, address)
                if not self._feed.wants_deltas:
                    scope.cancel()

            async def ignore_live_runs(_: tuple[str, ...]) -> None: ...

            # Ended, or unreachable now: tried again while the process holds a lease.
            with suppress(ProcessUnreachableError, anyio.BrokenResourceError):
                async with open_connection(address) as control:
                    await control.watch(ignore_live_runs, receive, deltas=True)
        self._with_deltas.discard(address)

    async def _add_unreported_runs(self, names: frozenset[str], unreachable: set[str]) -> None:
        """Load runs that no process reports: ended before their process was found, or of one without a socket."""
        if names != self._known:
            self._feed.changes += 1
        for name in (*(names - self._known), *self._claimed):
            self._claimed[name] = self._claimed.get(name, 0) + 1
            run = await self._find_latest_run(name)
            if run and (run.run in unreachable or run.state not in ACTIVE_STATES):
                await self.load_run(run.run, UNREACHABLE_ADDRESS)
                del self._claimed[name]
            elif self._claimed[name] >= MAX_LOOKUPS or name not in names or (run and self._feed.last_seq(run.run)):
                del self._claimed[name]
        self._known = names

    async def _find_latest_run(self, name: str) -> RunSummary | None:
        """Return the latest run of the session of an id; None before it has started."""
        try:
            summary = await self._retinue.session(name)
        except RefusedError:
            return None
        return summary.latest if summary else None

    async def _list_ids(self) -> frozenset[str]:
        try:
            return await self._retinue.names()
        except RefusedError:
            return self._known


def _do_nothing() -> None:
    """Replace `task_status.started`, which may be called only once."""
