"""What is being written, for whoever comes in the middle of it: the block so far, then the rest."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.retinue_factory import VIRTUAL_TIME

from retinue.engines.scripted import HangStep, RunCallback
from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import (
    AttemptStarted,
    EphemeralEvent,
    PersistedEvent,
    RunEnded,
    RunQueued,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolDelta,
    ToolReturned,
)
from retinue.servers.http.event_feed import DELTA_GRACE, EventFeed
from retinue.servers.http.inputs import WatchQuery
from retinue.servers.http.live_runs import BlockUpdate, StreamingBlocks
from retinue.servers.http.sse import EventStream

RUN, ROOT = "a" * 32, "root"
TASK = {"agent": "explorer", "task": "look"}


class RunPublisher:
    """Publishes the events of one run to an event stream."""

    def __init__(self, feed: EventFeed, run: str = RUN, root: str = ROOT) -> None:
        self._feed = feed
        self._origin = EventSource(run=run, session=run, root=root, parent_tool_use_id="call")
        self.seq = 0
        self.publish(RunQueued(name="n", agent="n", task="t", cwd="/", surface="single"))

    def publish(self, *events: PersistedEvent | EphemeralEvent) -> None:
        for event in events:
            self.seq += 1
            self.publish_at(self.seq, event)

    def publish_at(self, seq: int, event: PersistedEvent | EphemeralEvent) -> None:
        self._feed.publish(EventRecord(self._origin, seq, 1.0, event))


def deltas(piece: bytes) -> list[dict[str, Any]]:
    blocks = [
        dict(line.split(": ", 1) for line in message.split("\n"))
        for message in piece.decode().split("\n\n")
        if message
    ]
    return [json.loads(block["data"]) for block in blocks if block.get("event") == "delta"]


def read(stream: EventStream, shown: dict[str, str]) -> None:
    """Apply deltas as a client does: one that starts at 0 replaces the text."""
    for delta in deltas(stream.next_chunk()):
        key = delta.get("call") or delta["type"]
        shown[key] = shown[key] * (delta["at"] > 0) + delta["text"]


def test_late_watcher_gets_every_open_block_so_far_and_then_the_rest():
    feed = EventFeed()
    run = RunPublisher(feed)
    run.publish(ThinkingDelta("hm "), Thinking("hm"), TextDelta("one "), TextDelta("two "), ToolDelta("c1", "a\n"))
    stream = EventStream(feed, WatchQuery(deltas=True))
    assert deltas(stream.next_chunk()) == [
        {"run": RUN, "type": "text_delta", "text": "one two ", "at": 0},
        {"run": RUN, "type": "tool_delta", "text": "a\n", "at": 0, "call": "c1"},
    ]
    run.publish(TextDelta("three"))
    assert deltas(stream.next_chunk()) == [{"run": RUN, "type": "text_delta", "text": "three", "at": 8}]
    run.publish(Text("one two three"), ToolReturned("c1", "ls", "a"))
    assert deltas(EventStream(feed, WatchQuery(deltas=True)).next_chunk()) == []


def test_past_events_are_sent_before_open_blocks():
    feed = EventFeed()
    run = RunPublisher(feed)
    place = feed.cursor
    for number in range(40):
        run.publish(TextDelta("x"), Text("x" * 20_000 + str(number)))
    run.publish(TextDelta("now "))
    stream = EventStream(feed, WatchQuery(deltas=True, after=place))
    pieces = []
    while piece := stream.next_chunk():
        pieces.append(piece)
    assert len(pieces) > 2
    assert [deltas(piece) for piece in pieces[:-1]] == [[]] * (len(pieces) - 1)
    assert pieces[-1].endswith(b'"text":"now ","at":0}\n\n')
    assert b"".join(pieces).count(b"event: delta") == 1


def test_blocks_are_sent_only_for_selected_runs_and_only_with_deltas():
    feed = EventFeed()
    for run, root in (("a" * 32, "one"), ("b" * 32, "two")):
        RunPublisher(feed, run, root).publish(TextDelta(f"{root} "))
    assert [
        delta["text"] for delta in deltas(EventStream(feed, WatchQuery(deltas=True, root="two")).next_chunk())
    ] == ["two "]
    assert [delta["text"] for delta in deltas(EventStream(feed, WatchQuery(deltas=True), "a" * 32).next_chunk())] == [
        "one "
    ]
    assert EventStream(feed, WatchQuery()).next_chunk() == b""


def test_open_blocks_are_sent_again_after_a_resync():
    feed = EventFeed()
    run = RunPublisher(feed)
    stream = EventStream(feed, WatchQuery(deltas=True))
    stream.next_chunk()
    run.publish(TextDelta("one "))
    feed.restart()
    assert [delta["text"] for delta in deltas(stream.next_chunk())] == ["one "]
    run.publish(TextDelta("two"))
    assert [(delta["text"], delta["at"]) for delta in deltas(stream.next_chunk())] == [("two", 4)]


@pytest.mark.parametrize("event", [AttemptStarted(2, "retry"), RunEnded(text="")])
def test_unfinished_blocks_are_dropped_when_the_attempt_or_run_ends(event):
    feed = EventFeed()
    run = RunPublisher(feed)
    run.publish(TextDelta("half "), ThinkingDelta("a "), ToolDelta("c1", "thing"), event)
    assert deltas(EventStream(feed, WatchQuery(deltas=True)).next_chunk()) == []
    if not isinstance(event, RunEnded):
        run.publish(TextDelta("anew"))
        assert deltas(EventStream(feed, WatchQuery(deltas=True)).next_chunk())[0]["text"] == "anew"


def test_deltas_ahead_of_the_completed_text_start_the_next_block():
    """Deltas arrive on another channel than events, from this process and from others."""
    feed = EventFeed()
    run = RunPublisher(feed)
    stream = EventStream(feed, WatchQuery(deltas=True))
    stream.next_chunk()
    run.publish_at(2, TextDelta("one"))
    run.publish_at(4, TextDelta("ano"))
    run.publish_at(3, Text("one"))
    run.publish_at(5, TextDelta("ther"))
    assert [(delta["text"], delta["at"]) for delta in deltas(stream.next_chunk())] == [
        ("one", 0),
        ("ano", 3),
        ("ano", 0),
        ("ther", 3),
    ]


def test_endless_block_is_kept_within_its_limits():
    blocks = StreamingBlocks(max_block=100, max_total=250)
    origin = EventSource(run=RUN, session=RUN, root=ROOT, parent_tool_use_id="call")
    for number in range(200):
        blocks.append(EventRecord(origin, number, 1.0, piece := TextDelta("0123456789")), piece)
    (kept,) = blocks.snapshot_all(lambda *_: True)
    assert kept == BlockUpdate(run=RUN, type="text_delta", text="0123456789" * 10, at=1900)
    for number in range(200, 300):
        blocks.append(EventRecord(origin, number, 1.0, other := ToolDelta(f"c{number}", "x" * 10)), other)
    left = list(blocks.snapshot_all(lambda *_: True))
    assert sum(len(block.text) for block in left) <= 250
    assert left[-1].call == "c299"
    again = blocks.append(EventRecord(origin, 400, 1.0, piece), piece)
    assert again.at == 2000


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(["text", "think", "tool", "whole", "open", "read"]), max_size=60))
def test_late_watcher_sees_the_same_text_as_an_early_watcher(steps):
    feed = EventFeed()
    run = RunPublisher(feed)
    always, late = EventStream(feed, WatchQuery(deltas=True)), EventStream(feed, WatchQuery(deltas=True))
    seen: defaultdict[str, str] = defaultdict(str)
    seen_late = seen.copy()
    for number, step in enumerate([*steps, "text", "open"]):
        match step:
            case "text":
                run.publish(TextDelta(f"{number} "))
            case "think":
                run.publish(ThinkingDelta(f"{number} "))
            case "tool":
                run.publish(ToolDelta("c1", f"{number} "))
            case "whole":
                run.publish(Text("whole"))
                read(always, seen)
                read(late, seen_late)
                seen.pop("text_delta", None)
                seen_late.pop("text_delta", None)
            case "open":
                late, seen_late = EventStream(feed, WatchQuery(deltas=True)), defaultdict(str)
            case _:
                read(late, seen_late)
    read(always, seen)
    read(late, seen_late)
    assert seen == seen_late


def set_callback(event: anyio.Event) -> Callable[[], Awaitable[None]]:
    async def done() -> None:
        event.set()

    return done


# -- from runs -------------------------------------------------------------------------------------


async def test_reload_during_streaming_shows_the_whole_block(serve):
    go, is_written = anyio.Event(), anyio.Event()
    script = [
        TextDelta("one two "),
        RunCallback(go.wait),
        TextDelta("three four "),
        RunCallback(set_callback(is_written)),
        HangStep(),
    ]
    async with serve(*script) as client:
        async with client.watch("?deltas=1") as first:
            run = (await client.post("runs", TASK)).json["run"]["run"]
            (*_, started) = await first.until(lambda message: message.event == "delta")
        go.set()  # no stream is open at this moment
        await is_written.wait()
        page = (await client.get(f"runs/{run}/events")).json
        async with client.watch(f"?deltas=1&run={run}&after={page['cursor']}") as second:
            again = await second.until(lambda message: message.data["text"].endswith("four "))
    assert (started.data["at"], again[0].data["at"]) == (0, 0)
    assert "".join(message.data["text"] for message in again) == "one two three four "


async def test_opening_a_run_from_the_list_shows_its_streamed_text(serve):
    is_written = anyio.Event()
    async with (
        serve(TextDelta("one two three "), RunCallback(set_callback(is_written)), HangStep()) as client,
        client.watch("?rows=1"),
    ):
        await client.post("runs", TASK)
        await is_written.wait()
        async with client.watch("?deltas=1") as stream:
            first = await stream.next()
    assert (first.event, first.data["at"], first.data["text"]) == ("delta", 0, "one two three ")


@VIRTUAL_TIME
async def test_deltas_are_not_requested_when_no_watcher_is_left():
    feed = EventFeed()
    assert not feed.wants_deltas
    with feed.register_watcher():
        assert feed.wants_deltas
    await anyio.sleep(DELTA_GRACE - 1)
    assert feed.wants_deltas
    await anyio.sleep(1)
    assert not feed.wants_deltas
