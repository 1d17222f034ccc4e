"""A full record writer: lines are written whole, wait while the disk refuses them, and are never joined."""

import errno
import json
import os
import sys
from pathlib import Path

import anyio
import pytest

from retinue.model.errors import ErrorCode
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded, Text
from retinue.sessions import paths
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.writer import WriterLimits
from retinue.testing.stores import StoreRecorder, read_all, record_run, run_spec

CALLS = ("open", "write", "ftruncate", "fdatasync", "fsync", "mkdir", "chmod", "rename")


class BadDisk:
    """Makes the Nth call of one kind fail, once or from then on. Half of a failing write is written."""

    def __init__(self, patch: pytest.MonkeyPatch, call: str, error: int, nth: int, *, forever: bool) -> None:
        self.calls = 0
        self.has_failed = False
        self.is_repaired = False
        original = getattr(os, call)

        def fail_call(*args, **kwargs):
            self.calls += 1
            if not self.is_repaired and (self.calls == nth or (forever and self.calls > nth)):
                self.has_failed = True
                if call == "write" and self.calls == nth:
                    return original(args[0], args[1][: len(args[1]) // 2])
                raise OSError(error, os.strerror(error))
            if call == "write" and not self.is_repaired and not forever and self.calls == nth + 1:
                raise OSError(error, os.strerror(error))
            return original(*args, **kwargs)

        patch.setattr(os, call, fail_call)


async def record_under_faults(folder: Path, disk: BadDisk | None = None) -> tuple[list[EventRecord], str | None]:
    """Record a run, repair the disk before its last event; return its events and the reason of the fault."""
    async with JsonlStore(folder, limits=WriterLimits(part_bytes=900)) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        await record.sync()
        recorder.record(*(Text(f"{i} " + "x" * 150) for i in range(6)))
        await record.sync()
        if disk:
            disk.is_repaired = True
        recorder.record_end()
        await record.sync()
        fault = record.fault
        await record.release()
    return recorder.events, fault.reason if fault else None


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("call", CALLS)
async def test_run_survives_any_failing_storage_call_and_is_stored_completely(call, forever, tmp_path):
    for nth in range(1, 200):
        folder = tmp_path / f"{nth}"
        with pytest.MonkeyPatch.context() as patch:
            disk = BadDisk(patch, call, errno.EIO, nth, forever=forever)
            events, fault = await record_under_faults(folder, disk)
        session = events[0].origin.session
        store = JsonlStore(folder)
        reader = store.events(session)
        assert [event_record async for event_record in reader] == events
        assert reader.damaged_count == 0
        # That a later sync succeeds proves nothing; every other fault is over when everything is written.
        assert fault == ("storage_error" if call in {"fdatasync", "fsync"} and disk.has_failed else None)
        if disk.calls < nth:
            break
    else:
        raise AssertionError("never without a fault")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errno.ENOSPC, "storage_full"),
        (errno.EDQUOT, "storage_full"),
        (errno.EROFS, "storage_read_only"),
        (errno.EACCES, "storage_denied"),
        (errno.EMFILE, "resource_limit"),
        (errno.EIO, "storage_error"),
    ],
)
async def test_fault_names_unsaved_events_reason_and_advice(error, reason, folder, monkeypatch):
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        assert record.fault is None
        disk = BadDisk(monkeypatch, "write", error, 1, forever=True)
        recorder.record(Text("lost?"))
        fault = record.fault
        assert fault is not None
        assert (fault.code, fault.reason) == (ErrorCode.STORAGE, reason)
        assert "not being saved since event 3" in fault.message
        assert os.strerror(error) in fault.message
        assert str(record.file) in fault.message
        disk.is_repaired = True
        recorder.record_end()
        assert record.fault is None
        await record.release()
        assert await read_all(store, spec.session) == recorder.events


async def test_waiting_lines_are_bounded_and_transitions_never_dropped(folder, monkeypatch):
    async with JsonlStore(folder, limits=WriterLimits(pending_bytes=5000)) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        disk = BadDisk(monkeypatch, "write", errno.ENOSPC, 1, forever=True)
        recorder.record_start()
        recorder.record(*(Text("x" * 400) for _ in range(100)))
        recorder.record_end()
        disk.is_repaired = True
        await record.sync()
        fault = record.fault
        await record.release()
        kept = await read_all(store, spec.session)
    assert kept[:2] == recorder.events[:2]
    assert kept[-1] == recorder.events[-1]
    assert 3 < len(kept) < 15
    assert kept == [event_record for event_record in recorder.events if event_record in kept]
    assert fault is not None
    assert f"{len(recorder.events) - len(kept)} events" in fault.message


async def test_refused_record_is_finished_after_its_release(folder, monkeypatch):
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        disk = BadDisk(monkeypatch, "write", errno.ENOSPC, 1, forever=True)
        recorder.record_end()
        await record.release()
        assert await JsonlStore(folder).is_locked(spec.session), "nobody else may continue what is not written"
        assert not await store.is_locked(spec.session)
        finished = anyio.Event()
        unlink = os.unlink

        def observe_call(path, **where):
            unlink(path, **where)
            finished.set()

        monkeypatch.setattr(os, "unlink", observe_call)
        disk.is_repaired = True
        with anyio.fail_after(10):
            await finished.wait()
        assert not await JsonlStore(folder).is_locked(spec.session)
        assert await read_all(store, spec.session) == recorder.events


async def test_unfinished_record_is_left_for_recovery(folder):
    with pytest.MonkeyPatch.context() as patch:
        async with JsonlStore(folder) as store:
            spec = run_spec(store.claim())
            record = await store.open_record(spec)
            recorder = StoreRecorder(record, spec)
            recorder.record_start()
            BadDisk(patch, "write", errno.ENOSPC, 1, forever=True)
            recorder.record_end()
            await record.release()
    (summary,) = await JsonlStore(folder).recover()
    assert summary.session == spec.session
    assert isinstance((await JsonlStore(folder).tail(spec.session, 1))[0].event, RunEnded)


async def test_failed_sync_is_a_lasting_fault_of_its_record(folder, monkeypatch):
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        BadDisk(monkeypatch, "fdatasync", errno.EIO, 1, forever=False)
        recorder.record_start()
        await record.sync()
        first = record.fault
        recorder.record_end()
        await record.sync()
        assert first is not None
        assert record.fault == first
        await record.release()
        await record_run(store, run_spec(store.claim()))


async def test_record_removed_during_its_run_is_a_fault(folder):
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        await record.sync()
        assert record.file
        remove(record.file)
        recorder.record_end()
        await record.sync()
        assert record.fault is not None
        assert record.fault.reason == "storage_lost"
        await record.release()


def remove(file: str) -> None:
    Path(file).unlink()


async def test_folder_that_cannot_be_created_is_a_fault_from_the_start(folder):
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where the state folder should be")
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        assert record.fault is not None
        assert "since its beginning" in record.fault.message
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        await record.sync()
        folder.unlink()
        recorder.record_end()
        await record.sync()
        assert record.fault is None
        await record.release()
        assert await read_all(store, spec.session) == recorder.events


async def test_rotated_record_is_read_as_one(folder):
    async with JsonlStore(folder, limits=WriterLimits(part_bytes=2000)) as store:
        spec = run_spec(store.claim())
        events = await record_run(store, spec, *(Text(f"{i} " + "x" * 300) for i in range(60)), Text("y" * 5000))
        assert await read_all(store, spec.session) == events
        assert list(await store.tail(spec.session, 40)) == events[-40:]
        summary = await store.summary(spec.session)
    parts = sorted((folder / "sessions" / spec.session[:8]).glob("session*.jsonl"))
    assert len(parts) > 10
    assert summary is not None
    assert summary.size_bytes == sum(path.stat().st_size for path in parts)
    headers = [json.loads(path.read_bytes().split(b"\n")[0]) for path in parts]
    assert {head["id"] for head in headers} == {spec.session}
    assert sorted(head["part"] for head in headers) == list(range(1, len(parts) + 1))
    for path in parts:
        lines = path.read_bytes().split(b"\n")
        assert lines[-1] == b""
        assert len(lines) == 3 or path.stat().st_size <= 2000


async def test_position_of_a_later_run_survives_rotation(folder):
    async with JsonlStore(folder, limits=WriterLimits(part_bytes=2000)) as store:
        session = store.claim()
        await record_run(store, run_spec(session), *(Text("x" * 300) for _ in range(20)))
        run = store.claim(session)
        events = await record_run(store, run_spec(session, run, task="more"), *(Text("x" * 300) for _ in range(20)))
        assert await read_all(store, session, run) == events
        summary = await store.summary(session)
        assert summary is not None
        assert (summary.runs, summary.task) == (2, "more")


async def test_files_and_folders_are_private_under_any_umask(folder):
    before = os.umask(0o027)
    try:
        async with JsonlStore(folder) as store:
            session = store.claim()
            await record_run(store, run_spec(session))
            record = await store.open_record(run_spec(session, store.claim(session)))
            await store.list()
            found = {path: path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
            await record.release()
    finally:
        os.umask(before)
    assert len(found) > 10
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in found.items() if not path.is_dir() and path.exists()} == {0o600}


async def test_symlink_in_place_of_a_record_is_not_followed(folder, tmp_path):
    target = tmp_path / "elsewhere"
    target.write_text("precious")
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        (folder / "sessions" / spec.session[:8] / "session.jsonl").symlink_to(target)
        record = await store.open_record(spec)
        StoreRecorder(record, spec).record_start()
        assert record.fault is not None
        await record.release()
    assert target.read_text() == "precious"
    with pytest.raises(OSError, match="symbolic"):
        paths.open_private(folder / "sessions" / spec.session[:8] / "session.jsonl", os.O_WRONLY)


async def test_session_with_the_same_prefix_is_never_overwritten(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        events = await record_run(store, run_spec(session))
        other = session[:8] + "f" * 24
        record = await store.open_record(run_spec(other))
        StoreRecorder(record, run_spec(other)).record_start()
        assert record.fault is not None
        await record.release()
        assert await read_all(store, session) == events
        assert await read_all(JsonlStore(folder), other) == []


async def test_stream_events_are_synced_without_a_waiting_caller(folder, monkeypatch):
    synced = anyio.Event()
    sync = os.fdatasync
    loop = anyio.lowlevel.current_token()

    def observe_call(descriptor):
        sync(descriptor)
        anyio.from_thread.run_sync(synced.set, token=loop)

    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        await record.sync()
        monkeypatch.setattr(os, "fdatasync", observe_call)
        recorder.record(Text("nobody waits for this"))
        with anyio.fail_after(5):
            await synced.wait()
        await record.release()


async def test_concurrent_syncs_share_disk_syncs(folder, monkeypatch):
    folders = []
    sync = os.fsync

    def count_sync(descriptor):
        folders.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", count_sync)
    async with JsonlStore(folder) as store, anyio.create_task_group() as runs:
        for _ in range(100):
            runs.start_soon(record_run, store, run_spec(store.claim()))
    # One for each session's own folder, and one for the folder of all in each of a few trips.
    assert 100 < len(folders) < 130


@pytest.mark.process
async def test_full_disk_stops_no_run_and_waiting_lines_are_written_later(folder):
    child = Path(__file__).with_name("full_disk_child.py")
    answer = json.loads((await anyio.run_process([sys.executable, str(child), str(folder)])).stdout)
    assert answer["full"]["reason"] == "storage_full"
    assert answer["after"] is None
    store = JsonlStore(folder)
    reader = store.events(answer["session"])
    seqs = [event_record.seq async for event_record in reader]
    assert seqs == list(range(1, answer["events"] + 1))
    assert reader.damaged_count == 0
