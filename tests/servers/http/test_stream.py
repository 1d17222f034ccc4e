"""The event stream: reconnecting watchers receive the missed events, or one resync if those are gone."""

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


def event_source(run: str = "a" * 32, root: str = "root") -> EventSource:
    return EventSource(run=run, session=run, root=root, parent_tool_use_id="call")


def queued_event(run: str = "a" * 32, root: str = "root") -> EventRecord:
    event = RunQueued(name="n", agent="n", task="t", cwd="/", surface="single")
    return EventRecord(event_source(run, root), 1, 1.0, event)


def make_feed(count: int, **limits: Any) -> EventFeed:
    """Return a feed with `count` texts of one run."""
    feed = EventFeed(**limits)
    feed.publish(queued_event())
    for number in range(count):
        feed.publish(EventRecord(event_source(), number + 2, 2.0, Text(str(number))))
    return feed


def read_texts(stream: EventStream) -> list[str]:
    """Return the texts that a stream has now."""
    found: list[str] = []
    while piece := stream.next_chunk():
        found += [
            line.split('"text":"')[1].split('"')[0] for line in piece.decode().split("\n") if '"type":"text"' in line
        ]
    return found


async def test_watcher_receives_all_events_of_a_run(serve):
    async with serve(call("read", path="a.py", returns="x"), reply("done")) as client, client.watch() as stream:
        queued_run = (await client.post("runs", TASK)).json["run"]
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
    assert {event["run"] for event in events} == {row["run"] for row in rows} == {queued_run["run"]}
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


async def test_reconnect_receives_exactly_the_missed_events(serve):
    async with serve(call("read", path="a.py"), reply("done")) as client:
        async with client.watch() as stream:
            await client.post("runs", TASK)
            everything = await stream.until(is_end)
        for number, message in enumerate(everything[:-1]):
            async with client.watch(last_event_id=message.id) as stream:
                assert await stream.until(is_end) == everything[number + 1 :]


async def test_snapshot_has_the_cursor_at_which_the_stream_continues(serve):
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
async def test_unknown_cursor_receives_one_resync_and_then_events(serve, after):
    async with serve(reply("done")) as client:
        await client.post("runs", TASK)
        async with client.watch(f"?after={after}") as stream:
            first = await stream.next()
            assert (first.event, first.data) == ("resync", {"cursor": client.hub.cursor})
            await client.post("runs", TASK)
            assert {message.event for message in await stream.until(is_end)} == {"happened"}


def test_outdated_cursor_receives_exactly_one_resync():
    feed = make_feed(30, max_events=10)
    stream = EventStream(feed, WatchQuery(after=feed.format_cursor(5)))
    first = stream.next_chunk()
    assert first.count(b"event: resync") == 1
    assert feed.cursor.encode() in first
    assert stream.next_chunk() == b""
    feed.publish(EventRecord(event_source(), 99, 2.0, Text("news")))
    assert read_texts(stream) == ["news"]


def test_lagging_watcher_receives_one_resync_and_uses_no_memory():
    feed = EventFeed(max_events=100)
    feed.publish(queued_event())
    stream = EventStream(feed, WatchQuery())
    for number in range(1000):
        feed.publish(EventRecord(event_source(), number + 2, 2.0, Text(str(number))))
    assert len(feed.entries) == 100
    assert b"resync" in stream.next_chunk()
    assert stream.next_chunk() == b""


async def test_lost_events_resync_every_watcher(serve):
    async with serve(reply("done")) as client:
        await client.post("runs", TASK)
        async with client.watch(f"?after={client.hub.cursor}") as stream:
            client.hub.restart()
            assert (await stream.next()).data == {"cursor": client.hub.cursor}
            await client.post("runs", TASK)
            assert is_end((await stream.until(is_end))[-1])


def test_feed_is_limited_in_bytes():
    feed = make_feed(0, max_event_bytes=100_000)
    for number in range(50):
        feed.publish(EventRecord(event_source(), number + 2, 2.0, Text("x" * 10_000)))
    assert 5 <= len(feed.entries) <= 10
    feed.publish(EventRecord(event_source(), 99, 2.0, Text("y" * 1_000_000)))
    assert len(feed.entries) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=60), st.integers(1, 40))
def test_reader_of_any_pace_receives_every_event_once_and_in_order(steps, max_events):
    """Steps 0 to 5 publish as many events, 6 reads, 7 reconnects."""
    feed, sent, had, expected = EventFeed(max_events=max_events), 0, [], []
    feed.publish(queued_event())
    stream = EventStream(feed, WatchQuery())
    for step in [*steps, 6]:
        if step < 6:
            for _ in range(step):
                feed.publish(EventRecord(event_source(), sent + 2, 2.0, Text(str(sent))))
                expected.append(str(sent))
                sent += 1
        elif step == 6:
            number = stream._position.number
            if feed.parse_cursor(feed.format_cursor(number)) is None:
                assert b"resync" in stream.next_chunk()
                had = list(expected)  # what a client does then: it loads the whole picture
            had += read_texts(stream)
        else:
            stream = EventStream(feed, WatchQuery(after=feed.format_cursor(stream._position.number)))
    assert had == expected


def test_event_published_twice_is_sent_once():
    feed = make_feed(3)
    before = feed.number
    assert not feed.publish(EventRecord(event_source(), 3, 2.0, Text("1")))
    feed.publish(EventRecord(event_source(), 99, 3.0, RunEnded(text="done")))
    assert not feed.publish(EventRecord(event_source(), 100, 3.0, Text("a ghost")))
    assert feed.number == before + 1


def test_rows_are_coalesced_for_a_reader_that_is_behind():
    feed = EventFeed()
    stream = EventStream(feed, WatchQuery(rows=True))
    for run in ("a" * 32, "b" * 32):
        feed.publish(queued_event(run))
        feed.publish(EventRecord(event_source(run), 2, 2.0, RunStarted()))
        for number in range(50):
            feed.publish(EventRecord(event_source(run), number + 3, 2.0, Text(str(number))))
    piece = stream.next_chunk().decode()
    assert piece.count("event: row") == 2
    assert piece.count('"doing":"49"') == 2
    assert "happened" not in piece
    again = EventStream(feed, WatchQuery(rows=True, after=feed.format_cursor(52)))
    assert again.next_chunk().count(b"event: row") == 1


def test_stream_of_one_run_or_root_has_no_other_events():
    feed = EventFeed()
    streams = [
        EventStream(feed, WatchQuery(), "b" * 32),
        EventStream(feed, WatchQuery(root="other")),
        EventStream(feed, WatchQuery()),
    ]
    feed.publish(queued_event("a" * 32, "root"))
    feed.publish(queued_event("b" * 32, "other"))
    feed.publish(queued_event("c" * 32, "other"))
    assert [stream.next_chunk().count(b"event: happened") for stream in streams] == [1, 2, 3]
    assert feed.cursor.encode() in streams[0].ping()


def test_events_of_other_roots_do_not_make_a_watcher_lag():
    feed = make_feed(50, max_events=10)
    stream = EventStream(feed, WatchQuery(), "b" * 32)
    for number in range(100, 105):
        feed.publish(EventRecord(event_source(), number, 2.0, Text("x")))
        assert stream.next_chunk() == b""
    assert stream.order == feed.order


async def test_deltas_are_sent_only_if_requested_and_before_their_text(serve):
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


def test_deltas_are_dropped_before_durable_events():
    feed = make_feed(1, max_deltas=5)
    stream = EventStream(feed, WatchQuery(deltas=True))
    for number in range(20):
        feed.publish(EventRecord(event_source(), number + 3, 2.0, TextDelta(f"{number} ")))
    feed.publish(EventRecord(event_source(), 50, 2.0, Text("whole")))
    piece = stream.next_chunk().decode()
    assert piece.count("event: delta") == 5
    assert '"at":35' in piece
    assert piece.count('"text":"whole"') == 1


async def test_watcher_that_disconnects_is_not_counted(serve):
    async with serve(reply("done")) as client:
        async with client.watch(), client.watch("?deltas=1"):
            assert (await client.get("health")).json["watchers"] == 2
            assert client.hub.wants_deltas
        assert (await client.get("health")).json["watchers"] == 0


async def test_watcher_that_does_not_read_slows_no_run(serve):
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
async def test_idle_stream_is_kept_alive():
    from retinue.servers.http.sse import PING_INTERVAL, send_events

    feed, sent = EventFeed(), []

    async def receive():
        await anyio.sleep_forever()

    async def send(message):
        sent.append(message.get("body", b""))

    with anyio.move_on_after(PING_INTERVAL * 2.5):
        await send_events(feed, EventStream(feed, WatchQuery()), receive, send)
    assert sent[1:] == [b"retry: 1000\n\n"] + [b": ping\nid: %b\n\n" % feed.cursor.encode()] * 2
    assert feed.watchers == 0


@VIRTUAL_TIME
async def test_gap_larger_than_one_batch_is_sent_completely():
    from retinue.servers.http.sse import PING_INTERVAL, send_events

    feed, sent = make_feed(0), b""
    for number in range(50):
        feed.publish(EventRecord(event_source(), number + 2, 2.0, Text("x" * 20_000)))

    async def send(message):
        nonlocal sent
        sent += message.get("body", b"")

    with anyio.move_on_after(PING_INTERVAL - 1):
        await send_events(feed, EventStream(feed, WatchQuery(after=feed.format_cursor(0))), anyio.sleep_forever, send)
    assert sent.count(b"event: happened") == 51


async def test_closing_the_feed_ends_every_stream(serve):
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


async def test_stream_of_an_unknown_run_is_refused(serve):
    async with serve(reply("done")) as client:
        answer = await client.get("events?run=0123456789abcdef")
    assert (answer.status, answer.error) == (404, "session_not_found")


async def test_lone_surrogate_breaks_neither_the_stream_nor_a_list(serve):
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
