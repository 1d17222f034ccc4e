"""Durable together or not: nobody waits for ever, and what could not be reached is not taken for durable."""

import anyio
import pytest

from retinue.events import Text
from retinue.sessions.flusher import Flusher, make_durable
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.writer import Unsynced
from retinue.testing.stores import Tape, run_spec


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Record:
    """Has something to be synced whenever it is asked."""

    def unsynced(self) -> Unsynced | None:
        return Unsynced(files=[], closed=[], folders=[])

    def synced(self, work: Unsynced) -> None:
        pass

    waiting_bytes = 0

    async def finish(self) -> bool:
        return True

    def close(self) -> None:
        pass


def test_a_folder_that_one_record_could_not_reach_is_not_durable_for_the_next(tmp_path):
    there, missing = tmp_path, tmp_path / "missing"
    first, second = (Unsynced(files=[], closed=[], folders=[missing, there]) for _ in range(2))
    make_durable([first, second])
    assert isinstance(first.unreached, FileNotFoundError)
    assert isinstance(second.unreached, FileNotFoundError)
    assert first.error is second.error is None


@pytest.mark.parametrize("steps", range(6))
async def test_a_sync_returns_though_the_flusher_stops_meanwhile(steps):
    flusher = Flusher()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flusher.run)
            tasks.start_soon(flusher.sync, Record())
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            flusher.stop()
            tasks.start_soon(flusher.sync, Record())


async def test_a_sync_after_the_flusher_has_stopped_returns_at_once():
    flusher = Flusher()
    flusher.stop()
    with anyio.fail_after(5):
        await flusher.sync(Record())
        await flusher.run()
        await flusher.sync(Record())


async def test_a_record_that_outlives_its_store_writes_nothing_more_and_says_so(folder):
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.begin(spec)
        tape = Tape(record, spec)
        tape.begin()
        assert record.file
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert record.fault is None
    tape.play(Text("too late"))
    tape.end()
    with anyio.fail_after(5):
        await record.sync()
        await record.release()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert record.fault is not None
    assert record.fault.reason == "storage_closed"
