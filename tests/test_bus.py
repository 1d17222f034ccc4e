"""The bus: watchers see everything durable; a slow one loses deltas and never holds anybody up."""

import anyio
import pytest

from retinue.bus import DELTA_CAPACITY, DURABLE_CAPACITY, Bus, Lagged
from retinue.events import Origin, Stamped, Text, TextDelta

ORIGIN = Origin(run="a" * 32, session="a" * 32, root="r", parent_tool_use_id="c")


def delta(number: int) -> Stamped:
    return Stamped(ORIGIN, number, 0.0, TextDelta("x"))


def durable(number: int) -> Stamped:
    return Stamped(ORIGIN, number, 0.0, Text("x"))


async def test_each_watcher_sees_everything_from_entering_to_leaving():
    bus = Bus()
    bus.publish(durable(1))
    async with bus.watch() as one:
        bus.publish(durable(2))
        async with bus.watch() as other:
            bus.publish(durable(3))
        bus.publish(durable(4))
    bus.publish(durable(5))
    assert [s.seq for s in one.waiting()] == [2, 3, 4]
    assert [s.seq for s in other.waiting()] == [3]


async def test_a_watcher_waits_for_what_comes():
    bus = Bus()
    async with bus.watch() as watcher, anyio.create_task_group() as group:

        async def publish() -> None:
            bus.publish(durable(1))

        group.start_soon(publish)
        with anyio.fail_after(5):
            assert (await anext(watcher)).seq == 1


async def test_a_slow_watcher_loses_deltas_and_no_durable_event():
    bus = Bus()
    async with bus.watch() as slow:
        for number in range(2 * DELTA_CAPACITY):
            bus.publish(delta(number))
        bus.publish(durable(-1))
        seen = slow.waiting()
    assert (len(seen), slow.dropped, seen[-1].seq) == (DELTA_CAPACITY + 1, DELTA_CAPACITY, -1)


async def test_a_watcher_may_do_without_deltas():
    bus = Bus()
    async with bus.watch(deltas=False) as watcher:
        assert bus.wants_deltas is False
        bus.publish(delta(1))
        bus.publish(durable(2))
        assert [s.seq for s in watcher.waiting()] == [2]
        async with bus.watch():
            assert bus.wants_deltas is True


async def test_a_stalled_watcher_is_cut_off_and_told():
    bus = Bus()
    async with bus.watch() as stalled, bus.watch() as awake:
        seen = 0
        for number in range(DURABLE_CAPACITY + 1):
            bus.publish(durable(number))
            seen += len(awake.waiting())
        with pytest.raises(Lagged, match="read the rest from the store"):
            await anext(stalled)
        with pytest.raises(Lagged, match="read the rest from the store"):
            stalled.waiting()
    assert seen == DURABLE_CAPACITY + 1
