"""What happens, of all processes, in one numbered row: whoever watches has only a place in it.

So a watcher costs next to nothing, a slow one holds nobody up, and one who comes back gets exactly what it missed.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import anyio
from msgspec import Struct

from retinue.model.event_codec import EventRecord, to_line
from retinue.model.events import EPHEMERAL_EVENTS, OutputBytesCounted, RunEnded
from retinue.servers.http.live_runs import EndedRun, LiveRunState
from retinue.servers.http.open_blocks import BlockUpdate, StreamingBlocks
from retinue.servers.http.responses import encode_json
from retinue.servers.http.schemas import RunRow
from retinue.sessions.store import LeaseOwner, SessionSummary

Item = TypeVar("Item")


class BoundedDeque(Generic[Item]):
    """Keeps the latest items; the oldest go first, and the latest always stays."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._bytes = 0
        self._items: deque[tuple[int, Item]] = deque()

    def append(self, item: Item, size: int) -> None:
        """Takes an item of so many bytes."""
        self._items.append((size, item))
        self._bytes += size
        while len(self._items) > self._max_items or (self._bytes > self._max_bytes and len(self._items) > 1):
            self._bytes -= self._items.popleft()[0]

    def latest(self, count: int) -> Iterator[Item]:
        """The latest items, at most so many, the oldest of them first."""
        return (self._items[place][1] for place in range(max(len(self._items) - count, 0), len(self._items)))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return (item for _, item in self._items)

    def __reversed__(self) -> Iterator[Item]:
        return (item for _, item in reversed(self._items))


MAX_EVENTS = 20_000
"""Durable events that a watcher may be behind."""
MAX_EVENT_BYTES = 64 * 2**20
MAX_DELTAS = 2_000
MAX_DELTA_BYTES = 8 * 2**20
DELTA_GRACE = 30.0
"""Seconds it still takes in what is being written when the last watcher has left: one who reloads comes back."""
MAX_CURSOR_DIGITS = 15
"""Of a number in a place."""
MAX_ENDED_RUNS = 5_000
"""Ended runs whose last event is remembered."""


class FeedEntry(Struct, frozen=True):
    """One durable event, written down once for everybody."""

    number: int
    order: int
    """Its place among durable events and deltas."""
    run: str
    root: str
    event: bytes
    row: bytes


class FeedDelta(Struct, frozen=True):
    """A piece of what is being written: for those who look at this moment."""

    order: int
    run: str
    root: str
    data: bytes


class EventFeed:
    """The runs that go on, and the last events of all."""

    def __init__(
        self,
        steerable_engines: Container[str] = frozenset(),
        *,
        max_events: int = MAX_EVENTS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_deltas: int = MAX_DELTAS,
    ) -> None:
        """`steering` are the engines whose agents hear while they work."""
        self._steerable_engines = steerable_engines
        self._limits = (max_events, max_event_bytes)
        self.live: dict[str, LiveRunState] = {}
        """Runs that have not ended, in the order they were seen."""
        self._ended_runs: OrderedDict[str, EndedRun] = OrderedDict()
        self._owners: dict[str, LeaseOwner] = {}
        """Of runs of other processes: by the run, and by the socket of the process."""
        self.deltas = BoundedDeque[FeedDelta](max_deltas, MAX_DELTA_BYTES)
        self.blocks = StreamingBlocks()
        self.order = 0
        self.watchers = 0
        self.is_closed = False
        self.changes = 0
        """How often a run began, started or ended: what is in the store is then no longer what it was."""
        self._last_watcher_left = -math.inf
        """When there was a watcher last."""
        self._watched = anyio.Event()
        self._arrived = anyio.Event()
        self._end_waiters: dict[str, anyio.Event] = {}
        self._call_watchers: dict[str, Callable[[RunRow], None]] = {}
        self._start_epoch()

    def _start_epoch(self) -> None:
        self.epoch = os.urandom(4).hex()
        self.number = 0
        self.entries = BoundedDeque[FeedEntry](*self._limits)

    # -- what comes in -----------------------------------------------------------------------------

    def last_seq(self, run: str) -> int:
        """The number of the last durable event of a run that was told; 0 if none was."""
        if run in self.live:
            return self.live[run].seq
        return self._ended_runs[run].seq if run in self._ended_runs else 0

    def publish(
        self,
        stamped: EventRecord,
        *,
        continues: SessionSummary | None = None,
        parent_session: str | None = None,
        address: str = "",
    ) -> bool:
        """Tells an event on, once: what comes again, from the store or another process, is passed over."""
        run = stamped.origin.run
        if stamped.seq <= self.last_seq(run) or run in self._ended_runs:
            return False
        if isinstance(stamped.event, EPHEMERAL_EVENTS):
            return self._publish_delta(stamped)
        if run not in self.live:
            number = continues.runs if continues else 1
            self.live[run] = LiveRunState(
                stamped,
                number=number,
                address=address,
                steerable_engines=self._steerable_engines,
                continues=continues,
                parent_session=parent_session,
            )
            self.changes += 1
        live_run = self.live[run]
        live_run.address = address
        self._assign_owner(live_run)
        live_run.add_event(stamped)
        row = live_run.to_row()
        if notify := self._call_watchers.get(stamped.origin.parent_tool_use_id):
            notify(row)
        self._append(stamped, row)
        for piece in self.blocks.close(stamped):
            self._append_delta(stamped, piece)
        if isinstance(stamped.event, RunEnded):
            self._end_run(run, EndedRun(stamped.seq, row))
        return True

    def update_owners(self, owners: Iterable[LeaseOwner]) -> None:
        """Says who carries out the runs of other processes."""
        self._owners = {}
        for owner in owners:
            self._owners |= {owner.run: owner, **({owner.control: owner} if owner.control else {})}
        for live_run in self.live.values():
            self._assign_owner(live_run)

    def _assign_owner(self, live_run: LiveRunState) -> None:
        if not live_run.is_own:
            live_run.owner = (
                self._owners.get(live_run.origin.run) or self._owners.get(live_run.address) or live_run.owner
            )

    def restart(self) -> None:
        """Begins another row: something was lost, and everyone has to look anew."""
        self._start_epoch()
        self.order += 1
        self._notify_watchers()

    def close(self) -> None:
        """Ends every stream."""
        self.is_closed = True
        self._notify_watchers()

    def _end_run(self, run: str, past: EndedRun) -> None:
        del self.live[run]
        self.changes += 1
        self._ended_runs[run] = past
        if len(self._ended_runs) > MAX_ENDED_RUNS:
            self._ended_runs.popitem(last=False)
        if waiting := self._end_waiters.pop(run, None):
            waiting.set()

    def _append(self, stamped: EventRecord, row: RunRow) -> None:
        self.number += 1
        self.order += 1
        origin = stamped.origin
        entry = FeedEntry(self.number, self.order, origin.run, origin.root, to_line(stamped)[:-1], encode_json(row))
        self.entries.append(entry, len(entry.event) + len(entry.row))
        self._notify_watchers()

    # -- deltas ------------------------------------------------------------------------------------

    def _publish_delta(self, stamped: EventRecord) -> bool:
        event, live_run = stamped.event, self.live.get(stamped.origin.run)
        if live_run is None or not isinstance(event, EPHEMERAL_EVENTS) or isinstance(event, OutputBytesCounted):
            return False
        live_run.add_event(stamped)
        self._append_delta(stamped, self.blocks.append(stamped, event))
        return True

    def _append_delta(self, stamped: EventRecord, piece: BlockUpdate) -> None:
        self.order += 1
        data = encode_json(piece)
        self.deltas.append(FeedDelta(self.order, stamped.origin.run, stamped.origin.root, data), len(data))
        self._notify_watchers()

    @property
    def wants_deltas(self) -> bool:
        """Whether somebody watches, or just has: whoever looks at a run sees also what it has begun to write."""
        return self.watchers > 0 or anyio.current_time() - self._last_watcher_left < DELTA_GRACE

    async def wait_watched(self) -> None:
        """Returns once what is being written is wanted."""
        while not self.wants_deltas:
            self._watched = anyio.Event()
            await self._watched.wait()

    # -- what goes out -----------------------------------------------------------------------------

    @property
    def cursor(self) -> str:
        """The place of what happened last."""
        return self.format_cursor(self.number)

    def format_cursor(self, number: int) -> str:
        return f"{self.epoch}-{number}"

    def parse_cursor(self, cursor: str) -> int | None:
        """The number of a place; None if what came after it is no longer here."""
        epoch, _, number = cursor.rpartition("-")
        if epoch != self.epoch or not (number.isascii() and number.isdigit() and len(number) <= MAX_CURSOR_DIGITS):
            return None
        found = int(number)
        return found if self.number - len(self.entries) <= found <= self.number else None

    def entries_after(self, number: int) -> Iterator[FeedEntry]:
        """What happened after a place that is still here."""
        return self.entries.latest(self.number - number)

    def deltas_after(self, order: int) -> list[FeedDelta]:
        """What was written after this, as far as it is still here."""
        found = list(itertools.takewhile(lambda delta: delta.order > order, reversed(self.deltas)))
        return found[::-1]

    @contextmanager
    def register_watcher(self) -> Iterator[None]:
        """Counts a watcher for the block."""
        self.watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self.watchers -= 1
            self._last_watcher_left = anyio.current_time()

    @contextmanager
    def watch_call(self, call: str, notify: Callable[[RunRow], None]) -> Iterator[None]:
        """Tells, for the block, what becomes of the runs that a call asked for."""
        self._call_watchers[call] = notify
        try:
            yield
        finally:
            del self._call_watchers[call]

    async def wait_changed(self, order: int) -> None:
        """Returns once something has happened after this."""
        while self.order == order and not self.is_closed:
            await self._arrived.wait()

    async def wait_ended(self, run: str) -> None:
        """Returns once a run that has ended is known to have."""
        while run not in self._ended_runs and not self.is_closed:
            await self.wait_changed(self.order)

    async def wait_final_row(self, run: str) -> RunRow | None:
        """The last row of a run once it has ended; None if it is not known here."""
        if run in self.live:
            await self._end_waiters.setdefault(run, anyio.Event()).wait()
        return self._ended_runs[run].row if run in self._ended_runs else None

    def find_row(self, run: str) -> RunRow | None:
        """The row of a run that is known here."""
        if live_run := self.live.get(run):
            return live_run.to_row()
        return self._ended_runs[run].row if run in self._ended_runs else None

    def _notify_watchers(self) -> None:
        if self._arrived.statistics().tasks_waiting or self.is_closed:
            self._arrived.set()
            self._arrived = anyio.Event()
