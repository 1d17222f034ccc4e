"""The events of all processes in one numbered sequence, in which each watcher has only a position.

So a watcher costs next to nothing, a slow one delays no other, and one that reconnects gets exactly what it missed.
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
from retinue.model.events import COUNTED_EVENTS, EPHEMERAL_EVENTS, RunEnded
from retinue.output.json_text import encode_json
from retinue.servers.http.live_runs import BlockUpdate, EndedRun, LiveRunState, StreamingBlocks
from retinue.servers.http.schemas import RunRow
from retinue.sessions.store import LeaseOwner, SessionSummary

Item = TypeVar("Item")


class BoundedDeque(Generic[Item]):
    """The latest items within a limit of items and bytes; the last item always stays."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._bytes = 0
        self._items: deque[tuple[int, Item]] = deque()

    def append(self, item: Item, size: int) -> None:
        """Add an item of `size` bytes and remove the oldest items beyond the limits."""
        self._items.append((size, item))
        self._bytes += size
        while len(self._items) > self._max_items or (self._bytes > self._max_bytes and len(self._items) > 1):
            self._bytes -= self._items.popleft()[0]

    def latest(self, count: int) -> Iterator[Item]:
        """Return at most `count` of the latest items, oldest first."""
        return (self._items[index][1] for index in range(max(len(self._items) - count, 0), len(self._items)))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return (item for _, item in self._items)

    def __reversed__(self) -> Iterator[Item]:
        return (item for _, item in reversed(self._items))


MAX_EVENTS = 20_000
"""Durable events that a watcher may lag behind."""
MAX_EVENT_BYTES = 64 * 2**20
MAX_DELTAS = 2_000
MAX_DELTA_BYTES = 8 * 2**20
DELTA_GRACE = 30.0
"""Seconds in which deltas are still followed after the last watcher left: a reloaded page reconnects."""
MAX_CURSOR_DIGITS = 15
"""Length of the number in a cursor."""
MAX_ENDED_RUNS = 5_000
"""Ended runs whose last event is remembered."""


class FeedEntry(Struct, frozen=True):
    """One durable event, encoded once for all watchers."""

    number: int
    order: int
    """Position among durable events and deltas."""
    run: str
    root: str
    event: bytes
    row: bytes


class FeedDelta(Struct, frozen=True):
    """A piece of a text that is being written, for current watchers."""

    order: int
    run: str
    root: str
    data: bytes


class EventFeed:
    """The live runs and the latest events of all runs."""

    def __init__(
        self,
        steerable_engines: Container[str] = frozenset(),
        *,
        max_events: int = MAX_EVENTS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_deltas: int = MAX_DELTAS,
    ) -> None:
        """`steerable_engines` are the engines whose agents take messages while they work."""
        self._steerable_engines = steerable_engines
        self._limits = (max_events, max_event_bytes)
        self.live: dict[str, LiveRunState] = {}
        """Runs that have not ended, in the order of their first event."""
        self._ended_runs: OrderedDict[str, EndedRun] = OrderedDict()
        self._owners: dict[str, LeaseOwner] = {}
        """Owners of the runs of other processes, by run and by socket."""
        self.deltas = BoundedDeque[FeedDelta](max_deltas, MAX_DELTA_BYTES)
        self.blocks = StreamingBlocks()
        self.order = 0
        self.watchers = 0
        self.is_closed = False
        self.changes = 0
        """Count of changes after which lists that were read from the store are outdated."""
        self._last_watcher_left = -math.inf
        """Time at which the last watcher left."""
        self._watched = anyio.Event()
        self._arrived = anyio.Event()
        self._end_waiters: dict[str, anyio.Event] = {}
        self._call_watchers: dict[str, Callable[[RunRow], None]] = {}
        self._start_epoch()

    def _start_epoch(self) -> None:
        self.epoch = os.urandom(4).hex()
        self.number = 0
        self.entries = BoundedDeque[FeedEntry](*self._limits)

    # -- publish -----------------------------------------------------------------------------------

    def last_seq(self, run: str) -> int:
        """Return the number of the last published durable event of a run; 0 if there is none."""
        if run in self.live:
            return self.live[run].seq
        return self._ended_runs[run].seq if run in self._ended_runs else 0

    def publish(
        self,
        record: EventRecord,
        *,
        continues: SessionSummary | None = None,
        parent_session: str | None = None,
        address: str = "",
    ) -> bool:
        """Publish an event; return false if it was published before, by the store or another process."""
        run = record.origin.run
        if record.seq <= self.last_seq(run) or run in self._ended_runs:
            return False
        if isinstance(record.event, EPHEMERAL_EVENTS):
            return self._publish_delta(record)
        if run not in self.live:
            number = continues.runs if continues else 1
            self.live[run] = LiveRunState(
                record,
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
        live_run.add_event(record)
        row = live_run.to_row()
        if notify := self._call_watchers.get(record.origin.parent_tool_use_id):
            notify(row)
        self._append(record, row)
        for piece in self.blocks.close(record):
            self._append_delta(record, piece)
        if isinstance(record.event, RunEnded):
            self._end_run(run, EndedRun(record.seq, row))
        return True

    def update_owners(self, owners: Iterable[LeaseOwner]) -> None:
        """Set the owners of the runs of other processes."""
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
        """Start another sequence: events were lost, and every watcher must reload."""
        self._start_epoch()
        self.order += 1
        self._notify_watchers()

    def close(self) -> None:
        """End every stream."""
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

    def _append(self, record: EventRecord, row: RunRow) -> None:
        self.number += 1
        self.order += 1
        origin = record.origin
        entry = FeedEntry(self.number, self.order, origin.run, origin.root, to_line(record)[:-1], encode_json(row))
        self.entries.append(entry, len(entry.event) + len(entry.row))
        self._notify_watchers()

    # -- deltas ------------------------------------------------------------------------------------

    def _publish_delta(self, record: EventRecord) -> bool:
        event, live_run = record.event, self.live.get(record.origin.run)
        if live_run is None or not isinstance(event, EPHEMERAL_EVENTS) or isinstance(event, COUNTED_EVENTS):
            return False
        live_run.add_event(record)
        self._append_delta(record, self.blocks.append(record, event))
        return True

    def _append_delta(self, record: EventRecord, piece: BlockUpdate) -> None:
        self.order += 1
        data = encode_json(piece)
        self.deltas.append(FeedDelta(self.order, record.origin.run, record.origin.root, data), len(data))
        self._notify_watchers()

    @property
    def wants_deltas(self) -> bool:
        """There is a watcher, or there was one until a moment ago."""
        return self.watchers > 0 or anyio.current_time() - self._last_watcher_left < DELTA_GRACE

    async def wait_watched(self) -> None:
        """Return when deltas are wanted."""
        while not self.wants_deltas:
            self._watched = anyio.Event()
            await self._watched.wait()

    # -- read --------------------------------------------------------------------------------------

    @property
    def cursor(self) -> str:
        """The position of the last event."""
        return self.format_cursor(self.number)

    def format_cursor(self, number: int) -> str:
        return f"{self.epoch}-{number}"

    def parse_cursor(self, cursor: str) -> int | None:
        """Return the number of a cursor; None if later events were already removed."""
        epoch, _, number = cursor.rpartition("-")
        if epoch != self.epoch or not (number.isascii() and number.isdigit() and len(number) <= MAX_CURSOR_DIGITS):
            return None
        found = int(number)
        return found if self.number - len(self.entries) <= found <= self.number else None

    def entries_after(self, number: int) -> Iterator[FeedEntry]:
        """Return the events after a number that `parse_cursor` returned."""
        return self.entries.latest(self.number - number)

    def deltas_after(self, order: int) -> list[FeedDelta]:
        """Return the deltas after a position, as far as they are kept."""
        found = list(itertools.takewhile(lambda delta: delta.order > order, reversed(self.deltas)))
        return found[::-1]

    @contextmanager
    def register_watcher(self) -> Iterator[None]:
        """Count a watcher for the block."""
        self.watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self.watchers -= 1
            self._last_watcher_left = anyio.current_time()

    @contextmanager
    def watch_call(self, call: str, notify: Callable[[RunRow], None]) -> Iterator[None]:
        """Report, for the block, each new row of the runs of a call."""
        self._call_watchers[call] = notify
        try:
            yield
        finally:
            del self._call_watchers[call]

    async def wait_changed(self, order: int) -> None:
        """Return when there is an event or delta after a position."""
        while self.order == order and not self.is_closed:
            await self._arrived.wait()

    async def wait_ended(self, run: str) -> None:
        """Return when the end of a run is published."""
        while run not in self._ended_runs and not self.is_closed:
            await self.wait_changed(self.order)

    async def wait_final_row(self, run: str) -> RunRow | None:
        """Wait for the end of a run and return its last row; None if the run is unknown."""
        if run in self.live:
            await self._end_waiters.setdefault(run, anyio.Event()).wait()
        return self._ended_runs[run].row if run in self._ended_runs else None

    def find_row(self, run: str) -> RunRow | None:
        """Return the row of a live or recently ended run; None if the run is unknown."""
        if live_run := self.live.get(run):
            return live_run.to_row()
        return self._ended_runs[run].row if run in self._ended_runs else None

    def _notify_watchers(self) -> None:
        if self._arrived.statistics().tasks_waiting or self.is_closed:
            self._arrived.set()
            self._arrived = anyio.Event()
