"""The event stream: server-sent events from a position of the feed, at the pace of the reader."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
from msgspec import Struct

from retinue.output.json_text import encode_json
from retinue.servers.asgi.request_checks import Receive, Send
from retinue.servers.http.event_feed import EventFeed, FeedEntry
from retinue.servers.http.inputs import WatchQuery

MIN_UPDATE_INTERVAL = 0.04
"""Seconds between two chunks to one reader: events in between are sent together."""
PING_INTERVAL = 15.0
MAX_CHUNK_BYTES = 256 * 2**10
"""Of one chunk, roughly: more waits for the reader."""
MAX_WATCHERS = 300

STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
_RETRY_LINE = b"retry: 1000\n\n"


class StreamPosition(Struct):
    """The position of one watcher in the feed."""

    epoch: str
    number: int
    order: int
    """The order of the last delta or event."""
    is_fresh: bool
    """Whether the watcher has yet to get the text that was being written when it connected."""


class EventStream:
    """The messages for one watcher, in chunks."""

    def __init__(self, feed: EventFeed, query: WatchQuery, run: str | None = None) -> None:
        """Start at the position of the query; with a run, send the events of this run only."""
        self._feed = feed
        self._query = query
        self._run = run
        self._position = self._current_position()
        if query.after:
            self.resume_after(query.after)

    def resume_after(self, cursor: str) -> None:
        """Continue after a cursor, or start with a `resync` if that position is gone."""
        number, self._position = self._feed.parse_cursor(cursor), self._current_position()
        self._position.epoch = self._position.epoch if number is not None else ""
        self._position.number = number or 0

    def next_chunk(self) -> bytes:
        """Return the messages since the last chunk; empty if there are none."""
        feed, position = self._feed, self._position
        if feed.parse_cursor(f"{position.epoch}-{position.number}") is None:
            position = self._position = self._current_position()
            cursor = feed.cursor.encode()
            return b'id: %b\nevent: resync\ndata: {"cursor":"%b"}\n\n' % (cursor, cursor) + self._snapshot(position)
        entries = self._next_entries(position)
        upto = feed.order if not self.is_behind else entries[-1].order if entries else position.order
        pieces = [(entry.order, self._encode_entry(entry)) for entry in self._coalesce_rows(entries)]
        if self._query.deltas and not position.is_fresh:
            pieces += [
                (delta.order, _encode_delta(delta.data))
                for delta in feed.deltas_after(position.order)
                if delta.order <= upto and self._wants(delta.run, delta.root)
            ]
            pieces.sort(key=lambda piece: piece[0])
        position.order = max(position.order, upto)
        chunks = b"".join(piece for _, piece in pieces)
        return chunks if self.is_behind else chunks + self._snapshot(position)

    def _current_position(self) -> StreamPosition:
        feed = self._feed
        return StreamPosition(feed.epoch, feed.number, feed.order, is_fresh=feed.blocks.has_open)

    def _next_entries(self, position: StreamPosition) -> list[FeedEntry]:
        """Return the next events of the query, about one chunk of them, and move the position after them."""
        entries, size = [], 0
        for entry in self._feed.entries_after(position.number):
            if size > MAX_CHUNK_BYTES:
                break
            position.number = entry.number
            if self._wants(entry.run, entry.root):
                entries.append(entry)
                size += len(entry.row) + (0 if self._query.rows else len(entry.event))
        return entries

    def _snapshot(self, position: StreamPosition) -> bytes:
        """Return the text that is being written, for a watcher that has just caught up."""
        is_wanted = self._query.deltas and position.is_fresh
        position.is_fresh = False
        return (
            b"".join(_encode_delta(encode_json(each)) for each in self._feed.blocks.snapshot_all(self._wants))
            if is_wanted
            else b""
        )

    @property
    def is_behind(self) -> bool:
        """Return whether the feed has events after the last chunk."""
        return self._position.number < self._feed.number

    @property
    def order(self) -> int:
        """Return the order up to which the feed was read."""
        return self._position.order

    def ping(self) -> bytes:
        """Return a message that keeps the connection open and moves the cursor."""
        return b": ping\nid: %b\n\n" % self._feed.format_cursor(self._position.number).encode()

    def _wants(self, run: str, root: str) -> bool:
        return self._run in {None, run} and self._query.root in {None, root}

    def _coalesce_rows(self, entries: list[FeedEntry]) -> Iterator[FeedEntry]:
        """Yield the last row of each run, if the watcher wants rows."""
        if not self._query.rows:
            return iter(entries)
        last = {entry.run: entry for entry in entries}
        return (entry for entry in entries if last[entry.run] is entry)

    def _encode_entry(self, entry: FeedEntry) -> bytes:
        head = b"id: %b\n" % self._feed.format_cursor(entry.number).encode()
        if self._query.rows:
            return b"%bevent: row\ndata: %b\n\n" % (head, entry.row)
        return b'%bevent: happened\ndata: {"event":%b,"row":%b}\n\n' % (head, entry.event, entry.row)


def _encode_delta(data: bytes) -> bytes:
    return b"event: delta\ndata: %b\n\n" % data


async def send_events(feed: EventFeed, event_stream: EventStream, receive: Receive, send: Send) -> None:
    """Send events until the reader disconnects, is dropped because it reads nothing, or the server ends."""
    with feed.register_watcher():
        async with anyio.create_task_group() as group:
            group.start_soon(_wait_for_disconnect, receive, group.cancel_scope)
            encoded = [(name.encode(), value.encode()) for name, value in STREAM_HEADERS.items()]
            await send({"type": "http.response.start", "status": 200, "headers": encoded})
            await _send_chunks(feed, event_stream, send)
            await send({"type": "http.response.body", "body": b""})
            group.cancel_scope.cancel()


async def _send_chunks(feed: EventFeed, event_stream: EventStream, send: Send) -> None:
    chunk = _RETRY_LINE + event_stream.next_chunk()
    while not feed.is_closed:
        if chunk:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await anyio.sleep(MIN_UPDATE_INTERVAL)
        with anyio.move_on_after(PING_INTERVAL) as waiting:
            if not event_stream.is_behind:
                await feed.wait_changed(event_stream.order)
        chunk = event_stream.ping() if waiting.cancelled_caught else event_stream.next_chunk()


async def _wait_for_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
