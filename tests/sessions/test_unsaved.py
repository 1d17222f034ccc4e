"""A store that cannot write: runs are read from the bounded memory of the same process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import anyio
import pytest

from retinue.model.errors import ErrorCode, RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded, Text
from retinue.model.runs import RunSpec
from retinue.sessions import flusher
from retinue.sessions.jsonl import JsonlStore, UnsavedSessions
from retinue.sessions.store import SessionState
from retinue.testing.stores import StoreRecorder, read_all, record_run, run_spec

NOWHERE = Path("/dev/null/state")


class RecordedRun:
    """A run that was recorded to its end."""

    def __init__(self, spec: RunSpec, events: list[EventRecord]) -> None:
        self.spec = spec
        self.events = events


async def record_session(store: JsonlStore, session: str | None = None, text: str = "hello") -> RecordedRun:
    claimed = store.claim(session)
    spec = run_spec(session, claimed) if session else run_spec(claimed)
    return RecordedRun(spec, await record_run(store, spec, Text(text)))


async def test_unwritable_run_is_found_and_read_in_the_same_process():
    async with JsonlStore(NOWHERE) as store:
        recorder = await record_session(store)
        session = recorder.spec.session
        assert await store.find(session[:16]) == session
        assert await read_all(store, session) == recorder.events
        assert list(await store.tail(session, 1)) == recorder.events[-1:]
        summary = await store.summary(session)
        assert summary
        assert (summary.session, summary.runs, summary.latest.state) == (session, 1, SessionState.COMPLETED)
        assert not await store.is_locked(session)


async def test_unwritable_session_is_resumed_in_the_same_process():
    async with JsonlStore(NOWHERE) as store:
        first = await record_session(store)
        session = first.spec.session
        second = await record_session(store, session, "again")
        assert await store.find(second.spec.run[:8]) == session
        assert await read_all(store, session) == first.events + second.events
        assert await read_all(store, session, second.spec.run) == second.events
        summary = await store.summary(session)
        assert summary
        assert (summary.runs, summary.latest.run) == (2, second.spec.run)


async def test_waiting_lines_are_written_when_the_disk_accepts_them(tmp_path, monkeypatch):
    monkeypatch.setattr(flusher, "RETRY_INTERVAL", 0.0)
    folder = tmp_path / "state"
    folder.write_text("a file where the folder should be")
    async with JsonlStore(folder) as store:
        first, second = await record_session(store), await record_session(store, text="another")
        third = await record_session(store, first.spec.session, "again")
        folder.unlink()
        with anyio.fail_after(20):
            while store._records:
                await anyio.lowlevel.checkpoint()
    written = JsonlStore(folder)
    assert await read_all(written, first.spec.session) == first.events + third.events
    assert await read_all(written, second.spec.session) == second.events


async def test_full_disk_during_a_run_loses_nothing_in_the_same_process(tmp_path, monkeypatch):
    is_full = False
    write = os.write

    def write_unless_full(descriptor: int, data: bytes) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", write_unless_full)
    async with JsonlStore(tmp_path) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        await record.sync()
        is_full = True
        recorder.record(Text("one"), Text("two"))
        live = await store.summary(spec.session)
        recorder.record_end(text="two")
        await record.release()
        assert live
        assert live.latest.state is SessionState.RUNNING
        assert await read_all(store, spec.session) == recorder.events
        ended = (await store.tail(spec.session, 1))[0].event
        assert isinstance(ended, RunEnded)
        assert ended.text == "two"


async def test_unwritten_runs_beyond_the_retry_limit_are_readable_and_not_resumable(monkeypatch):
    monkeypatch.setattr(flusher, "MAX_LATE", 2)
    async with JsonlStore(NOWHERE) as store:
        tapes = [await record_session(store, text=f"run {number}") for number in range(5)]
        assert len(store._records) == 2
        for recorder in tapes:
            assert await read_all(store, recorder.spec.session) == recorder.events
        with pytest.raises(RefusedError) as refusal:
            await record_session(store, tapes[0].spec.session)
        assert refusal.value.failure.code is ErrorCode.STORAGE


def test_oldest_unsaved_sessions_are_dropped_when_memory_is_full():
    unsaved = UnsavedSessions(max_bytes=100)
    for number in range(5):
        unsaved.add(f"{number:032x}", [b"x" * 40])
    assert [int(session, 16) for session in unsaved] == [3, 4]
    unsaved.add("f" * 32, [b"x" * 200])
    assert list(unsaved) == []
