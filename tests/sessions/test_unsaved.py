"""A store that cannot write: what ran is read from the memory of the same process, which is bounded."""

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
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.store import SessionState
from retinue.sessions.unsaved import UnsavedSessions
from retinue.testing.stores import StoreRecorder, read_all, record_run, run_spec

NOWHERE = Path("/dev/null/state")


class Recorded:
    """A run that was recorded to its end."""

    def __init__(self, spec: RunSpec, events: list[EventRecord]) -> None:
        self.spec = spec
        self.events = events


async def recorded(store: JsonlStore, session: str | None = None, text: str = "hello") -> Recorded:
    claimed = store.claim(session)
    spec = run_spec(session, claimed) if session else run_spec(claimed)
    return Recorded(spec, await record_run(store, spec, Text(text)))


async def test_a_run_that_cannot_be_written_is_found_and_read_in_the_same_process():
    async with JsonlStore(NOWHERE) as store:
        tape = await recorded(store)
        session = tape.spec.session
        assert await store.find(session[:16]) == session
        assert await read_all(store, session) == tape.events
        assert list(await store.tail(session, 1)) == tape.events[-1:]
        summary = await store.summary(session)
        assert summary
        assert (summary.session, summary.runs, summary.latest.state) == (session, 1, SessionState.COMPLETED)
        assert not await store.is_locked(session)


async def test_a_session_that_cannot_be_written_is_continued_in_the_same_process():
    async with JsonlStore(NOWHERE) as store:
        first = await recorded(store)
        session = first.spec.session
        second = await recorded(store, session, "again")
        assert await store.find(second.spec.run[:8]) == session
        assert await read_all(store, session) == first.events + second.events
        assert await read_all(store, session, second.spec.run) == second.events
        summary = await store.summary(session)
        assert summary
        assert (summary.runs, summary.latest.run) == (2, second.spec.run)


async def test_what_waits_is_written_once_the_disk_takes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(flusher, "RETRY_INTERVAL", 0.0)
    folder = tmp_path / "state"
    folder.write_text("a file where the folder should be")
    async with JsonlStore(folder) as store:
        first, second = await recorded(store), await recorded(store, text="another")
        third = await recorded(store, first.spec.session, "again")
        folder.unlink()
        with anyio.fail_after(20):
            while store._records:
                await anyio.lowlevel.checkpoint()
    written = JsonlStore(folder)
    assert await read_all(written, first.spec.session) == first.events + third.events
    assert await read_all(written, second.spec.session) == second.events


async def test_a_disk_that_fills_up_during_a_run_loses_nothing_for_the_same_process(tmp_path, monkeypatch):
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
        tape = StoreRecorder(record, spec)
        tape.record_start()
        await record.sync()
        is_full = True
        tape.record(Text("one"), Text("two"))
        live = await store.summary(spec.session)
        tape.record_end(text="two")
        await record.release()
        assert live
        assert live.latest.state is SessionState.RUNNING
        assert await read_all(store, spec.session) == tape.events
        ended = (await store.tail(spec.session, 1))[0].event
        assert isinstance(ended, RunEnded)
        assert ended.text == "two"


async def test_more_unwritten_runs_than_are_retried_are_still_read_and_not_continued(monkeypatch):
    monkeypatch.setattr(flusher, "MAX_LATE", 2)
    async with JsonlStore(NOWHERE) as store:
        tapes = [await recorded(store, text=f"run {number}") for number in range(5)]
        assert len(store._records) == 2
        for tape in tapes:
            assert await read_all(store, tape.spec.session) == tape.events
        with pytest.raises(RefusedError) as refusal:
            await recorded(store, tapes[0].spec.session)
        assert refusal.value.failure.code is ErrorCode.STORAGE


def test_the_oldest_unsaved_sessions_are_forgotten_when_memory_is_full():
    unsaved = UnsavedSessions(max_bytes=100)
    for number in range(5):
        unsaved.add(f"{number:032x}", [b"x" * 40])
    assert [int(session, 16) for session in unsaved] == [3, 4]
    unsaved.add("f" * 32, [b"x" * 200])
    assert list(unsaved) == []
