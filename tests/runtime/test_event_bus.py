"""The event bus: subscribers get every durable event; a slow one loses deltas and never blocks others."""

import anyio
import pytest

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import Text, TextDelta
from retinue.runtime.event_bus import MAX_QUEUED_DELTAS, MAX_QUEUED_EVENTS, EventBus, SubscriberLaggedError

ORIGIN = EventSource(run="a" * 32, session="a" * 32, root="r", parent_tool_use_id="c")


def delta(number: int) -> EventRecord:
    return EventRecord(ORIGIN, number, 0.0, TextDelta("x"))


def durable(number: int) -> EventRecord:
    return EventRecord(ORIGIN, number, 0.0, Text("x"))


async def test_subscriber_gets_every_event_during_its_block():
    bus = EventBus()
    bus.publish(durable(1))
    async with bus.subscribe() as one:
        bus.publish(durable(2))
        async with bus.subscribe() as other:
            bus.publish(durable(3))
        bus.publish(durable(4))
    bus.publish(durable(5))
    assert [s.seq for s in one.drain()] == [2, 3, 4]
    assert [s.seq for s in other.drain()] == [3]


async def test_subscriber_waits_for_the_next_event():
    bus = EventBus()
    async with bus.subscribe() as watcher, anyio.create_task_group() as group:

        async def publish() -> None:
            bus.publish(durable(1))

        group.start_soon(publish)
        with anyio.fail_after(5):
            assert (await anext(watcher)).seq == 1


async def test_slow_subscriber_loses_deltas_and_no_durable_event():
    bus = EventBus()
    async with bus.subscribe() as slow:
        for number in range(2 * MAX_QUEUED_DELTAS):
            bus.publish(delta(number))
        bus.publish(durable(-1))
        seen = slow.drain()
    assert (len(seen), slow.dropped, seen[-1].seq) == (MAX_QUEUED_DELTAS + 1, MAX_QUEUED_DELTAS, -1)


async def test_subscriber_can_decline_deltas():
    bus = EventBus()
    async with bus.subscribe(deltas=False) as watcher:
        assert bus.wants_deltas is False
        bus.publish(delta(1))
        bus.publish(durable(2))
        assert [s.seq for s in watcher.drain()] == [2]
        async with bus.subscribe():
            assert bus.wants_deltas is True


async def test_stalled_subscriber_is_cut_off_with_an_error():
    bus = EventBus()
    async with bus.subscribe() as stalled, bus.subscribe() as awake:
        seen = 0
        for number in range(MAX_QUEUED_EVENTS + 1):
            bus.publish(durable(number))
            seen += len(awake.drain())
        with pytest.raises(SubscriberLaggedError, match="read the remaining events from the store"):
            await anext(stalled)
        with pytest.raises(SubscriberLaggedError, match="read the remaining events from the store"):
            stalled.drain()
    assert seen == MAX_QUEUED_EVENTS + 1
