"""A wall clock that jumps between and within runs, and a prune at the moment of a resume."""

import os
import threading
import time

import anyio
import pytest
from tests.support.retinue_factory import stage

from retinue.engines.scripted import RunCallback, Step, call, reply
from retinue.model.errors import RefusedError
from retinue.model.events import RunEnded
from retinue.sessions.jsonl import JsonlStore
from retinue.testing.stores import read_all, record_run, run_spec

DAY = 86400.0
TRIES = 100


class MovedClock:
    """The wall clock, some days off."""

    def __init__(self, monkeypatch) -> None:
        self.days = 0.0
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + self.days * DAY)

    def step(self, days: float) -> RunCallback:
        async def move() -> None:
            self.days += days

        return RunCallback(move)


@pytest.mark.parametrize("days", [-1, 1, -10_000, 10_000])
async def test_clock_that_jumps_within_a_run_changes_neither_order_nor_timeout(scratch_home, monkeypatch, days):
    clock = MovedClock(monkeypatch)
    script: list[Step] = [call("read", path="a"), clock.step(days), call("read", path="b"), reply("done")]
    async with stage(scratch_home, *script, store=None) as retinue:
        result = await retinue.run("explorer", "Look.", timeout=60)
        events = [record async for record in retinue.history(result.session)]
        summary = await retinue.session(result.session)
    assert (result.failure, result.text) == (None, "done")
    assert 0 <= result.elapsed < 60
    assert [record.seq for record in events] == sorted(record.seq for record in events)
    assert isinstance(events[-1].event, RunEnded)
    assert summary is not None
    assert summary.latest.state == "completed"


@pytest.mark.parametrize("days", [-400, 400])
async def test_clock_that_jumps_between_runs_keeps_the_conversation_in_order(scratch_home, monkeypatch, days):
    clock = MovedClock(monkeypatch)
    async with stage(scratch_home, reply("done"), store=None) as retinue:
        first = await retinue.run("explorer", "First.")
        clock.days = days
        second = await retinue.run("explorer", "Second.", session=first.session)
        runs = [record.origin.run async for record in retinue.history(first.session)]
        summary = await retinue.session(first.session)
    assert second.failure is None
    assert list(dict.fromkeys(runs)) == [first.run, second.run]
    assert summary is not None
    assert (summary.runs, summary.task, summary.latest.run) == (2, "Second.", second.run)


async def test_session_that_is_resumed_while_old_ones_are_deleted_is_never_lost(folder):
    """Either the prune is first, and the resume starts afresh or is refused; or the resume, and all is there."""
    async with JsonlStore(folder) as store:
        for _ in range(TRIES):
            session = store.claim()
            before = await record_run(store, run_spec(session))
            long_ago = time.time() - 30 * DAY
            for path in folder.rglob("*"):
                os.utime(path, (long_ago, long_ago))
            at_once = threading.Barrier(2)
            thread = threading.Thread(target=anyio.run, args=(prune_old, folder, at_once))
            thread.start()
            at_once.wait()
            try:
                after = await record_run(store, run_spec(session, store.claim(session), task="more"))
            except RefusedError:
                after = None
            thread.join()
            if after is not None:
                assert await read_all(store, session) in (before + after, after)


async def prune_old(folder, at_once):
    async with JsonlStore(folder) as store:
        at_once.wait()
        await store.prune(older_than=DAY, keep_results=False)
