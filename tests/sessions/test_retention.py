"""Pruning: details before results, nothing in use, and never half a session."""

import contextlib
import os
from functools import partial
from pathlib import Path

import anyio
import pytest

from retinue.model.errors import RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded, RunQueued, RunStarted, Text
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.store import PruneReport
from retinue.sessions.writer import WriterLimits
from retinue.testing.stores import StoreRecorder, read_all, record_run, run_spec

DAY = 86400.0
SMALL = WriterLimits(part_bytes=2000, log_bytes=3000)


def age(folder: Path, days: float) -> None:
    """Set the time of the last change of everything in a state folder to days ago."""
    for path in (folder, *folder.rglob("*")):
        then = path.stat().st_mtime - days * DAY
        os.utime(path, (then, then))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def two_runs(store: JsonlStore, session: str) -> None:
    await record_run(store, run_spec(session), *(Text("x" * 300) for _ in range(20)))
    await record_run(
        store, run_spec(session, store.claim(session), task="more"), *(Text("y" * 300) for _ in range(20))
    )


async def test_pruned_sessions_lose_details_and_keep_results(folder):
    async with JsonlStore(folder, limits=SMALL) as store:
        session = store.claim()
        await two_runs(store, session)
        before = await store.summary(session)
        age(folder, 10)
        size = size_of(folder / "sessions")
        pruned = await store.prune(older_than=7 * DAY)
        assert (pruned.thinned, pruned.removed, pruned.skipped) == (1, 0, 0)
        logs = pruned.freed_bytes - (size - size_of(folder / "sessions"))
        assert logs > 0
        events = await read_all(store, session)
        assert [type(event_record.event) for event_record in events] == [RunQueued, RunStarted, RunEnded] * 2
        after = await store.summary(session)
        assert before is not None
        assert after is not None
        assert (after.latest, after.runs, after.task, after.preview) == (before.latest, 2, "more", before.preview)
        assert list(await store.list()) == [after]
        assert await read_all(store, session, after.latest.run) == events[3:]
        assert await store.prune(older_than=7 * DAY) == PruneReport()
        added = await record_run(
            store, run_spec(session, store.claim(session)), *(Text("z" * 300) for _ in range(20))
        )
        assert await read_all(store, session) == events + added


async def test_old_sessions_are_deleted_without_keep_results(folder):
    async with JsonlStore(folder, limits=SMALL) as store:
        old, young = store.claim(), store.claim()
        await two_runs(store, old)
        age(folder, 10)
        kept = await record_run(store, run_spec(young))
        pruned = await store.prune(older_than=7 * DAY, keep_results=False)
        assert (pruned.removed, pruned.thinned) == (1, 0)
        assert await store.find(old) is None
        assert await read_all(store, young) == kept
        assert [summary.session for summary in await store.list()] == [young]
    assert [path.name for path in (folder / "sessions").iterdir()] == [young[:8]]
    assert list((folder / "leases").iterdir()) == []
    assert list((folder / "trash").iterdir()) == []


@pytest.mark.parametrize("keep_results", [True, False])
async def test_session_in_use_is_not_pruned(keep_results, folder):
    async with JsonlStore(folder, limits=SMALL) as store:
        session = store.claim()
        await two_runs(store, session)
        spec = run_spec(session, store.claim(session))
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        age(folder, 10)
        before = await read_all(store, session)
        other = JsonlStore(folder, limits=SMALL)
        pruned = await other.prune(older_than=7 * DAY, keep_results=keep_results)
        assert (pruned.skipped, pruned.thinned, pruned.removed) == (1, 0, 0)
        assert await read_all(store, session) == before
        recorder.record_end()
        await record.release()
        assert record.fault is None


async def test_interrupted_run_is_ended_and_not_pruned(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        record = await store.open_record(run_spec(session))
        StoreRecorder(record, run_spec(session)).record_start()
        await record.release()
        age(folder, 10)
        pruned = await store.prune(older_than=7 * DAY, keep_results=False)
        assert (pruned.removed, pruned.skipped) == (0, 0)
        assert isinstance((await store.tail(session, 1))[0].event, RunEnded)
    assert list((folder / "leases").iterdir()) == []


async def test_unused_claims_are_released(folder):
    async with JsonlStore(folder) as store:
        used = store.claim()
        await record_run(store, run_spec(used))
        old, old_run = store.claim(), store.claim("f" * 32)
        age(folder, 0.1)
        young, kept_run = store.claim(), store.claim(used)
        assert await store.prune(older_than=30 * DAY) == PruneReport()
    left = {path.name for path in (folder / "sessions").iterdir()}
    assert left == {name[:8] for name in (used, young, kept_run)}
    assert not {old[:8], old_run[:8]} & left


async def test_old_root_logs_are_deleted_and_recent_ones_stay(folder):
    async with JsonlStore(folder, limits=SMALL) as store:
        await record_run(store, run_spec(store.claim(), root="old"))
        age(folder, 10)
        events = await record_run(store, run_spec(store.claim(), root="young"))
        pruned = await store.prune(older_than=7 * DAY)
        assert pruned.logs == 1
        assert [event_record async for event_record in store.root_events("young")] == events
    assert [path.name for path in (folder / "roots").iterdir()] == ["young"]


async def test_log_deleted_while_its_root_is_active_is_created_again(folder):
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        await record.sync()
        age(folder, 10)
        await store.prune(older_than=7 * DAY)
        recorder.record_end()
        await record.sync()
        assert [event_record async for event_record in store.root_events("root-1")] == recorder.events[-1:]
        await record.release()


async def test_unreadable_session_does_not_stop_pruning_of_others(folder):
    async with JsonlStore(folder, limits=SMALL) as store:
        broken, session = store.claim(), store.claim()
        (folder / "sessions" / broken[:8] / "session.jsonl").mkdir()
        (folder / "sessions" / "cccccccc").write_text('{"session":"../..","run":"no id"}')
        await two_runs(store, session)
        age(folder, 10)
        pruned = await store.prune(older_than=7 * DAY, keep_results=False)
        assert (pruned.removed, pruned.skipped) == (1, 1)
    assert [path.name for path in (folder / "sessions").iterdir()] == [broken[:8]]


async def test_pruning_an_empty_state_folder_does_nothing(folder):
    assert await JsonlStore(folder).prune(older_than=0.0) == PruneReport()


async def test_pruning_that_races_a_resume_never_removes_a_resumed_session(memory_path):
    resumed_tries = 0
    for attempt in range(60):
        state = memory_path / str(attempt)
        async with JsonlStore(state) as store:
            first = await record_run(store, run_spec(store.claim()))
            session = first[0].origin.session
            age(state, days=2)
            again: list[EventRecord] = []

            async def resume(store: JsonlStore = store, session: str = session, again: list[EventRecord] = again):
                with contextlib.suppress(RefusedError):
                    again += await record_run(store, run_spec(session, store.claim(session)))

            async with anyio.create_task_group() as race:
                race.start_soon(partial(JsonlStore(state).prune, older_than=DAY, keep_results=False))
                for _ in range(attempt % 7):
                    await anyio.lowlevel.checkpoint()
                race.start_soon(resume)
            stored = await read_all(JsonlStore(state), session)
        # A session that was resumed is not old; one that was removed first cannot be resumed.
        assert stored == ([*first, *again] if again else [])
        resumed_tries += bool(again)
    assert resumed_tries
