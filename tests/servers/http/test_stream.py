"""The stream: a place in one row of events. Who comes back gets the gap, who comes too late is told so, once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.servers.http.conftest import PATIENCE, Message
from tests.support.retinue_factory import VIRTUAL_TIME

from retinue.engines.scripted import HangStep, RunCallback, TextStep, call, reply
from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import RunEnded, RunQueued, RunStarted, Text, TextDelta
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.inputs import WatchQuery
from retinue.servers.http.sse import EventStream

TASK = {"agent": "explorer", "task": "look"}


def is_end(message: Message) -> bool:
    return bool(message.event == "happened" and message.data["event"]["type"] == "run_ended")


def origin(run: str = "a" * 32, root: str = "root") -> EventSource:
    return EventSource(run=run, session=run, root=root, parent_tool_use_id="call")


def queued(run: str = "a" * 32, root: str = "root") -> EventRecord:
    event = RunQueued(name="n", agent="n", task="t", cwd="/", surface="single")
    return EventRecord(origin(run, root), 1, 1.0, event)


def filled(count: int, **bounds: Any) -> EventFeed:
    """A hub with so many texts of one run."""
    hub = EventFeed(**bounds)
    hub.publish(queued())
    for number in range(count):
        hub.publish(EventRecord(origin(), number + 2, 2.0, Text(str(number))))
    return hub


def texts(feed: EventStream) -> list[str]:
    """The texts a feed gives until it has no more."""
    found: list[str] = []
    while piece := feed.next_chunk():
        found += [
            line.split('"text":"')[1].split('"')[0] for line in piece.decode().split("\n") if '"type":"text"' in line
        ]
    return found


async def test_a_watcher_sees_a_run_from_its_first_event_to_its_last(serve):
    async with serve(call("read", path="a.py", returns="x"), reply("done")) as client, client.watch() as stream:
        begun = (await client.post("runs", TASK)).json["run"]
        messages = await stream.until(is_end)
    events = [message.data["event"] for message in messages]
    rows = [message.data["row"] for message in messages]
    assert [event["type"] for event in events] == [
        "run_queued",
        "run_started",
        "attempt_started",
        "tool_called",
        "message_ended",
        "tool_returned",
        "text",
        "message_ended",
        "run_ended",
    ]
    assert {event["run"] for event in events} == {row["run"] for row in rows} == {begun["run"]}
    assert [row["state"] for row in rows] == ["queued"] + ["running"] * 7 + ["completed"]
    assert [row["doing"] for row in rows][:5] == [
        "waiting for a slot",
        "starting",
        "starting",
        "read a.py",
        "read a.py",
    ]
    assert rows[-1]["preview"] == "done"
    assert [message.id.rpartition("-")[2] for message in messages] == [str(number) for number in range(1, 10)]


async def test_a_reconnect_gets_exactly_the_gap(serve):
    async with serve(call("read", path="a.py"), reply("done")) as client:
        async with client.watch() as stream:
            await client.post("runs", TASK)
            everything = await stream.until(is_end)
        for number, message in enumerate(everything[:-1]):
            async with client.watch(last_event_id=message.id) as stream:
                assert await stream.until(is_end) == everything[number + 1 :]


async def test_a_snapshot_says_where_the_stream_goes_on(serve):
    go = anyio.Event()
    async with serve(reply("first"), RunCallback(go.wait), reply("done")) as client:
        run = (await client.post("runs", TASK)).json["run"]["run"]
        page = (await client.get(f"runs/{run}/events")).json
        async with client.watch(f"?run={run}&after={page['cursor']}") as stream:
            go.set()
            told = [message.data["event"] for message in await stream.until(is_end)]
        whole = (await client.get(f"runs/{run}/events")).json["events"]
    assert page["events"] + told == whole
    assert [event["type"] for event in told][-1] == "run_ended"


@pytest.mark.parametrize("after", ["deadbeef-3", "nonsense", "-", "1", "00000000-99999999999999999999"])
async def test_an_unknown_place_gets_one_resync_and_then_what_happens(serve, after):
    async with serve(reply("done")) as client:
        await client.post("runs", TASK)
        async with client.watch(f"?after={after}") as stream:
            first = await stream.next()
            assert (first.event, first.data) == ("resync", {"cursor": client.hub.cursor})
            await client.post("runs", TASK)
            assert {message.event for message in await stream.until(is_end)} == {"happened"}


def test_what_is_too_old_gets_exactly_one_resync():
    hub = filled(30, max_events=10)
    feed = EventStream(hub, WatchQuery(after=hub.format_cursor(5)))
    first = feed.next_chunk()
    assert first.count(b"event: resync") == 1
    assert hub.cursor.encode() in first
    assert feed.next_chunk() == b""
    hub.publish(EventRecord(origin(), 99, 2.0, Text("news")))
    assert texts(feed) == ["news"]


def test_a_watcher_that_falls_behind_is_told_once_and_costs_no_memory():
    hub = EventFeed(max_events=100)
    hub.publish(queued())
    feed = EventStream(hub, WatchQuery())
    for number in range(1000):
        hub.publish(EventRecord(origin(), number + 2, 2.0, Text(str(number))))
    assert len(hub.entries) == 100
    assert b"resync" in feed.next_chunk()
    assert feed.next_chunk() == b""


async def test_when_something_was_lost_everyone_is_told_at_once(serve):
    async with serve(reply("done")) as client:
        await client.post("runs", TASK)
        async with client.watch(f"?after={client.hub.cursor}") as stream:
            client.hub.restart()
            assert (await stream.next()).data == {"cursor": client.hub.cursor}
            await client.post("runs", TASK)
            assert is_end((await stream.until(is_end))[-1])


def test_the_row_of_events_is_bounded_in_bytes():
    hub = filled(0, max_event_bytes=100_000)
    for number in range(50):
        hub.publish(EventRecord(origin(), number + 2, 2.0, Text("x" * 10_000)))
    assert 5 <= len(hub.entries) <= 10
    hub.publish(EventRecord(origin(), 99, 2.0, Text("y" * 1_000_000)))
    assert len(hub.entries) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=60), st.integers(1, 40))
def test_whoever_reads_at_any_pace_gets_every_event_once_and_in_order(steps, kept):
    """0 to 5: so many events happen; 6: the watcher reads; 7: it is cut off and comes back."""
    hub, sent, had, expected = EventFeed(max_events=kept), 0, [], []
    hub.publish(queued())
    feed = EventStream(hub, WatchQuery())
    for step in [*steps, 6]:
        if step < 6:
            for _ in range(step):
                hub.publish(EventRecord(origin(), sent + 2, 2.0, Text(str(sent))))
                expected.append(str(sent))
                sent += 1
        elif step == 6:
            place = feed._position.number
            if hub.parse_cursor(hub.format_cursor(place)) is None:
                assert b"resync" in feed.next_chunk()
                had = list(expected)  # what a client does then: it loads the whole picture
            had += texts(feed)
        else:
            feed = EventStream(hub, WatchQuery(after=hub.format_cursor(feed._position.number)))
    assert had == expected


def test_an_event_that_comes_twice_is_told_once():
    hub = filled(3)
    before = hub.number
    assert not hub.publish(EventRecord(origin(), 3, 2.0, Text("1")))
    hub.publish(EventRecord(origin(), 99, 3.0, RunEnded(text="done")))
    assert not hub.publish(EventRecord(origin(), 100, 3.0, Text("a ghost")))
    assert hub.number == before + 1


def test_rows_are_coalesced_for_a_reader_that_is_behind():
    hub = EventFeed()
    feed = EventStream(hub, WatchQuery(rows=True))
    for run in ("a" * 32, "b" * 32):
        hub.publish(queued(run))
        hub.publish(EventRecord(origin(run), 2, 2.0, RunStarted()))
        for number in range(50):
            hub.publish(EventRecord(origin(run), number + 3, 2.0, Text(str(number))))
    piece = feed.next_chunk().decode()
    assert piece.count("event: row") == 2
    assert piece.count('"doing":"49"') == 2
    assert "happened" not in piece
    again = EventStream(hub, WatchQuery(rows=True, after=hub.format_cursor(52)))
    assert again.next_chunk().count(b"event: row") == 1


def test_only_what_is_wanted_is_told():
    hub = EventFeed()
    feeds = [
        EventStream(hub, WatchQuery(), "b" * 32),
        EventStream(hub, WatchQuery(root="other")),
        EventStream(hub, WatchQuery()),
    ]
    hub.publish(queued("a" * 32, "root"))
    hub.publish(queued("b" * 32, "other"))
    hub.publish(queued("c" * 32, "other"))
    assert [feed.next_chunk().count(b"event: happened") for feed in feeds] == [1, 2, 3]
    assert hub.cursor.encode() in feeds[0].ping()


def test_an_unwanted_row_of_events_does_not_make_a_watcher_late():
    hub = filled(50, max_events=10)
    feed = EventStream(hub, WatchQuery(), "b" * 32)
    for number in range(100, 105):
        hub.publish(EventRecord(origin(), number, 2.0, Text("x")))
        assert feed.next_chunk() == b""
    assert feed.order == hub.order


async def test_deltas_are_for_those_who_ask_and_come_before_their_text(serve):
    script = [TextStep(text="one two three four", deltas=4), HangStep()]
    async with serve(*script) as client, client.watch("?deltas=1") as stream, client.watch() as without:
        await client.post("runs", TASK)
        messages = await stream.until(lambda m: m.event == "happened" and m.data["event"]["type"] == "message_ended")
        others = await without.until(lambda m: m.event == "happened" and m.data["event"]["type"] == "message_ended")
    deltas = [message for message in messages if message.event == "delta"]
    # The last words are held back until they cannot be the beginning of a secret.
    assert "".join(message.data["text"] for message in deltas) == "one two three "
    assert [message.data["at"] for message in deltas][0] == 0
    assert all(message.id is None for message in deltas)
    kinds = [message.event for message in messages]
    whole = next(
        place for place, m in enumerate(messages) if m.event == "happened" and m.data["event"]["type"] == "text"
    )
    assert max(place for place, kind in enumerate(kinds) if kind == "delta") < whole
    assert all(message.event == "happened" for message in others)


def test_deltas_are_dropped_first():
    hub = filled(1, max_deltas=5)
    feed = EventStream(hub, WatchQuery(deltas=True))
    for number in range(20):
        hub.publish(EventRecord(origin(), number + 3, 2.0, TextDelta(f"{number} ")))
    hub.publish(EventRecord(origin(), 50, 2.0, Text("whole")))
    piece = feed.next_chunk().decode()
    assert piece.count("event: delta") == 5
    assert '"at":35' in piece
    assert piece.count('"text":"whole"') == 1


async def test_a_reader_who_leaves_is_forgotten(serve):
    async with serve(reply("done")) as client:
        async with client.watch(), client.watch("?deltas=1"):
            assert (await client.get("health")).json["watchers"] == 2
            assert client.hub.wants_deltas
        assert (await client.get("health")).json["watchers"] == 0


async def test_a_reader_who_reads_nothing_slows_no_run(serve):
    stuck = anyio.Event()

    async def receive():
        await anyio.sleep_forever()

    async def send(message):
        if message["type"] == "http.response.body":
            stuck.set()
            await anyio.sleep_forever()

    async with serve(*[reply(str(number)) for number in range(50)]) as client, anyio.create_task_group() as group:
        chunks = [{"type": "http.request", "body": b"", "more_body": False}]

        async def first_then_never():
            return chunks.pop() if chunks else await receive()

        group.start_soon(client.server.app, client._scope("GET", "events", {}), first_then_never, send)
        await stuck.wait()
        async with client.watch() as stream:
            await client.post("runs", TASK)
            assert is_end((await stream.until(is_end))[-1])
        assert client.hub.watchers == 1
        group.cancel_scope.cancel()


@VIRTUAL_TIME
async def test_a_connection_on_which_nothing_happens_is_kept_alive():
    from retinue.servers.http.sse import PING_INTERVAL, send_events

    hub, sent = EventFeed(), []

    async def receive():
        await anyio.sleep_forever()

    async def send(message):
        sent.append(message.get("body", b""))

    with anyio.move_on_after(PING_INTERVAL * 2.5):
        await send_events(hub, EventStream(hub, WatchQuery()), receive, send, {})
    assert sent[1:] == [b"retry: 1000\n\n"] + [b": ping\nid: %b\n\n" % hub.cursor.encode()] * 2
    assert hub.watchers == 0


@VIRTUAL_TIME
async def test_a_gap_that_is_more_than_one_piece_comes_whole_though_nothing_happens():
    from retinue.servers.http.sse import PING_INTERVAL, send_events

    hub, sent = filled(0), b""
    for number in range(50):
        hub.publish(EventRecord(origin(), number + 2, 2.0, Text("x" * 20_000)))

    async def send(message):
        nonlocal sent
        sent += message.get("body", b"")

    with anyio.move_on_after(PING_INTERVAL - 1):
        await send_events(
            hub, EventStream(hub, WatchQuery(after=hub.format_cursor(0))), anyio.sleep_forever, send, {}
        )
    assert sent.count(b"event: happened") == 51


async def test_closing_ends_every_stream(serve):
    async with serve(reply("done")) as client, client.watch() as stream:
        client.hub.close()
        with anyio.fail_after(PATIENCE):
            await stream.over.wait()
        assert client.hub.watchers == 0


async def test_too_many_watchers_are_refused(serve):
    async with serve(reply("done")) as client:
        client.hub.watchers = 300
        answer = await client.get("events")
        client.hub.watchers = 0
    assert (answer.status, answer.error) == (503, "busy")


async def test_an_unknown_run_cannot_be_watched(serve):
    async with serve(reply("done")) as client:
        answer = await client.get("events?run=0123456789abcdef")
    assert (answer.status, answer.error) == (404, "session_not_found")


async def test_half_a_character_breaks_neither_the_stream_nor_a_list(serve):
    """A model may say what no JSON can: that is replaced, and nothing ends."""
    odd = "half \ud83d."
    script = [TextDelta(f"{odd} x "), Text(odd), call("read", path=odd, returns=odd), reply(odd)]
    async with serve(*script) as client, client.watch("?deltas=1") as stream:
        run = (await client.post("runs", TASK)).json["run"]["run"]
        messages = await stream.until(is_end)
        listed = (await client.get("runs")).json["runs"]
        detail = (await client.get(f"runs/{run}")).json
        again = (await client.post("runs", TASK)).status
    assert messages[-1].data["row"]["preview"].startswith("half ")
    assert listed[0]["preview"].startswith("half ")
    assert detail["answer"]["text"].startswith("half ")
    assert again == 202
