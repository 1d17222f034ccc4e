"""Copies of a session that is being written, and clocks that go backwards."""

from __future__ import annotations

import shutil

from retinue.model.events import RunEnded, Text
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.writer import WriterLimits
from retinue.testing.stores import StoreRecorder, read_all, record_run, run_spec


async def test_copy_of_a_session_taken_while_it_is_written_is_a_prefix(memory_path):
    state = memory_path / "state"
    async with JsonlStore(state, limits=WriterLimits(part_bytes=4000)) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        for number in range(60):
            recorder.record(Text(f"{number} " + "x" * 300))
            copy = memory_path / f"copy-{number}"
            shutil.copytree(state / "sessions", copy / "sessions")
            copied = await read_all(JsonlStore(copy), spec.session)
            assert copied == recorder.events[: len(copied)]
            assert len(copied) == number + 3
        recorder.record_end()
        await record.sync()
        await record.release()
    assert await read_all(JsonlStore(state), spec.session) == recorder.events


async def test_clock_that_goes_backwards_does_not_change_the_order_of_events(folder):
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        written = await record_run(store, spec, Text("first"), time=2_000_000.0)
        earlier = run_spec(spec.session, store.claim(spec.session))
        written += await record_run(store, earlier, Text("second"), time=1_000_000.0)
        assert await read_all(store, spec.session) == written
        (summary,) = await store.list()
    assert (summary.runs, summary.latest.run) == (2, earlier.run)
    assert summary.latest.elapsed >= 0


async def test_run_interrupted_before_the_clock_went_back_has_no_negative_duration(folder):
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        StoreRecorder(record, spec, time=2_000_000.0).record_start()
        await record.sync()
    recovered = await JsonlStore(folder, clock=lambda: 1000.0).recover()
    assert [summary.latest.elapsed for summary in recovered] == [0.0] or recovered[0].latest.elapsed >= 0
    (*_, last) = await read_all(JsonlStore(folder), spec.session)
    assert isinstance(last.event, RunEnded)
