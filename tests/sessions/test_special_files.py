"""Pipes and directories in place of files, and folders that cannot be created: named failures, no hangs."""

import errno
import os
from pathlib import Path

import anyio
import pytest
from tests.support.ordinary_user import as_ordinary_user, open_folder

from retinue.model.errors import ErrorCode, RefusedError
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.paths import make_folder
from retinue.testing.stores import StoreRecorder, read_all, record_run, run_spec

SPECIAL_FILES = {"a pipe": os.mkfifo, "a directory": os.mkdir}


@pytest.fixture(params=list(SPECIAL_FILES))
def put(request):
    """Return a function that replaces a file with a special file."""

    def put(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        SPECIAL_FILES[request.param](path)

    return put


async def test_special_file_as_record_is_one_named_failure(folder, put):
    async with JsonlStore(folder) as store:
        session, other = store.claim(), store.claim()
        await record_run(store, run_spec(session))
        await record_run(store, run_spec(other))
        put(folder / "sessions" / session[:8] / "session.jsonl")
        with anyio.fail_after(5):
            for asked in (
                lambda: store.find(session),
                lambda: store.tail(session, 5),
                lambda: read_all(store, session),
                lambda: store.open_record(run_spec(session, store.claim(session))),
            ):
                with pytest.raises(RefusedError, match="cannot be read or continued") as refusal:
                    await asked()
                assert refusal.value.failure.code == ErrorCode.STORAGE
            assert {summary.session for summary in await store.list()} == {other, session[:8]}
            assert await store.recover() == []


async def test_special_file_as_lease_stops_no_new_run_and_refuses_to_resume(folder, put):
    async with JsonlStore(folder) as store:
        session = store.claim()
        put(folder / "leases" / session[:8])
        with anyio.fail_after(5):
            events = await record_run(store, run_spec(session))
            assert await read_all(store, session) == events
            assert not await store.is_locked(session)
            assert await store.owners() == ()
            assert await store.recover() == []
            with pytest.raises(RefusedError) as refusal:
                await store.open_record(run_spec(session, store.claim(session)))
        assert refusal.value.failure.code == ErrorCode.STORAGE


async def test_special_file_as_root_log_loses_only_that_log(folder, put):
    put(folder / "roots" / "root-1" / "events.jsonl")
    async with JsonlStore(folder) as store:
        session = store.claim()
        with anyio.fail_after(5):
            events = await record_run(store, run_spec(session))
            assert await read_all(store, session) == events
            with pytest.raises(RefusedError, match="The log of conversation root-1 cannot be read"):
                [event_record async for event_record in store.root_events("root-1")]


async def test_special_file_as_claim_finds_no_session(folder, put):
    async with JsonlStore(folder) as store:
        put(folder / "sessions" / "aaaaaaaa")
        with anyio.fail_after(5):
            assert await store.find("a" * 32) is None


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder here refuses to be made")
@pytest.mark.parametrize("path", ["/proc/retinue", "/proc/retinue/a/b"])
def test_make_folder_raises_the_error_of_the_system(path):
    with pytest.raises(FileNotFoundError):
        make_folder(Path(path))


async def test_state_folder_that_cannot_be_created_stops_no_run():
    async with JsonlStore(Path("/proc/retinue")) as store:
        assert await store.recover() == []
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        StoreRecorder(record, spec).record_start()
        assert record.fault is not None
        assert "since its beginning" in record.fault.message
        await record.release()


# -- what an ordinary user is refused --------------------------------------------------------------

RUNS = """
import json, sys
from pathlib import Path
import anyio
from retinue import Retinue
from retinue.model.events import Notice, RunEnded
from tests.support.ordinary_user import drop_rights

async def run(home):
    async with Retinue(cwd=home, engine="offline", environ={"HOME": str(home)}, state=home / "state") as retinue:
        async with retinue.events() as events:
            result = await retinue.run("explorer", "Where is main?")
            told = []
            async for event_record in events:
                if isinstance(event_record.event, Notice):
                    told.append(event_record.event.message)
                if isinstance(event_record.event, RunEnded):
                    break
    return [result.failure and result.failure.message, result.actual.saved, *told]

home, closed, mode = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3], 8)
warm = home / "warm"
warm.mkdir()
anyio.run(run, warm)
drop_rights()
(home / "state" / "leases").mkdir(parents=True)
(home / closed).chmod(mode)
try:
    told = anyio.run(run, home)
finally:
    (home / closed).chmod(0o700)
print(json.dumps(told))
"""


@pytest.mark.process
@pytest.mark.parametrize("mode", ["0", "500", "300"])
@pytest.mark.parametrize("closed", ["state", "state/leases"])
def test_state_folder_without_permissions_stops_no_run(closed, mode):
    with open_folder() as home:
        failure, saved, *notices = as_ordinary_user(RUNS, str(home), closed, mode)
    assert failure is None
    # Into a folder that only cannot be listed the run is saved, and without a lease, too.
    assert saved == (closed == "state/leases" or mode == "300")
    warned = [notice for notice in notices if "This run is not being saved since its beginning: Permission" in notice]
    assert len(warned) == (not saved)


# -- a disk that takes nothing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "reason", "advice"),
    [
        (errno.ENOSPC, "storage_full", "Free some space"),
        (errno.EROFS, "storage_read_only", "Make the folder writable"),
    ],
)
async def test_interrupted_session_that_cannot_be_ended_is_kept_and_not_resumed(
    folder, monkeypatch, number, reason, advice
):
    async with JsonlStore(folder) as store:
        session = store.claim()
        spec = run_spec(session)
        StoreRecorder(await store.open_record(spec), spec).record_start()
    path = folder / "sessions" / session[:8] / "session.jsonl"
    before = path.read_bytes()

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    async with JsonlStore(folder) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", refuse)
            with pytest.raises(RefusedError) as refusal:
                await store.open_record(run_spec(session, "b" * 32))
        assert path.read_bytes() == before
        failure = refusal.value.failure
        assert (failure.code, failure.reason) == (ErrorCode.STORAGE, reason)
        assert failure.message.startswith(
            f"Session {session} was interrupted and cannot be continued now, because its end cannot be saved: "
            f"{os.strerror(number)} ({path}). Its stored output was kept, and nothing was started. {advice}"
        )
        await record_run(store, run_spec(session, "b" * 32))
