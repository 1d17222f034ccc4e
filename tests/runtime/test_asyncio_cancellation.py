"""Callers cancelled by asyncio itself, as by `asyncio.wait_for` and `Task.cancel`, which ignore anyio's shields."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.support.retinue_factory import stage

from retinue.engines.scripted import reply
from retinue.model.events import RunEnded, RunQueued, RunStarted
from retinue.model.runs import RunSpec
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.memory import MemoryRecord, MemoryStore


class SlowDisk(MemoryStore):
    """A store whose syncs block from the given one on, until the test releases them."""

    def __init__(self, slow_from: int) -> None:
        super().__init__()
        self.slow_from = slow_from
        self.syncs = 0
        self.is_waited_for, self.go_on = anyio.Event(), anyio.Event()

    async def open_record(self, spec: RunSpec) -> MemoryRecord:
        await super().open_record(spec)
        return _SlowRecord(self, spec.session)


class _SlowRecord(MemoryRecord):
    def __init__(self, store: SlowDisk, session: str) -> None:
        super().__init__(store._sessions[session])
        self._store = store

    async def sync(self) -> None:
        self._store.syncs += 1
        if self._store.syncs >= self._store.slow_from:
            self._store.is_waited_for.set()
            await self._store.go_on.wait()


@pytest.mark.parametrize("slow_from", [1, 2], ids=["at its beginning", "at its end"])
@pytest.mark.parametrize("times", [1, 2])
async def test_run_whose_caller_is_cancelled_during_a_write_has_a_stored_end(scratch_home, slow_from, times):
    store = SlowDisk(slow_from)
    async with stage(scratch_home, reply("ok"), store=store) as retinue, retinue.events(deltas=False) as watcher:
        asked = asyncio.create_task(retinue.run("explorer", "Look"))
        await store.is_waited_for.wait()
        for _ in range(times):
            asked.cancel()
            await anyio.wait_all_tasks_blocked()
        store.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asked
        told = list(watcher.drain())
        kinds = [type(stamped.event) for stamped in told]
        assert (kinds[:2], kinds[-1], kinds.count(RunEnded)) == ([RunQueued, RunStarted], RunEnded, 1)
        assert not await store.is_locked(told[0].origin.session)
        assert retinue._orchestrator.active_run_ids == ()


async def test_session_whose_caller_is_cancelled_while_opening_is_not_locked(scratch_home: Path):
    opening, go_on = threading.Event(), threading.Event()
    is_slow = False

    def clock() -> float:
        if is_slow and threading.current_thread() is not threading.main_thread():
            opening.set()
            go_on.wait(20)
        return 1.0

    store = JsonlStore(scratch_home / "state", clock=clock)
    async with store, stage(scratch_home, reply("ok"), store=store) as retinue:
        first = await retinue.run("explorer", "Look")
        is_slow = True
        asked = asyncio.create_task(retinue.run("explorer", "Go on", session=first.session))
        assert await anyio.to_thread.run_sync(opening.wait, 20)
        asked.cancel()
        await asyncio.sleep(0)
        is_slow = False
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asked
        again = await retinue.run("explorer", "Go on", session=first.session)
    assert again.failure is None
