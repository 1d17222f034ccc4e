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
from retinue.servers.http.open_blocks import BlockUpdate, StreamingBlocks
from retinue.servers.http.sse import EventStream

RUN, ROOT = "a" * 32, "root"
TASK = {"agent": "explorer", "task": "look"}


class Story:
    """A run that is told to a hub, event by event."""

    def __init__(self, hub: EventFeed, run: str = RUN, root: str = ROOT) -> None:
        self._hub = hub
        self._origin = EventSource(run=run, session=run, root=root, parent_tool_use_id="call")
        self.seq = 0
        self.tell(RunQueued(name="n", agent="n", task="t", cwd="/", surface="single"))

    def tell(self, *events: PersistedEvent | EphemeralEvent) -> None:
        for event in events:
            self.seq += 1
            self.tell_at(self.seq, event)

    def tell_at(self, seq: int, event: PersistedEvent | EphemeralEvent) -> None:
        self._hub.publish(EventRecord(self._origin, seq, 1.0, event))


def deltas(piece: bytes) -> list[dict[str, Any]]:
    blocks = [dict(line.split(": ", 1) for line in each.split("\n")) for each in piece.decode().split("\n\n") if each]
    return [json.loads(block["data"]) for block in blocks if block.get("event") == "delta"]


def read(feed: EventStream, shown: dict[str, str]) -> None:
    """What a client does with deltas: one that begins at 0 replaces what was there."""
    for delta in deltas(feed.next_chunk()):
        key = delta.get("call") or delta["type"]
        shown[key] = shown[key] * (delta["at"] > 0) + delta["text"]


def test_who_comes_in_the_middle_gets_every_open_block_so_far_and_then_the_rest():
    hub = EventFeed()
    run = Story(hub)
    run.tell(ThinkingDelta("hm "), Thinking("hm"), TextDelta("one "), TextDelta("two "), ToolDelta("c1", "a\n"))
    feed = EventStream(hub, WatchQuery(deltas=True))
    assert deltas(feed.next_chunk()) == [
        {"run": RUN, "type": "text_delta", "text": "one two ", "at": 0},
        {"run": RUN, "type": "tool_delta", "text": "a\n", "at": 0, "call": "c1"},
    ]
    run.tell(TextDelta("three"))
    assert deltas(feed.next_chunk()) == [{"run": RUN, "type": "text_delta", "text": "three", "at": 8}]
    run.tell(Text("one two three"), ToolReturned("c1", "ls", "a"))
    assert deltas(EventStream(hub, WatchQuery(deltas=True)).next_chunk()) == []


def test_what_happened_is_told_before_what_is_being_written_now():
    hub = EventFeed()
    run = Story(hub)
    place = hub.cursor
    for number in range(40):
        run.tell(TextDelta("x"), Text("x" * 20_000 + str(number)))
    run.tell(TextDelta("now "))
    feed = EventStream(hub, WatchQuery(deltas=True, after=place))
    pieces = []
    while piece := feed.next_chunk():
        pieces.append(piece)
    assert len(pieces) > 2
    assert [deltas(piece) for piece in pieces[:-1]] == [[]] * (len(pieces) - 1)
    assert pieces[-1].endswith(b'"text":"now ","at":0}\n\n')
    assert b"".join(pieces).count(b"event: delta") == 1


def test_only_the_blocks_of_wanted_runs_are_told_and_only_to_who_asks():
    hub = EventFeed()
    for run, root in (("a" * 32, "one"), ("b" * 32, "two")):
        Story(hub, run, root).tell(TextDelta(f"{root} "))
    assert [each["text"] for each in deltas(EventStream(hub, WatchQuery(deltas=True, root="two")).next_chunk())] == [
        "two "
    ]
    assert [each["text"] for each in deltas(EventStream(hub, WatchQuery(deltas=True), "a" * 32).next_chunk())] == [
        "one "
    ]
    assert EventStream(hub, WatchQuery()).next_chunk() == b""


def test_after_a_resync_the_open_blocks_are_told_again():
    hub = EventFeed()
    run = Story(hub)
    feed = EventStream(hub, WatchQuery(deltas=True))
    feed.next_chunk()
    run.tell(TextDelta("one "))
    hub.restart()
    assert [each["text"] for each in deltas(feed.next_chunk())] == ["one "]
    run.tell(TextDelta("two"))
    assert [(each["text"], each["at"]) for each in deltas(feed.next_chunk())] == [("two", 4)]


@pytest.mark.parametrize("event", [AttemptStarted(2, "retry"), RunEnded(text="")])
def test_what_was_never_finished_is_forgotten_with_its_attempt(event):
    hub = EventFeed()
    run = Story(hub)
    run.tell(TextDelta("half "), ThinkingDelta("a "), ToolDelta("c1", "thing"), event)
    assert deltas(EventStream(hub, WatchQuery(deltas=True)).next_chunk()) == []
    if not isinstance(event, RunEnded):
        run.tell(TextDelta("anew"))
        assert deltas(EventStream(hub, WatchQuery(deltas=True)).next_chunk())[0]["text"] == "anew"


def test_pieces_that_are_ahead_of_the_text_before_them_begin_the_next_block():
    """Deltas come by another way than events, from this process and from others."""
    hub = EventFeed()
    run = Story(hub)
    feed = EventStream(hub, WatchQuery(deltas=True))
    feed.next_chunk()
    run.tell_at(2, TextDelta("one"))
    run.tell_at(4, TextDelta("ano"))
    run.tell_at(3, Text("one"))
    run.tell_at(5, TextDelta("ther"))
    assert [(each["text"], each["at"]) for each in deltas(feed.next_chunk())] == [
        ("one", 0),
        ("ano", 3),
        ("ano", 0),
        ("ther", 3),
    ]


def test_a_block_without_end_is_kept_within_bounds():
    blocks = StreamingBlocks(max_block=100, max_total=250)
    origin = EventSource(run=RUN, session=RUN, root=ROOT, parent_tool_use_id="call")
    for number in range(200):
        blocks.append(EventRecord(origin, number, 1.0, piece := TextDelta("0123456789")), piece)
    (kept,) = blocks.snapshot_all(lambda *_: True)
    assert kept == BlockUpdate(run=RUN, type="text_delta", text="0123456789" * 10, at=1900)
    for number in range(200, 300):
        blocks.append(EventRecord(origin, number, 1.0, other := ToolDelta(f"c{number}", "x" * 10)), other)
    left = list(blocks.snapshot_all(lambda *_: True))
    assert sum(len(each.text) for each in left) <= 250
    assert left[-1].call == "c299"
    again = blocks.append(EventRecord(origin, 400, 1.0, piece), piece)
    assert again.at == 2000


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(["text", "think", "tool", "whole", "open", "read"]), max_size=60))
def test_whoever_comes_whenever_sees_what_who_was_always_there_sees(steps):
    hub = EventFeed()
    run = Story(hub)
    always, late = EventStream(hub, WatchQuery(deltas=True)), EventStream(hub, WatchQuery(deltas=True))
    seen: defaultdict[str, str] = defaultdict(str)
    seen_late = seen.copy()
    for number, step in enumerate([*steps, "text", "open"]):
        match step:
            case "text":
                run.tell(TextDelta(f"{number} "))
            case "think":
                run.tell(ThinkingDelta(f"{number} "))
            case "tool":
                run.tell(ToolDelta("c1", f"{number} "))
            case "whole":
                run.tell(Text("whole"))
                read(always, seen)
                read(late, seen_late)
                seen.pop("text_delta", None)
                seen_late.pop("text_delta", None)
            case "open":
                late, seen_late = EventStream(hub, WatchQuery(deltas=True)), defaultdict(str)
            case _:
                read(late, seen_late)
    read(always, seen)
    read(late, seen_late)
    assert seen == seen_late


def setting(event: anyio.Event) -> Callable[[], Awaitable[None]]:
    async def done() -> None:
        event.set()

    return done


# -- from runs -------------------------------------------------------------------------------------


async def test_a_reload_in_the_middle_shows_the_same_picture(serve):
    go, is_written = anyio.Event(), anyio.Event()
    script = [
        TextDelta("one two "),
        RunCallback(go.wait),
        TextDelta("three four "),
        RunCallback(setting(is_written)),
        HangStep(),
    ]
    async with serve(*script) as client:
        async with client.watch("?deltas=1") as first:
            run = (await client.post("runs", TASK)).json["run"]["run"]
            (*_, begun) = await first.until(lambda message: message.event == "delta")
        go.set()  # nobody looks at this moment
        await is_written.wait()
        page = (await client.get(f"runs/{run}/events")).json
        async with client.watch(f"?deltas=1&run={run}&after={page['cursor']}") as second:
            again = await second.until(lambda message: message.data["text"].endswith("four "))
    assert (begun.data["at"], again[0].data["at"]) == (0, 0)
    assert "".join(message.data["text"] for message in again) == "one two three four "


async def test_who_opens_a_run_from_a_list_sees_what_it_has_begun_to_write(serve):
    is_written = anyio.Event()
    async with (
        serve(TextDelta("one two three "), RunCallback(setting(is_written)), HangStep()) as client,
        client.watch("?rows=1"),
    ):
        await client.post("runs", TASK)
        await is_written.wait()
        async with client.watch("?deltas=1") as stream:
            first = await stream.next()
    assert (first.event, first.data["at"], first.data["text"]) == ("delta", 0, "one two three ")


@VIRTUAL_TIME
async def test_when_nobody_has_looked_for_a_while_nothing_unfinished_is_asked_for():
    hub = EventFeed()
    assert not hub.wants_deltas
    with hub.register_watcher():
        assert hub.wants_deltas
    await anyio.sleep(DELTA_GRACE - 1)
    assert hub.wants_deltas
    await anyio.sleep(1)
    assert not hub.wants_deltas
