"""The event stream: server-sent events from a place in the hub's row, at the pace of whoever reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import anyio
from msgspec import Struct

from retinue.frontends.http.hub import Entry, Hub
from retinue.frontends.http.inputs import Watch
from retinue.frontends.web.asgi import Receive, Send

PACE = 0.04
"""Seconds between two messages to one reader: what happens meanwhile goes together."""
PING = 15.0
STALLED = 120.0
"""Seconds a reader may take nothing before its connection is given up; it can come back."""
AT_ONCE = 256 * 2**10
"""Bytes of one piece, about: more waits for the reader."""
MOST_WATCHERS = 300

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
_HELLO = b"retry: 1000\n\n"


class Place(Struct):
    """How far one watcher has come."""

    epoch: str
    number: int
    order: int
    """Of the last delta or event."""


class Feed:
    """What one watcher gets, piece by piece."""

    def __init__(self, hub: Hub, watch: Watch, run: str | None = None) -> None:
        """Begins at the place that is asked for; with a run, only of this one."""
        self._hub = hub
        self._watch = watch
        self._run = run
        self._place = Place(hub.epoch, hub.number, hub.order)
        if watch.after:
            self.go_on(watch.after)

    def go_on(self, cursor: str) -> None:
        """Goes on behind a place, or begins with a `resync` where that is gone."""
        number = self._hub.number_of(cursor)
        self._place = Place(self._hub.epoch if number is not None else "", number or 0, self._hub.order)

    def next(self) -> bytes:
        """What has happened since the last time; empty if nothing has that is wanted."""
        hub, place = self._hub, self._place
        if hub.number_of(f"{place.epoch}-{place.number}") is None:
            self._place = Place(hub.epoch, hub.number, hub.order)
            return b'id: %b\nevent: resync\ndata: {"cursor":"%b"}\n\n' % (hub.cursor.encode(), hub.cursor.encode())
        entries, size = [], 0
        for entry in hub.after(place.number):
            if size > AT_ONCE:
                break
            place.number = entry.number
            if self._wants(entry.run, entry.root):
                entries.append(entry)
                size += len(entry.row) + (0 if self._watch.rows else len(entry.event))
        deltas = [delta for delta in hub.deltas if delta.order > place.order] if self._watch.deltas else []
        caught_up = place.number == hub.number
        upto = hub.order if caught_up else entries[-1].order if entries else place.order
        pieces = [(entry.order, self._told(entry)) for entry in self._coalesced(entries)]
        pieces += [
            (delta.order, b"event: delta\ndata: %b\n\n" % delta.data)
            for delta in deltas
            if delta.order <= upto and self._wants(delta.run, delta.root)
        ]
        place.order = max(place.order, upto)
        if deltas:
            pieces.sort(key=lambda piece: piece[0])
        return b"".join(piece for _, piece in pieces)

    @property
    def order(self) -> int:
        """Up to where in the hub's order it has looked."""
        return self._place.order

    @property
    def wants_deltas(self) -> bool:
        return self._watch.deltas

    def ping(self) -> bytes:
        """Says that the connection stands, and up to where nothing was wanted."""
        return b": ping\nid: %b\n\n" % self._hub.place(self._place.number).encode()

    def _wants(self, run: str, root: str) -> bool:
        return self._run in {None, run} and self._watch.root in {None, root}

    def _coalesced(self, entries: list[Entry]) -> Iterator[Entry]:
        """Of rows the last of each run: what a row was in between is nobody's business."""
        if not self._watch.rows:
            return iter(entries)
        last = {entry.run: entry for entry in entries}
        return (entry for entry in entries if last[entry.run] is entry)

    def _told(self, entry: Entry) -> bytes:
        head = b"id: %b\n" % self._hub.place(entry.number).encode()
        if self._watch.rows:
            return b"%bevent: row\ndata: %b\n\n" % (head, entry.row)
        return b'%bevent: happened\ndata: {"event":%b,"row":%b}\n\n' % (head, entry.event, entry.row)


async def stream(hub: Hub, feed: Feed, receive: Receive, send: Send, headers: Mapping[str, str]) -> None:
    """Sends what happens until the reader leaves, reads nothing for too long, or the server ends."""
    encoded = [(name.encode(), value.encode()) for name, value in {**headers, **HEADERS}.items()]
    with hub.watching(deltas=feed.wants_deltas):
        async with anyio.create_task_group() as group:
            group.start_soon(_until_gone, receive, group.cancel_scope)
            await send({"type": "http.response.start", "status": 200, "headers": encoded})
            with anyio.CancelScope() as stalled:
                await _tell(hub, feed, send, stalled)
                await send({"type": "http.response.body", "body": b""})
            group.cancel_scope.cancel()


async def _tell(hub: Hub, feed: Feed, send: Send, stalled: anyio.CancelScope) -> None:
    piece = _HELLO + feed.next()
    while not hub.is_closed:
        if piece:
            stalled.deadline = anyio.current_time() + STALLED
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            stalled.deadline = math.inf
        await anyio.sleep(PACE)
        with anyio.move_on_after(PING) as waiting:
            await hub.news(feed.order)
        piece = feed.ping() if waiting.cancelled_caught else feed.next()


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
