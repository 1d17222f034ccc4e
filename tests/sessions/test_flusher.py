"""The flusher: records are durable together, no caller waits for ever, unreached folders are not durable."""

import asyncio

import anyio
import pytest

from retinue.model.events import Text
from retinue.sessions.flusher import RecordFlusher
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.writer import UnsyncedFiles, fsync_files
from retinue.testing.stores import StoreRecorder, run_spec


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class FakeRecord:
    """A record that always has files to sync."""

    syncs = 0

    def take_unsynced(self) -> UnsyncedFiles | None:
        return UnsyncedFiles(files=[], closed=[], folders=[])

    def mark_synced(self, work: UnsyncedFiles) -> None:
        self.syncs += 1

    waiting_bytes = 0

    async def finish(self) -> bool:
        return True

    def close(self) -> None:
        pass


def test_folder_unreachable_for_one_record_is_synced_again_for_the_next(tmp_path):
    there, missing = tmp_path, tmp_path / "missing"
    first, second = (UnsyncedFiles(files=[], closed=[], folders=[missing, there]) for _ in range(2))
    fsync_files([first, second])
    assert isinstance(first.unreached, FileNotFoundError)
    assert isinstance(second.unreached, FileNotFoundError)
    assert first.error is second.error is None


@pytest.mark.parametrize("steps", range(6))
async def test_sync_returns_when_the_flusher_stops_meanwhile(steps):
    flusher = RecordFlusher()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flusher.run)
            tasks.start_soon(flusher.sync, FakeRecord())
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            flusher.stop()
            tasks.start_soon(flusher.sync, FakeRecord())


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_sync_runs_at_once_after_asyncio_cancelled_the_flusher_tasks(anyio_backend):
    flusher, record, before = RecordFlusher(), FakeRecord(), asyncio.all_tasks()
    running = asyncio.create_task(flusher.run())
    while len(asyncio.all_tasks() - before) < 4:  # noqa: ASYNC110 - no event reports that tasks were created
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    with anyio.fail_after(5):
        await asyncio.wait({running})
        await flusher.sync(record)
    assert record.syncs == 1


async def test_sync_after_flusher_stop_returns_at_once():
    flusher = RecordFlusher()
    flusher.stop()
    with anyio.fail_after(5):
        await flusher.sync(FakeRecord())
        await flusher.run()
        await flusher.sync(FakeRecord())


async def test_record_used_after_store_close_writes_nothing_and_reports_a_fault(folder):
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        assert record.file
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert record.fault is None
    recorder.record(Text("too late"))
    recorder.record_end()
    with anyio.fail_after(5):
        await record.sync()
        await record.release()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert record.fault is not None
    assert record.fault.reason == "storage_closed"
