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

from retinue.app import Retinue
from retinue.bus import Lagged
from retinue.control.client import Unreachable, connected
from retinue.events import LIVE, RunQueued, Stamped
from retinue.frontends.elsewhere import LOOK, interrupted
from retinue.frontends.http.hub import Hub
from retinue.frontends.http.live import LiveRun
from retinue.frontends.http.rows import GOING_ON
from retinue.frontends.http.shelf import session_of
from retinue.sessions.store import RunSummary, SessionSummary
from retinue.types import Refused

TRIES = 40
"""Looks after which an id that was claimed and never used is given up."""

MUTE_LOOKS = 8
"""Looks between two at the record of a run whose process has no socket."""
MUTE = "?"
"""In the place of the socket of a process that has none, or is over."""


class Sources:
    """Tells the hub what happens, wherever it does."""

    def __init__(self, retinue: Retinue, hub: Hub) -> None:
        self._retinue = retinue
        self._hub = hub
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
            await group.start(self._own)
            group.start_soon(self._own_deltas)
            self._known = await self._names()
            task_status.started()
            while True:
                await self._look(group)
                await anyio.sleep(LOOK)

    # -- this process ------------------------------------------------------------------------------

    async def _own(self, *, task_status: TaskStatus[None]) -> None:
        started: Callable[[], None] = task_status.started
        while True:
            try:
                async with self._retinue.events(deltas=False) as watcher:
                    started()
                    while True:
                        for stamped in (await anext(watcher), *watcher.waiting()):
                            await self._tell(stamped)
            except Lagged:
                started = _nothing
                self._hub.restart()
                await self._recall([run for run in self._hub.live.values() if run.is_own])

    async def _own_deltas(self) -> None:
        while True:
            await self._hub.until_watched()
            try:
                async with self._retinue.events(deltas=True) as watcher:
                    while self._hub.wants_deltas:
                        for stamped in (await anext(watcher), *watcher.waiting()):
                            if isinstance(stamped.event, LIVE):
                                await self._tell(stamped)
            except Lagged:
                pass  # these are for the moment; what is whole comes by the other watcher

    async def _tell(self, stamped: Stamped, address: str = "") -> None:
        continues = await self._continued(stamped)
        above = await self._above(stamped, continues)
        # A fault costs one event, never the rest: nobody's work depends on being looked at.
        with suppress(Exception):
            self._hub.take(stamped, continues=continues, parent_session=above, address=address)

    async def _continued(self, stamped: Stamped) -> SessionSummary | None:
        """The session that a run continues; looked up when it begins."""
        if not isinstance(stamped.event, RunQueued) or stamped.origin.run == stamped.origin.session:
            return None
        try:
            return await self._retinue.session(stamped.origin.session)
        except Refused:
            return None

    async def _above(self, stamped: Stamped, continues: SessionSummary | None) -> str | None:
        """The session that a run stands below; looked up when it begins."""
        parent = continues.parent_run if continues else stamped.origin.parent_run
        if parent is None or not isinstance(stamped.event, RunQueued):
            return None
        known = self._hub.row(parent)
        return known.session if known else await session_of(self._retinue, parent)

    # -- other processes ---------------------------------------------------------------------------

    async def _look(self, group: TaskGroup) -> None:
        names = await self._names()
        try:
            owners = await self._retinue.owners()
        except Refused:
            return  # the folder cannot be read at this moment; what is known stays
        others = [owner for owner in owners if (owner.pid, owner.host) != self._here]
        self._hub.meet(others)
        for owner in others:
            if owner.control and owner.control not in self._attached:
                self._attached.add(owner.control)
                group.start_soon(self._attach, owner.control)
            if owner.control and self._hub.wants_deltas and owner.control not in self._with_deltas:
                self._with_deltas.add(owner.control)
                group.start_soon(self._attach_deltas, owner.control)
        mute = {owner.run for owner in others if not owner.control}
        await self._meet(names, mute)
        self._looks += 1
        if self._looks % MUTE_LOOKS == 0:
            for run in mute:
                await self._recall_run(run, MUTE)
        await self._end_lost({owner.run for owner in owners})

    async def _attach(self, address: str) -> None:
        """Listens to one process until it ends."""

        async def catch_up(live: tuple[str, ...]) -> None:
            # Also those that have ended while nobody listened.
            told = [run for run, each in self._hub.live.items() if each.address == address]
            for run in dict.fromkeys((*told, *live)):
                await self._recall_run(run, address)

        async def take(stamped: Stamped) -> None:
            await self.hear(stamped, address)

        try:
            async with connected(address) as control:
                await control.watch(catch_up, take, deltas=False)
        except (Unreachable, anyio.BrokenResourceError):
            pass  # it ended, or cannot be spoken to now: it is tried again while it holds a lease
        finally:
            self._attached.discard(address)

    async def hear(self, stamped: Stamped, address: str) -> None:
        """Takes what another process tells of a run.

        One that was ending when we began to listen is not among its live ones: the record has what came before.
        """
        if not self._hub.seen(stamped.origin.run) and not isinstance(stamped.event, RunQueued):
            await self._recall_run(stamped.origin.run, address)
        await self._tell(stamped, address)

    async def _attach_deltas(self, address: str) -> None:
        """Listens also to what one process has not finished saying, while someone wants to see it."""
        with anyio.CancelScope() as scope:

            async def take(stamped: Stamped) -> None:
                if isinstance(stamped.event, LIVE):
                    await self._tell(stamped, address)
                if not self._hub.wants_deltas:
                    scope.cancel()

            async def nothing(_: tuple[str, ...]) -> None: ...

            try:
                async with connected(address) as control:
                    await control.watch(nothing, take, deltas=True)
            except (Unreachable, anyio.BrokenResourceError):
                pass  # as above
        self._with_deltas.discard(address)

    async def _meet(self, names: frozenset[str], mute: set[str]) -> None:
        """Takes in runs that nobody tells of: over before their process was found, or of one without a socket."""
        if names != self._known:
            self._hub.changes += 1
        for name in (*(names - self._known), *self._claimed):
            self._claimed[name] = self._claimed.get(name, 0) + 1
            run = await self._untold(name)
            if run and (run.run in mute or run.state not in GOING_ON):
                await self._recall_run(run.run, MUTE)
                del self._claimed[name]
            elif self._claimed[name] >= TRIES or name not in names or (run and self._hub.seen(run.run)):
                del self._claimed[name]
        self._known = names

    async def _untold(self, name: str) -> RunSummary | None:
        """The latest run of the session of an id, once it has begun."""
        try:
            summary = await self._retinue.session(name)
        except Refused:
            return None
        return summary.latest if summary else None

    async def _names(self) -> frozenset[str]:
        try:
            return await self._retinue.names()
        except Refused:
            return self._known

    async def _end_lost(self, owned: set[str]) -> None:
        """Ends the runs whose process is gone without a word: it was killed, and the next to start writes it down."""
        for run, told in list(self._hub.live.items()):
            if told.is_own or run in owned or told.address in self._attached:
                continue
            await self._recall_run(run, told.address)
            if last := self._hub.live.get(run):
                await self._tell(interrupted(last.origin, last.seq + 1, last.started), told.address)

    async def _recall(self, runs: Iterable[LiveRun]) -> None:
        for run in runs:
            await self._recall_run(run.origin.run, run.address)

    async def _recall_run(self, run: str, address: str) -> None:
        """Takes in what is stored of a run."""
        try:
            summary = await self._retinue.session(run)
            if summary is None:
                return
            async for stamped in self._retinue.history(summary.session, run=run):
                await self._tell(stamped, address)
        except Refused:
            pass  # its record cannot be read; what it does from now on can be seen


def _nothing() -> None:
    """Who has started has."""
