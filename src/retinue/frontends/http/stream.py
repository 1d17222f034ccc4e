"""The event stream: server-sent events from a place in the hub's row, at the pace of whoever reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import anyio
from msgspec import Struct

from retinue.frontends.http.encoding import encoded
from retinue.frontends.http.hub import Entry, Hub
from retinue.frontends.http.inputs import Watch
from retinue.frontends.web.asgi import Receive, Send, begin

PACE = 0.04
"""Seconds between two messages to one reader: what happens meanwhile goes together."""
PING = 15.0
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
    is_fresh: bool
    """Whether it has yet to be told what was being written when it came."""


class Feed:
    """What one watcher gets, piece by piece."""

    def __init__(self, hub: Hub, watch: Watch, run: str | None = None) -> None:
        """Begins at the place that is asked for; with a run, only of this one."""
        self._hub = hub
        self._watch = watch
        self._run = run
        self._place = self._now()
        if watch.after:
            self.go_on(watch.after)

    def go_on(self, cursor: str) -> None:
        """Goes on behind a place, or begins with a `resync` where that is gone."""
        number, self._place = self._hub.number_of(cursor), self._now()
        self._place.epoch = self._place.epoch if number is not None else ""
        self._place.number = number or 0

    def next(self) -> bytes:
        """What has happened since the last time; empty if nothing has that is wanted."""
        hub, place = self._hub, self._place
        if hub.number_of(f"{place.epoch}-{place.number}") is None:
            place = self._place = self._now()
            cursor = hub.cursor.encode()
            return b'id: %b\nevent: resync\ndata: {"cursor":"%b"}\n\n' % (cursor, cursor) + self._so_far(place)
        entries = self._entries(place)
        upto = hub.order if not self.is_behind else entries[-1].order if entries else place.order
        pieces = [(entry.order, self._told(entry)) for entry in self._coalesced(entries)]
        if self._watch.deltas and not place.is_fresh:
            pieces += [
                (delta.order, _delta(delta.data))
                for delta in hub.deltas_after(place.order)
                if delta.order <= upto and self._wants(delta.run, delta.root)
            ]
            pieces.sort(key=lambda piece: piece[0])
        place.order = max(place.order, upto)
        told = b"".join(piece for _, piece in pieces)
        return told if self.is_behind else told + self._so_far(place)

    def _now(self) -> Place:
        hub = self._hub
        return Place(hub.epoch, hub.number, hub.order, is_fresh=hub.blocks.are_open)

    def _entries(self, place: Place) -> list[Entry]:
        """The next events that are wanted, about as many as go together; the place moves on behind them."""
        entries, size = [], 0
        for entry in self._hub.after(place.number):
            if size > AT_ONCE:
                break
            place.number = entry.number
            if self._wants(entry.run, entry.root):
                entries.append(entry)
                size += len(entry.row) + (0 if self._watch.rows else len(entry.event))
        return entries

    def _so_far(self, place: Place) -> bytes:
        """All that is being written, to who has just come and knows everything before it."""
        is_wanted = self._watch.deltas and place.is_fresh
        place.is_fresh = False
        return b"".join(_delta(encoded(each)) for each in self._hub.blocks.so_far(self._wants)) if is_wanted else b""

    @property
    def is_behind(self) -> bool:
        """Whether there is more than went with the last piece."""
        return self._place.number < self._hub.number

    @property
    def order(self) -> int:
        """Up to where in the hub's order it has looked."""
        return self._place.order

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


def _delta(data: bytes) -> bytes:
    return b"event: delta\ndata: %b\n\n" % data


async def stream(hub: Hub, feed: Feed, receive: Receive, send: Send, headers: Mapping[str, str]) -> None:
    """Sends what happens until the reader leaves, or is given up because it reads nothing, or the server ends."""
    with hub.watching():
        async with anyio.create_task_group() as group:
            group.start_soon(_until_gone, receive, group.cancel_scope)
            await begin(send, 200, {**headers, **HEADERS})
            await _tell(hub, feed, send)
            await send({"type": "http.response.body", "body": b""})
            group.cancel_scope.cancel()


async def _tell(hub: Hub, feed: Feed, send: Send) -> None:
    piece = _HELLO + feed.next()
    while not hub.is_closed:
        if piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await anyio.sleep(PACE)
        with anyio.move_on_after(PING) as waiting:
            if not feed.is_behind:
                await hub.news(feed.order)
        piece = feed.ping() if waiting.cancelled_caught else feed.next()


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
