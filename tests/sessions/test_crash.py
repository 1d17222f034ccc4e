"""A kill at any storage call loses no acknowledged event, and the next start repairs everything."""

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from msgspec import structs

from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded, Text
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.store import INTERRUPTED, SessionState
from retinue.testing.stores import read_all, record_run, run_spec

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked"),
]

SHARES = 3
"""Tests that share the calls of one scenario, because tests run in parallel."""


async def read_every_event(store: JsonlStore) -> list[EventRecord]:
    return [event for summary in await store.list() for event in await read_all(store, summary.session)]


async def assert_sound(folder: Path, crashes: int = 1) -> None:
    """Assert the invariants of a recovered state folder."""
    store = JsonlStore(folder)
    summaries = await store.list()
    for summary in summaries:
        reader = store.events(summary.session)
        events = [event_record async for event_record in reader]
        ends = Counter(event_record.origin.run for event_record in events if isinstance(event_record.event, RunEnded))
        assert set(ends.values()) <= {1}
        assert set(ends) == {event_record.origin.run for event_record in events}
        assert summary.latest.state in {SessionState.COMPLETED, SessionState.ERROR}
        assert summary.runs == len(ends)
        assert reader.damaged_count <= crashes
        for run in ends:
            seqs = [event_record.seq for event_record in events if event_record.origin.run == run]
            assert seqs == list(range(1, len(seqs) + 1))
    assert not list((folder / "leases").glob("*"))


@pytest.mark.parametrize("part", range(SHARES))
async def test_kill_at_any_storage_call_loses_no_acknowledged_event(part, crash_lab, memory_path):
    interrupted = 0
    for kill_at in range(1 + part, 1000, SHARES):
        folder = memory_path / str(kill_at)
        answer = crash_lab.run("write", folder, kill_at)
        store = JsonlStore(folder)
        kept = {(event.origin.session, event.origin.run, event.seq) for event in await read_every_event(store)}
        assert {tuple(ack) for ack in answer["acks"]} <= kept
        recovered = await store.recover()
        assert all(summary.latest.failure == INTERRUPTED for summary in recovered)
        assert len(recovered) <= 1
        assert list(await store.recover()) == []
        await assert_sound(folder)
        interrupted += len(recovered)
        shutil.rmtree(folder)
        if not answer["killed"]:
            assert answer["status"] == 0
            break
    assert kill_at > 100
    assert interrupted > 5 / SHARES


async def test_killed_recovery_is_completed_by_the_next_recovery(crash_lab, memory_path):
    broken = make_broken_state(crash_lab, memory_path)
    for kill_at in range(1, 200):
        folder = memory_path / "again"
        shutil.copytree(broken, folder)
        answer = crash_lab.run("recover", folder, kill_at)
        recovered = await JsonlStore(folder).recover()
        if not answer["killed"]:
            assert [len(ack) for ack in answer["acks"]] == [1]
            assert recovered == []
        await assert_sound(folder, crashes=2)
        shutil.rmtree(folder)
        if not answer["killed"]:
            break
    assert kill_at > 5


async def test_recovery_killed_twice_reaches_the_state_of_one_that_was_not(crash_lab, memory_path):
    broken = make_broken_state(crash_lab, memory_path)
    clean = memory_path / "clean"
    shutil.copytree(broken, clean)
    await JsonlStore(clean).recover()
    expected = await read_every_event(JsonlStore(clean))
    depths = 0
    for first in range(1, 200, 4):
        for second in range(1, 200):
            folder = memory_path / f"again-{first}-{second}"
            shutil.copytree(broken, folder)
            is_killed = crash_lab.run("recover", folder, first)["killed"]
            is_killed_again = is_killed and crash_lab.run("recover", folder, second)["killed"]
            await JsonlStore(folder).recover()
            found = await read_every_event(JsonlStore(folder))
            assert [without_time(record) for record in found] == [without_time(record) for record in expected]
            await assert_sound(folder, crashes=3)
            shutil.rmtree(folder)
            depths += is_killed_again
            if not is_killed_again:
                break
        if not is_killed:
            break
    assert depths > 25


def without_time(record: EventRecord) -> EventRecord:
    """Return the record as written at the epoch: recovery stamps the end it writes."""
    return structs.replace(record, time=0.0)


async def test_kill_while_resuming_leaves_a_resumable_session(crash_lab, memory_path):
    broken = make_broken_state(crash_lab, memory_path)
    for kill_at in range(1, 200):
        folder = memory_path / "again"
        shutil.copytree(broken, folder)
        answer = crash_lab.run("resume", folder, kill_at)
        async with JsonlStore(folder) as store:
            await store.recover()
            await assert_sound(folder, crashes=2)
            (summary, *_) = await store.list()
            added = await record_run(
                store, run_spec(summary.session, store.claim(summary.session)), Text("again"), time=1e6
            )
            assert (await read_all(store, summary.session))[-len(added) :] == added
        shutil.rmtree(folder)
        if not answer["killed"]:
            break
    assert kill_at > 10


@pytest.mark.parametrize("scenario", ["thin", "remove"])
async def test_kill_while_pruning_leaves_sessions_whole_or_deleted(scenario, crash_lab, memory_path):
    whole = memory_path / "whole"
    crash_lab.run("write", whole)
    before = {summary.session: summary for summary in await JsonlStore(whole).list()}
    for kill_at in range(1, 300):
        folder = memory_path / "again"
        shutil.copytree(whole, folder)
        answer = crash_lab.run(scenario, folder, kill_at)
        store = JsonlStore(folder)
        assert await store.recover() == []
        await assert_sound_after_pruning(store, before)
        await store.prune(older_than=-10.0, keep_results=scenario == "thin")
        assert len(await store.list()) == (len(before) if scenario == "thin" else 0)
        assert not (folder / "trash").exists() or not list((folder / "trash").iterdir())
        shutil.rmtree(folder)
        if not answer["killed"]:
            break
    assert kill_at > 10


async def assert_sound_after_pruning(store, before):
    for summary in await store.list():
        assert summary.latest == before[summary.session].latest
        assert summary.runs == before[summary.session].runs
        events = await read_all(store, summary.session)
        assert len({(event.origin.run, event.seq) for event in events}) == len(events)


def make_broken_state(crash_lab, memory_path):
    """Return a state folder whose writer died in the middle of a later run, with a torn last record."""
    for kill_at in range(80, 300):
        folder = memory_path / f"broken-{kill_at}"
        answer = crash_lab.run("write", folder, kill_at)
        assert answer["killed"]
        if len(answer["acks"]) == 3 and any(
            not path.read_bytes().endswith(b"\n") for path in folder.rglob("session.jsonl")
        ):
            return folder
    raise AssertionError("no torn record")
