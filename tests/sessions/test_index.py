"""The index is derived: the list is the same in any state of the index file."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from retinue.sessions.index import SessionIndex, read_stamps
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.paths import StateLayout
from retinue.sessions.store import INTERRUPTED, IndexProgress, SessionFilter, SessionState, SessionSummary
from retinue.sessions.summary import CachedSummary, find_summary
from retinue.testing.stores import StoreRecorder, record_run, run_spec


async def record_sessions(folder) -> list[SessionSummary]:
    async with JsonlStore(folder) as store:
        for i in range(6):
            session = store.claim()
            await record_run(store, run_spec(session, agent=f"agent-{i % 2}"), time=1000.0 * i)
        await record_run(store, run_spec(session, store.claim(session)), time=9000.0)
        return list(await store.list())


def list_sessions(
    folder, wanted: SessionFilter, lock_timeout: float = 0.05
) -> tuple[list[SessionSummary], list[str]]:
    """Return the list of an index, and the names of the records it read."""
    layout = StateLayout(folder)
    read: list[str] = []

    def read_summary(path: Path) -> CachedSummary | None:
        read.append(path.name)
        return find_summary(layout, path, lambda _: False)

    index = SessionIndex(layout, read_summary, lock_timeout=lock_timeout)
    return list(index.list(wanted)), read


async def test_index_reads_only_changed_records(folder):
    listed = await record_sessions(folder)
    assert list_sessions(folder, SessionFilter()) == (listed, [])
    async with JsonlStore(folder) as store:
        await record_run(store, run_spec(listed[3].session, store.claim(listed[3].session)))
    assert list_sessions(folder, SessionFilter())[1] == [listed[3].session[:8]]
    assert list_sessions(folder, SessionFilter())[1] == []


async def test_index_does_not_decode_unchanged_summaries_again(folder):
    listed = await record_sessions(folder)
    async with JsonlStore(folder) as store:
        first = await store.list()
        await record_run(store, run_spec(listed[3].session, store.claim(listed[3].session)))
        again = {each.session: each for each in await store.list()}
    assert list(first) == listed
    assert {each.session for each in first if again[each.session] is not each} == {listed[3].session}


@pytest.mark.parametrize(
    "damage", ["deleted", "garbage", "truncated", "empty", "other tables", "bad rows", "old", "link"]
)
async def test_damaged_index_is_rebuilt_with_the_same_content(damage, folder, tmp_path):
    listed = await record_sessions(folder)
    path = folder / "index.sqlite"
    content = path.read_bytes()
    path.unlink()
    match damage:
        case "garbage":
            path.write_bytes(b"\x00garbage" * 1000)
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case "empty":
            path.write_bytes(b"")
        case "other tables":
            with closing(sqlite3.connect(path)) as other:
                other.executescript("CREATE TABLE mine (x); PRAGMA user_version = 1")
        case "bad rows":
            path.write_bytes(content)
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("UPDATE sessions SET summary = x'00'")
        case "old":
            with closing(sqlite3.connect(path)) as other:
                other.executescript("CREATE TABLE sessions (x)")
        case "link":
            (tmp_path / "elsewhere").write_bytes(b"")
            path.symlink_to(tmp_path / "elsewhere")
        case _:
            pass
    for _ in range(3):
        assert list_sessions(folder, SessionFilter())[0] == listed
        assert (
            list_sessions(folder, SessionFilter(agent="agent-1", limit=2))[0]
            == [summary for summary in listed if summary.agent == "agent-1"][:2]
        )
    if damage != "link":
        assert list_sessions(folder, SessionFilter())[1] == []


async def test_locked_index_is_bypassed(folder):
    listed = await record_sessions(folder)
    async with JsonlStore(folder) as store:
        await record_run(store, run_spec(listed[0].session, store.claim(listed[0].session)), time=9500.0)
    with closing(sqlite3.connect(folder / "index.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        locked, read = list_sessions(folder, SessionFilter())
        assert len(read) == len(listed)
    unlocked, read = list_sessions(folder, SessionFilter())
    assert locked == unlocked
    assert len(read) == 1


async def test_changes_survive_in_an_index_that_is_readable_and_not_writable(folder):
    listed = await record_sessions(folder)
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session), time=99_000.0)
    layout = StateLayout(folder)

    def read_summary(path: Path) -> CachedSummary | None:
        return find_summary(layout, path, lambda _: False)

    index = SessionIndex(layout, read_summary, lock_timeout=0.05)

    def first(*, look: bool) -> str:
        return index.list(SessionFilter(), refresh=look)[0].session

    with closing(sqlite3.connect(layout.index, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert first(look=False) == listed[0].session
        assert [first(look=True), first(look=False)] == [session, session]
    assert first(look=False) == session


async def test_index_of_a_newer_version_is_not_changed(folder):
    listed = await record_sessions(folder)
    path = folder / "index.sqlite"
    with closing(sqlite3.connect(path)) as newer:
        newer.executescript("DROP TABLE sessions; CREATE TABLE sessions (other); PRAGMA user_version = 99")
    before = path.read_bytes()
    assert list_sessions(folder, SessionFilter())[0] == listed
    assert path.read_bytes() == before


async def test_index_that_cannot_be_created_is_bypassed(folder):
    listed = await record_sessions(folder)
    (folder / "index.sqlite").unlink()
    (folder / "index.sqlite").mkdir()
    assert list_sessions(folder, SessionFilter())[0] == listed


async def test_deleted_sessions_leave_the_list(folder):
    listed = await record_sessions(folder)
    doomed = folder / "sessions" / listed[2].session[:8]
    doomed.rename(folder / "elsewhere")
    assert list_sessions(folder, SessionFilter())[0] == [summary for summary in listed if summary != listed[2]]
    (folder / "elsewhere").rename(doomed)
    assert list_sessions(folder, SessionFilter())[0] == listed


async def test_run_of_a_dead_process_is_not_listed_as_running(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        record = await store.open_record(run_spec(session))
        StoreRecorder(record, run_spec(session)).record_start()
        assert [one.latest.state for one in await store.list(SessionFilter(state=SessionState.RUNNING))] == [
            SessionState.RUNNING
        ]
        await record.release()
        assert await store.list(SessionFilter(state=SessionState.RUNNING)) == []
        assert [one.latest.failure for one in await store.list(SessionFilter(state=SessionState.ERROR))] == [
            INTERRUPTED
        ]


async def test_concurrent_lists_return_the_same_sessions(folder):
    listed = await record_sessions(folder)
    (folder / "index.sqlite").unlink()
    store = JsonlStore(folder)
    answers = []

    async def ask() -> None:
        answers.append(list(await store.list()))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
    assert answers == [listed] * 10


async def test_claims_without_a_record_are_not_listed(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        store.claim(session)
        assert await store.list() == []
        assert set(read_stamps(folder / "sessions")) == {session[:8]}
    assert read_stamps(folder / "none") == {}


async def test_list_without_refresh_returns_the_last_indexed_state(folder):
    listed = await record_sessions(folder)
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session, root="late"), time=99_000.0)
        assert list(await store.list(refresh=False)) == listed
        assert await store.conversations(SessionFilter(root="late"), max_sessions=9, refresh=False) == []
        assert (await store.list())[0].session == session
        assert (await store.list(refresh=False))[0].session == session
        (folder / "index.sqlite").unlink()
        assert (await store.list(refresh=False))[0].session == session


async def test_index_is_advanced_in_steps_with_the_latest_sessions_first(folder):
    listed = await record_sessions(folder)
    StateLayout(folder).index.unlink()
    async with JsonlStore(folder) as store:
        for done in range(1, len(listed)):
            progress = await store.advance_index(0.0)
            assert (progress, progress.is_complete) == (IndexProgress(done, len(listed)), False)
            assert len(await store.list(refresh=False)) == done
        assert (await store.advance_index(0.0)).is_complete
        assert list(await store.list(refresh=False)) == listed
        assert (await store.advance_index(0.0)) == IndexProgress(len(listed), len(listed))


async def test_names_returns_the_prefixes_of_all_ids(folder):
    async with JsonlStore(folder) as store:
        assert await store.names() == frozenset()
        session = store.claim()
        assert await store.names() == {session[:8]}
        await record_run(store, run_spec(session))
        run = store.claim(session)
        assert await store.names() == {session[:8], run[:8]}
