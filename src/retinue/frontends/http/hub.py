"""What happens, of all processes, in one numbered row: whoever watches has only a place in it.

So a watcher costs next to nothing, a slow one holds nobody up, and one who comes back gets exactly what it missed.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager

import anyio
from msgspec import Struct

from retinue.events import LIVE, OutputCounted, RunEnded, Stamped, to_line
from retinue.frontends.http.blocks import Blocks, Written
from retinue.frontends.http.encoding import encoded
from retinue.frontends.http.live import LiveRun, Past
from retinue.frontends.http.ring import Ring
from retinue.frontends.http.values import RunRow
from retinue.sessions.owner import Owner
from retinue.sessions.store import SessionSummary

KEPT = 20_000
"""Durable events that a watcher may be behind."""
KEPT_BYTES = 64 * 2**20
KEPT_DELTAS = 2_000
KEPT_DELTA_BYTES = 8 * 2**20
LINGER = 30.0
"""Seconds it still takes in what is being written when the last watcher has left: one who reloads comes back."""
MOST_DIGITS = 15
"""Of a number in a place."""
KEPT_PAST = 5_000
"""Ended runs whose last event is remembered."""


class Entry(Struct, frozen=True):
    """One durable event, written down once for everybody."""

    number: int
    order: int
    """Its place among durable events and deltas."""
    run: str
    root: str
    event: bytes
    row: bytes


class Delta(Struct, frozen=True):
    """A piece of what is being written: for those who look at this moment."""

    order: int
    run: str
    root: str
    data: bytes


class Hub:
    """The runs that go on, and the last events of all."""

    def __init__(
        self,
        steering: Container[str] = frozenset(),
        *,
        kept: int = KEPT,
        kept_bytes: int = KEPT_BYTES,
        kept_deltas: int = KEPT_DELTAS,
    ) -> None:
        """`steering` are the engines whose agents hear while they work."""
        self._steering = steering
        self._bounds = (kept, kept_bytes)
        self.live: dict[str, LiveRun] = {}
        """Runs that have not ended, in the order they were seen."""
        self._past: OrderedDict[str, Past] = OrderedDict()
        self._owners: dict[str, Owner] = {}
        """Of runs of other processes: by the run, and by the socket of the process."""
        self.deltas = Ring[Delta](kept_deltas, KEPT_DELTA_BYTES)
        self.blocks = Blocks()
        self.order = 0
        self.watchers = 0
        self.is_closed = False
        self.changes = 0
        """How often a run began, started or ended: what is in the store is then no longer what it was."""
        self._left = -math.inf
        """When there was a watcher last."""
        self._watched = anyio.Event()
        self._news = anyio.Event()
        self._ended: dict[str, anyio.Event] = {}
        self._meeting: dict[str, Callable[[RunRow], None]] = {}
        self._begin()

    def _begin(self) -> None:
        self.epoch = os.urandom(4).hex()
        self.number = 0
        self.entries = Ring[Entry](*self._bounds)

    # -- what comes in -----------------------------------------------------------------------------

    def seen(self, run: str) -> int:
        """The number of the last durable event of a run that was told; 0 if none was."""
        if run in self.live:
            return self.live[run].seq
        return self._past[run].seq if run in self._past else 0

    def take(
        self,
        stamped: Stamped,
        *,
        continues: SessionSummary | None = None,
        parent_session: str | None = None,
        address: str = "",
    ) -> bool:
        """Tells an event on, once: what comes again, from the store or another process, is passed over."""
        run = stamped.origin.run
        if stamped.seq <= self.seen(run) or run in self._past:
            return False
        if isinstance(stamped.event, LIVE):
            return self._take_delta(stamped)
        if run not in self.live:
            number = continues.runs if continues else 1
            self.live[run] = LiveRun(
                stamped,
                number=number,
                address=address,
                steering=self._steering,
                continues=continues,
                parent_session=parent_session,
            )
            self.changes += 1
        told = self.live[run]
        told.address = address
        self._place(told)
        told.take(stamped)
        row = told.row()
        if tell := self._meeting.get(stamped.origin.parent_tool_use_id):
            tell(row)
        self._put(stamped, row)
        for piece in self.blocks.close(stamped):
            self._put_delta(stamped, piece)
        if isinstance(stamped.event, RunEnded):
            self._end(run, Past(stamped.seq, row))
        return True

    def meet(self, owners: Iterable[Owner]) -> None:
        """Says who carries out the runs of other processes."""
        self._owners = {}
        for owner in owners:
            self._owners |= {owner.run: owner, **({owner.control: owner} if owner.control else {})}
        for told in self.live.values():
            self._place(told)

    def _place(self, told: LiveRun) -> None:
        if not told.is_own:
            told.owner = self._owners.get(told.origin.run) or self._owners.get(told.address) or told.owner

    def restart(self) -> None:
        """Begins another row: something was lost, and everyone has to look anew."""
        self._begin()
        self.order += 1
        self._wake()

    def close(self) -> None:
        """Ends every stream."""
        self.is_closed = True
        self._wake()

    def _end(self, run: str, past: Past) -> None:
        del self.live[run]
        self.changes += 1
        self._past[run] = past
        if len(self._past) > KEPT_PAST:
            self._past.popitem(last=False)
        if waiting := self._ended.pop(run, None):
            waiting.set()

    def _put(self, stamped: Stamped, row: RunRow) -> None:
        self.number += 1
        self.order += 1
        origin = stamped.origin
        entry = Entry(self.number, self.order, origin.run, origin.root, to_line(stamped)[:-1], encoded(row))
        self.entries.append(entry, len(entry.event) + len(entry.row))
        self._wake()

    # -- deltas ------------------------------------------------------------------------------------

    def _take_delta(self, stamped: Stamped) -> bool:
        event, told = stamped.event, self.live.get(stamped.origin.run)
        if told is None or not isinstance(event, LIVE) or isinstance(event, OutputCounted):
            return False
        told.take(stamped)
        self._put_delta(stamped, self.blocks.write(stamped, event))
        return True

    def _put_delta(self, stamped: Stamped, piece: Written) -> None:
        self.order += 1
        data = encoded(piece)
        self.deltas.append(Delta(self.order, stamped.origin.run, stamped.origin.root, data), len(data))
        self._wake()

    @property
    def wants_deltas(self) -> bool:
        """Whether somebody watches, or just has: whoever looks at a run sees also what it has begun to write."""
        return self.watchers > 0 or anyio.current_time() - self._left < LINGER

    async def until_watched(self) -> None:
        """Returns once what is being written is wanted."""
        while not self.wants_deltas:
            self._watched = anyio.Event()
            await self._watched.wait()

    # -- what goes out -----------------------------------------------------------------------------

    @property
    def cursor(self) -> str:
        """The place of what happened last."""
        return self.place(self.number)

    def place(self, number: int) -> str:
        return f"{self.epoch}-{number}"

    def number_of(self, cursor: str) -> int | None:
        """The number of a place; None if what came after it is no longer here."""
        epoch, _, number = cursor.rpartition("-")
        if epoch != self.epoch or not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS):
            return None
        found = int(number)
        return found if self.number - len(self.entries) <= found <= self.number else None

    def after(self, number: int) -> Iterator[Entry]:
        """What happened after a place that is still here."""
        return self.entries.latest(self.number - number)

    def deltas_after(self, order: int) -> list[Delta]:
        """What was written after this, as far as it is still here."""
        found = list(itertools.takewhile(lambda delta: delta.order > order, reversed(self.deltas)))
        return found[::-1]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Counts a watcher for the block."""
        self.watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self.watchers -= 1
            self._left = anyio.current_time()

    @contextmanager
    def meeting(self, call: str, tell: Callable[[RunRow], None]) -> Iterator[None]:
        """Tells, for the block, what becomes of the runs that a call asked for."""
        self._meeting[call] = tell
        try:
            yield
        finally:
            del self._meeting[call]

    async def news(self, order: int) -> None:
        """Returns once something has happened after this."""
        while self.order == order and not self.is_closed:
            await self._news.wait()

    async def known(self, run: str) -> None:
        """Returns once a run that has ended is known to have."""
        while run not in self._past and not self.is_closed:
            await self.news(self.order)

    async def ended(self, run: str) -> RunRow | None:
        """The last row of a run once it has ended; None if it is not known here."""
        if run in self.live:
            await self._ended.setdefault(run, anyio.Event()).wait()
        return self._past[run].row if run in self._past else None

    def row(self, run: str) -> RunRow | None:
        """The row of a run that is known here."""
        if told := self.live.get(run):
            return told.row()
        return self._past[run].row if run in self._past else None

    def _wake(self) -> None:
        if self._news.statistics().tasks_waiting or self.is_closed:
            self._news.set()
            self._news = anyio.Event()
