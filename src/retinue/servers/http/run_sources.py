"""Where events come from: the runs of this process, and those of every other that shares the state folder.

Other processes are found by the leases they hold; their past is in the store, their presence comes by their sockets.
Looking changes nothing anywhere.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress

import anyio
from anyio.abc import TaskGroup, TaskStatus

from retinue.client import Retinue
from retinue.ipc.client import ProcessUnreachableError, open_connection
from retinue.ipc.federation import POLL_INTERVAL, make_interrupted_event
from retinue.model.errors import RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.events import EPHEMERAL_EVENTS, RunQueued
from retinue.runtime.event_bus import SubscriberLaggedError
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.live_runs import LiveRunState
from retinue.servers.http.run_list import ACTIVE_STATES, find_session_id
from retinue.sessions.store import RunSummary, SessionSummary

MAX_LOOKUPS = 40
"""Looks after which an id that was claimed and never used is given up."""

UNREACHABLE_LOOKUPS = 8
"""Looks between two at the record of a run whose process has no socket."""
UNREACHABLE_ADDRESS = "?"
"""In the place of the socket of a process that has none, or is over."""


class EventSources:
    """Tells the hub what happens, wherever it does."""

    def __init__(self, retinue: Retinue, feed: EventFeed) -> None:
        self._retinue = retinue
        self._feed = feed
        self._attached: set[str] = set()
        """Sockets of processes that are being listened to."""
        self._with_deltas: set[str] = set()
        """Those that also tell what they have not finished saying."""
        self._known: frozenset[str] = frozenset()
        """First digits of ids that need no look."""
        self._claimed: dict[str, int] = {}
        """Those that are not begun yet, and how often they were looked at."""
        self._looks = 0
        self._here = (os.getpid(), socket.gethostname())

    async def follow(self, *, task_status: TaskStatus[None]) -> None:
        """Listens for ever; has started once nothing that begins from then on is missed."""
        async with anyio.create_task_group() as group:
            await group.start(self._follow_own)
            group.start_soon(self._follow_own_deltas)
            self._known = await self._list_ids()
            task_status.started()
            while True:
                await self._scan_processes(group)
                await anyio.sleep(POLL_INTERVAL)

    # -- this process ------------------------------------------------------------------------------

    async def _follow_own(self, *, task_status: TaskStatus[None]) -> None:
        started: Callable[[], None] = task_status.started
        while True:
            try:
                async with self._retinue.events(deltas=False) as watcher:
                    started()
                    while True:
                        for stamped in (await anext(watcher), *watcher.drain()):
                            await self._publish(stamped)
            except SubscriberLaggedError:
                started = _do_nothing
                self._feed.restart()
                await self._load_runs([run for run in self._feed.live.values() if run.is_own])

    async def _follow_own_deltas(self) -> None:
        while True:
            await self._feed.wait_watched()
            try:
                async with self._retinue.events(deltas=True) as watcher:
                    while self._feed.wants_deltas:
                        for stamped in (await anext(watcher), *watcher.drain()):
                            if isinstance(stamped.event, EPHEMERAL_EVENTS):
                                await self._publish(stamped)
            except SubscriberLaggedError:
                pass  # these are for the moment; what is whole comes by the other watcher

    async def _publish(self, stamped: EventRecord, address: str = "") -> None:
        continues = await self._find_continued(stamped)
        above = await self._find_parent_session(stamped, continues)
        # A fault costs one event, never the rest: nobody's work depends on being looked at.
        with suppress(Exception):
            self._feed.publish(stamped, continues=continues, parent_session=above, address=address)

    async def _find_continued(self, stamped: EventRecord) -> SessionSummary | None:
        """The session that a run continues; looked up when it begins."""
        if not isinstance(stamped.event, RunQueued) or stamped.origin.run == stamped.origin.session:
            return None
        try:
            return await self._retinue.session(stamped.origin.session)
        except RefusedError:
            return None

    async def _find_parent_session(self, stamped: EventRecord, continues: SessionSummary | None) -> str | None:
        """The session that a run stands below; looked up when it begins."""
        parent = continues.parent_run if continues else stamped.origin.parent_run
        if parent is None or not isinstance(stamped.event, RunQueued):
            return None
        known = self._feed.find_row(parent)
        return known.session if known else await find_session_id(self._retinue, parent)

    # -- other processes ---------------------------------------------------------------------------

    async def _scan_processes(self, group: TaskGroup) -> None:
        names = await self._list_ids()
        try:
            owners = await self._retinue.owners()
        except RefusedError:
            return  # the folder cannot be read at this moment; what is known stays
        others = [owner for owner in owners if (owner.pid, owner.host) != self._here]
        self._feed.update_owners(others)
        for owner in others:
            if owner.control and owner.control not in self._attached:
                self._attached.add(owner.control)
                group.start_soon(self._follow_process, owner.control)
            if owner.control and self._feed.wants_deltas and owner.control not in self._with_deltas:
                self._with_deltas.add(owner.control)
                group.start_soon(self._follow_deltas, owner.control)
        unreachable = {owner.run for owner in others if not owner.control}
        await self._add_unreported_runs(names, unreachable)
        self._looks += 1
        if self._looks % UNREACHABLE_LOOKUPS == 0:
            for run in unreachable:
                await self._load_run(run, UNREACHABLE_ADDRESS)
        await self._end_lost_runs({owner.run for owner in owners})

    async def _follow_process(self, address: str) -> None:
        """Listens to one process until it ends."""

        async def load_live_runs(live: tuple[str, ...]) -> None:
            # Also those that have ended while nobody listened.
            live_run = [run for run, each in self._feed.live.items() if each.address == address]
            for run in dict.fromkeys((*live_run, *live)):
                await self._load_run(run, address)

        async def receive(stamped: EventRecord) -> None:
            await self.receive_remote(stamped, address)

        try:
            async with open_connection(address) as control:
                await control.watch(load_live_runs, receive, deltas=False)
        except (ProcessUnreachableError, anyio.BrokenResourceError):
            pass  # it ended, or cannot be spoken to now: it is tried again while it holds a lease
        finally:
            self._attached.discard(address)

    async def receive_remote(self, stamped: EventRecord, address: str) -> None:
        """Takes what another process tells of a run.

        One that was ending when we began to listen is not among its live ones: the record has what came before.
        """
        if not self._feed.last_seq(stamped.origin.run) and not isinstance(stamped.event, RunQueued):
            await self._load_run(stamped.origin.run, address)
        await self._publish(stamped, address)

    async def _follow_deltas(self, address: str) -> None:
        """Listens also to what one process has not finished saying, while someone wants to see it."""
        with anyio.CancelScope() as scope:

            async def receive(stamped: EventRecord) -> None:
                if isinstance(stamped.event, EPHEMERAL_EVENTS):
                    await self._publish(stamped, address)
                if not self._feed.wants_deltas:
                    scope.cancel()

            async def ignore_live_runs(_: tuple[str, ...]) -> None: ...

            try:
                async with open_connection(address) as control:
                    await control.watch(ignore_live_runs, receive, deltas=True)
            except (ProcessUnreachableError, anyio.BrokenResourceError):
                pass  # as above
        self._with_deltas.discard(address)

    async def _add_unreported_runs(self, names: frozenset[str], unreachable: set[str]) -> None:
        """Takes in runs that nobody tells of: over before their process was found, or of one without a socket."""
        if names != self._known:
            self._feed.changes += 1
        for name in (*(names - self._known), *self._claimed):
            self._claimed[name] = self._claimed.get(name, 0) + 1
            run = await self._find_unreported_run(name)
            if run and (run.run in unreachable or run.state not in ACTIVE_STATES):
                await self._load_run(run.run, UNREACHABLE_ADDRESS)
                del self._claimed[name]
            elif self._claimed[name] >= MAX_LOOKUPS or name not in names or (run and self._feed.last_seq(run.run)):
                del self._claimed[name]
        self._known = names

    async def _find_unreported_run(self, name: str) -> RunSummary | None:
        """The latest run of the session of an id, once it has begun."""
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

    async def _end_lost_runs(self, owned: set[str]) -> None:
        """Ends the runs whose process is gone without a word: it was killed, and the next to start writes it down."""
        for run, live_run in list(self._feed.live.items()):
            if live_run.is_own or run in owned or live_run.address in self._attached:
                continue
            await self._load_run(run, live_run.address)
            if last := self._feed.live.get(run):
                await self._publish(make_interrupted_event(last.origin, last.seq + 1, last.started), live_run.address)

    async def _load_runs(self, runs: Iterable[LiveRunState]) -> None:
        for run in runs:
            await self._load_run(run.origin.run, run.address)

    async def _load_run(self, run: str, address: str) -> None:
        """Takes in what is stored of a run."""
        try:
            summary = await self._retinue.session(run)
            if summary is None:
                return
            async for stamped in self._retinue.history(summary.session, run=run):
                await self._publish(stamped, address)
        except RefusedError:
            pass  # its record cannot be read; what it does from now on can be seen


def _do_nothing() -> None:
    """Who has started has."""
