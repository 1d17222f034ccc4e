"""The store in files: its files, their damage, recovery, and concurrent readers and writers."""

import errno
import os
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.model.errors import ErrorCode, RefusedError
from retinue.model.event_codec import EventRecord, from_line, to_line
from retinue.model.events import MessageEnded, RunEnded, RunQueued, Text, ToolCalled
from retinue.model.results import AnswerStatus, ExecutionReport, Usage
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.paths import read_run_pointer
from retinue.sessions.store import INTERRUPTED, SessionState
from retinue.sessions.writer import WriterLimits
from retinue.testing.stores import StoreRecorder, read_all, record_run, run_spec


def record_of(folder: Path, session: str) -> Path:
    return folder / "sessions" / session[:8] / "session.jsonl"


def ids(*texts: str):
    """Return a generator of ids with chosen first digits."""
    made = iter(texts)
    return lambda: next(made).ljust(32, "0")


async def test_record_file_has_a_header_and_one_json_line_per_event(folder):
    async with JsonlStore(folder, clock=lambda: 77.0) as store:
        session = store.claim()
        events = await record_run(store, run_spec(session), Text("hello"))
    head, *lines = record_of(folder, session).read_bytes().splitlines(keepends=True)
    assert msgspec.json.decode(head) == {
        "v": 1,
        "type": "session",
        "id": session,
        "part": 1,
        "created": 77.0,
        "first": 1,
    }
    assert lines == [to_line(event_record) for event_record in events]
    assert {path.name for path in folder.iterdir()} == {"sessions", "leases", "roots"}
    assert list((folder / "leases").iterdir()) == []


async def test_id_with_a_claimed_prefix_is_drawn_again(folder):
    names = ids("aaaaaaaa", "aaaaaaaa1", "bbbbbbbb", "aaaaaaaa2", "bbbbbbbb3", "cccccccc")
    store = JsonlStore(folder, new_id=names)
    first, second = store.claim(), store.claim()
    run = store.claim(first)
    assert [one[:8] for one in (first, second, run)] == ["aaaaaaaa", "bbbbbbbb", "cccccccc"]


async def test_claim_of_a_later_run_has_its_start_position(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session))
        run = store.claim(session)
        claimed = read_run_pointer(folder / "sessions" / run[:8])
        assert claimed is not None
        assert (claimed[0].session, claimed[0].run, claimed[1]) == (session, run, None)
        (queued, *_) = await record_run(store, run_spec(session, run))
    claimed = read_run_pointer(folder / "sessions" / run[:8])
    assert claimed is not None
    assert claimed[1] is not None
    assert claimed[1].number == 2
    assert record_of(folder, session).read_bytes()[claimed[1].at.offset :].startswith(to_line(queued))


@pytest.mark.parametrize("damage", ["gone", "empty", "garbage", "wrong place"])
async def test_lost_claim_is_replaced_by_reading_the_record(damage, folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session))
        middle, run = store.claim(session), store.claim(session)
        await record_run(store, run_spec(session, middle))
        events = await record_run(store, run_spec(session, run, task="third"), Text("3"))
        path = folder / "sessions" / run[:8]
        match damage:
            case "gone":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "garbage":
                path.write_bytes(b"\xff{")
            case _:
                path.write_bytes(path.read_bytes().split(b"\n")[0] + b'\n{"number":9,"at":{"part":4,"offset":3}}\n')
        summary = await store.summary(session)
        assert summary is not None
        assert (summary.runs, summary.task) == (3, "third")
        assert await read_all(store, session, run) == events


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_record_cut_at_any_byte_is_readable_and_resumable(data, tmp_path_factory):
    anyio.run(cut_and_continue, data, tmp_path_factory.mktemp("cut"))


async def cut_and_continue(data, folder: Path) -> None:
    async with JsonlStore(folder, clock=lambda: 1.0) as store:
        session = store.claim()
        events = await record_run(store, run_spec(session), Text("one\u2028"), Text("{two}\n"), Text("drei ü"))
        path = record_of(folder, session)
        whole = path.read_bytes()
        first_run = whole.index(b"\n", whole.index(b"run_queued")) + 1
        cut = data.draw(st.integers(first_run, len(whole)))
        path.write_bytes(whole[:cut])
        reader = store.events(session)
        kept = [event_record async for event_record in reader]
        assert kept == events[: len(kept)]
        assert (
            sum(len(to_line(event_record)) for event_record in kept)
            >= cut - max(len(to_line(one)) for one in events) - 200
        )
        added = await record_run(store, run_spec(session, store.claim(session)), Text("again"))
        after = await read_all(store, session)
        assert after[: len(kept)] == kept
        assert after[-len(added) :] == added
        ended = after[len(kept) : -len(added)]
        assert [type(event_record.event) for event_record in ended] == (
            [] if len(kept) == len(events) else [RunEnded]
        )


async def test_torn_tail_is_saved_and_counted(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        events = await record_run(store, run_spec(session))
        path = record_of(folder, session)
        with path.open("ab") as file:
            file.write(b'{"v":1,"seq":9,"ti')
        before = await store.summary(session)
        assert before is not None
        assert before.damaged == 0
        events += await record_run(store, run_spec(session, store.claim(session)))
        reader = store.events(session)
        assert [event_record async for event_record in reader] == events
        assert reader.damaged_count == 1
        after = await store.summary(session)
        assert after is not None
        assert after.damaged == 1
        assert path.with_name("session.torn").read_bytes() == b'{"v":1,"seq":9,"ti\n'


async def test_record_without_its_last_newline_is_kept(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        events = await record_run(store, run_spec(session))
        path = record_of(folder, session)
        path.write_bytes(path.read_bytes()[:-1])
        assert await read_all(store, session) == events
        added = await record_run(store, run_spec(session, store.claim(session)))
        assert await read_all(store, session) == events + added


async def test_damaged_line_is_skipped_and_counted(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        events = await record_run(store, run_spec(session), *(Text(str(i)) for i in range(6)))
        path = record_of(folder, session)
        lines = path.read_bytes().splitlines(keepends=True)
        lines[4] = b"\x00" * 50 + b"\n"
        lines[6] = lines[6][:20] + b"\n"
        lines[7:9] = [lines[7][:-1] + lines[8]]
        path.write_bytes(b"".join(lines))
        reader = store.events(session)
        read = [event_record async for event_record in reader]
        assert read == [event_record for i, event_record in enumerate(events, 1) if i not in {4, 6}]
        assert reader.damaged_count == 2
        assert list(await store.tail(session, 4)) == read[-4:]


@pytest.mark.parametrize("replacement", [b"\x00garbage\n", b"{}\n", b""])
async def test_damaged_header_loses_no_event(replacement, folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        events = await record_run(store, run_spec(session))
        path = record_of(folder, session)
        path.write_bytes(replacement + path.read_bytes().split(b"\n", 1)[1])
        assert await store.find(session[:8]) == session
        assert await read_all(store, session) == events
        added = await record_run(store, run_spec(session, store.claim(session)))
        assert await read_all(store, session) == events + added


async def test_interrupted_rotation_is_completed(folder):
    async with JsonlStore(folder, limits=WriterLimits(part_bytes=1500)) as store:
        session = store.claim()
        events = await record_run(store, run_spec(session), *(Text("x" * 300) for _ in range(10)))
        path = record_of(folder, session)
        numbers = [int(one.name.split(".")[1]) for one in path.parent.glob("session.*.jsonl")]
        path.rename(path.with_name(f"session.{max(numbers) + 1}.jsonl"))
        assert await read_all(store, session) == events
        assert [summary.session for summary in await store.list()] == [session]
        added = await record_run(store, run_spec(session, store.claim(session)))
        assert await read_all(store, session) == events + added


async def test_record_of_a_newer_format_is_listed_and_not_changed(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session))
        path = record_of(folder, session)
        path.write_bytes(path.read_bytes().replace(b'{"v":1,', b'{"v":2,'))
        before = path.read_bytes()
        (summary,) = await store.list()
        assert summary.latest.failure is not None
        assert summary.latest.failure.reason == "newer_version"
        assert "record format 2" in summary.preview
        with pytest.raises(RefusedError) as refusal:
            await store.open_record(run_spec(session, store.claim(session)))
        assert refusal.value.failure.reason == "newer_version"
        (folder / "leases" / session[:8]).write_bytes(b"")
        assert await store.recover() == []
        assert (folder / "leases" / session[:8]).exists()
        await store.prune(older_than=-10.0, keep_results=False)
        assert path.read_bytes() == before


async def test_resuming_an_unreadable_session_is_refused_for_storage(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session))
        (folder / "leases").rmdir()
        (folder / "leases").write_text("in the way")
        with pytest.raises(RefusedError) as refusal:
            await store.open_record(run_spec(session, store.claim(session)))
        assert refusal.value.failure.code == ErrorCode.STORAGE
        assert "Nothing was changed" in refusal.value.failure.message


async def test_unreadable_session_is_listed_with_its_failure(folder):
    async with JsonlStore(folder) as store:
        session, other = store.claim(), store.claim()
        await record_run(store, run_spec(other))
        record_of(folder, session).mkdir()
        sound, broken = await store.list()
        assert sound.session == other
        assert broken.session == session[:8]
        assert broken.latest.failure is not None
        assert "cannot be read or continued: Is a directory" in broken.latest.failure.message
        with pytest.raises(RefusedError, match="Is a directory"):
            await read_all(store, session)
        with pytest.raises(RefusedError, match="Is a directory"):
            await store.tail(session, 5)


async def test_finding_an_unreadable_session_is_refused_for_storage(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session))
        run = store.claim(session)
        await record_run(store, run_spec(session, run))
        record_of(folder, session).unlink()
        record_of(folder, session).mkdir()
        for name in (session, session[:8], run, run[:16]):
            with pytest.raises(RefusedError, match="Is a directory") as refusal:
                await store.find(name)
            assert refusal.value.failure.code == ErrorCode.STORAGE
        assert not await store.is_locked(session)
        assert await store.owner(session) is None


async def test_unreadable_state_folder_stops_no_run(tmp_path):
    async with JsonlStore(tmp_path / ("x" * 300)) as store:
        assert await store.recover() == []
        record = await store.open_record(run_spec(store.claim()))
        assert record.fault is not None
        await record.release()
        for asked in (store.list, store.owners, lambda: read(store.root_events("root-1"))):
            with pytest.raises(RefusedError, match="File name too long") as refusal:
                await asked()
            assert refusal.value.failure.code == ErrorCode.STORAGE


async def read(events) -> list[EventRecord]:
    return [event_record async for event_record in events]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("aaaaaaaa/session.jsonl", b'{"v":1,"type":"session","id":"../..","part":1,"created":1.0,"first":1}\n'),
        ("aaaaaaaa/session.jsonl", b""),
        ("aaaaaaaa", b'{"session":"../..","run":"aaaaaaaa"}\n'),
    ],
)
async def test_invalid_id_never_becomes_a_path(path, content, folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session))
        # Events of a session and of a run that have no ids of ours.
        foreign = record_of(folder, session).read_bytes().split(b"\n", 1)[1].replace(session.encode(), b"../..")
        forged = folder / "sessions" / path
        forged.parent.mkdir(exist_ok=True)
        forged.write_bytes(content + foreign)
        (folder / "leases" / "aaaaaaaa").write_bytes(b"")
        assert await store.recover() == []
        assert [summary.session for summary in await store.list()] == [session]
        assert await store.find("aaaaaaaa") is None
        assert await read_all(store, session, "../..") == []
        await store.prune(older_than=-10.0)


async def test_run_with_a_foreign_id_is_listed(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session))
        path = record_of(folder, session)
        path.write_bytes(path.read_bytes().replace(b'"run":"' + session.encode(), b'"run":"../..'))
        summary = await store.summary(session)
        assert summary is not None
        assert (summary.latest.run, summary.latest.state) == ("../..", SessionState.COMPLETED)


async def test_open_record_outside_the_store_block_raises(folder):
    store = JsonlStore(folder)
    with pytest.raises(RuntimeError, match="async with"):
        await store.open_record(run_spec(store.claim()))


async def test_run_without_a_lease_is_recorded(folder):
    folder.mkdir()
    (folder / "leases").write_text("in the way")
    async with JsonlStore(folder) as store:
        session = store.claim()
        events = await record_run(store, run_spec(session))
        assert await read_all(store, session) == events


async def test_busy_refusal_names_the_owner_process(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        record = await store.open_record(run_spec(session), control="/run/me.sock")
        StoreRecorder(record, run_spec(session)).record_start()
        with pytest.raises(RefusedError) as refusal:
            await store.open_record(run_spec(session, store.claim(session)))
        assert f"process {os.getpid()} on " in refusal.value.failure.message
        (owner,) = await store.owners()
        assert (owner.session, owner.run, owner.pid, owner.control) == (session, session, os.getpid(), "/run/me.sock")
        assert await store.owner(session) == owner
        await record.release()
        assert await store.owners() == ()
        assert await store.owner(session) is None


async def test_lease_without_owner_is_held_and_has_no_owner(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        record = await store.open_record(run_spec(session))
        (folder / "leases" / session[:8]).write_bytes(b"")
        for each in (store, JsonlStore(folder)):
            assert await each.is_locked(session)
            assert await each.owner(session) is None
        await record.release()


async def test_concurrent_lease_check_does_not_block_a_new_session(folder, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    looks: list[int] = []
    flock = fcntl.flock

    def looked_at(descriptor, how):
        if how & fcntl.LOCK_EX and len(looks) < 2:
            looks.append(descriptor)
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", looked_at)
    async with JsonlStore(folder) as store:
        session = store.claim()
        events = await record_run(store, run_spec(session))
        assert await read_all(store, session) == events
    assert len(looks) == 2


async def test_second_store_reads_events_at_once(folder):
    async with JsonlStore(folder) as store:
        other = JsonlStore(folder)
        session = store.claim()
        record = await store.open_record(run_spec(session))
        recorder = StoreRecorder(record, run_spec(session))
        recorder.record_start()
        assert await read_all(other, session) == recorder.events
        assert [(one.session, one.latest.state) for one in await other.list()] == [(session, SessionState.RUNNING)]
        assert await other.is_locked(session)
        assert list(await other.recover()) == []
        recorder.record_end()
        await record.release()
        assert [one.latest.state for one in await other.list()] == [SessionState.COMPLETED]


async def test_recovery_keeps_the_partial_results_of_a_run(folder):
    async with JsonlStore(folder, clock=lambda: 5000.0) as store:
        session = store.claim()
        spec = run_spec(session)
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        recorder.record(Text("early"), MessageEnded(stop_reason="tool_use", usage=Usage(input=2, turns=1)))
        recorder.record(ToolCalled("1", "read", {}), ToolCalled("2", "grep", {}), ToolCalled("3", "read", {}))
        recorder.record(
            Text("late"), Text(" "), Text("later"), MessageEnded(stop_reason="stop", usage=Usage(input=3, cost=0.5))
        )
        await record.release()
        (summary,) = await store.recover()
        assert (summary.latest.failure, summary.latest.tools) == (INTERRUPTED, 3)
        events = await read_all(store, session)
    assert events[:-1] == recorder.events
    ended = RunEnded(
        text="late\n\nlater",
        answer=AnswerStatus.PARTIAL,
        failure=INTERRUPTED,
        exit_code=1,
        usage=Usage(input=5, cost=0.5, turns=2),
        elapsed=9.0,
        actual=ExecutionReport(tools_used={"read": 2, "grep": 1}),
    )
    assert events[-1] == EventRecord(recorder.events[0].origin, len(events), 5000.0, ended)
    assert [event_record async for event_record in store.root_events("root-1")] == events
    assert await store.recover() == []


async def test_resuming_ends_the_interrupted_run_first(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        record = await store.open_record(run_spec(session))
        recorder = StoreRecorder(record, run_spec(session))
        recorder.record_start()
        await record.release()
        added = await record_run(store, run_spec(session, store.claim(session)))
        events = await read_all(store, session)
    assert events[:2] == recorder.events
    assert isinstance(events[2].event, RunEnded)
    assert events[2].event.failure == INTERRUPTED
    assert events[3:] == added
    assert list((folder / "leases").iterdir()) == []


async def test_concurrent_recoveries_end_each_run_once(folder):
    async with JsonlStore(folder) as store:
        sessions = [store.claim() for _ in range(20)]
        for session in sessions:
            record = await store.open_record(run_spec(session))
            StoreRecorder(record, run_spec(session)).record_start()
            await record.release()
    recovered: list[str] = []

    async def recover() -> None:
        recovered.extend(summary.session for summary in await JsonlStore(folder).recover())

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(recover)
    assert sorted(recovered) == sorted(sessions)
    for session in sessions:
        assert [type(event_record.event) for event_record in await read_all(store, session)][2:] == [RunEnded]


async def test_exactly_one_of_many_concurrent_resumes_succeeds(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session))
        outcomes: list[str | None] = []

        async def resume() -> None:
            try:
                outcomes.append((await store.open_record(run_spec(session, store.claim(session)))).file)
            except RefusedError as refusal:
                outcomes.append(refusal.failure.code)

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(resume)
    assert sorted(map(str, outcomes)) == sorted([str(record_of(folder, session)), *[ErrorCode.SESSION_BUSY] * 7])


async def test_lease_without_a_record_is_removed(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        (folder / "leases").mkdir()
        (folder / "leases" / session[:8]).write_bytes(b"")
        assert await store.recover() == []
    assert list((folder / "leases").iterdir()) == []


async def test_error_in_the_store_block_is_raised_unwrapped(folder):
    with pytest.raises(ValueError, match="mine"):
        async with JsonlStore(folder) as store:
            record = await store.open_record(run_spec(store.claim()))
            StoreRecorder(record, run_spec("a" * 32))
            raise ValueError("mine")


async def test_cancelled_store_block_saves_appended_events(folder):
    with anyio.CancelScope() as scope:
        async with JsonlStore(folder) as store:
            session = store.claim()
            record = await store.open_record(run_spec(session))
            recorder = StoreRecorder(record, run_spec(session))
            recorder.record_start()
            try:
                scope.cancel()
                await anyio.sleep_forever()
            finally:
                recorder.record_end()
                await record.release()
    assert scope.cancelled_caught
    assert await read_all(JsonlStore(folder), session) == recorder.events


async def test_concurrent_readers_see_a_prefix_of_the_events(folder):
    async with JsonlStore(folder, limits=WriterLimits(part_bytes=50_000)) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)

        async def write() -> None:
            recorder.record_start()
            while not done.is_set() and len(recorder.events) < 2000:
                recorder.record(Text("x" * 100))
                await anyio.lowlevel.checkpoint()
            recorder.record_end()

        done = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            seen = [await read_all(store, spec.session) for _ in range(5)]
            done.set()
        await record.release()
    assert all(one == recorder.events[: len(one)] for one in seen)
    assert len({len(one) for one in seen}) > 1


async def test_every_stored_line_is_an_event_of_its_run(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, run_spec(session, task="T" * 200_000))
        summary = await store.summary(session)
    lines = record_of(folder, session).read_bytes().splitlines()[1:]
    assert isinstance(from_line(lines[0]).event, RunQueued)
    assert summary is not None
    assert len(summary.task) == 200_000
