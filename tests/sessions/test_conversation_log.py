"""The log of a root conversation: all events, rotated, shared by processes, followed while it is written."""

import os
from pathlib import Path

import anyio
import pytest

from retinue.model.events import Text
from retinue.sessions.conversation_log import RotatingLog, open_log_cursor
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.paths import make_safe_name
from retinue.sessions.writer import WriterLimits
from retinue.testing.stores import StoreRecorder, record_run, run_spec


def read_lines(folder: Path) -> list[bytes]:
    cursor, found = open_log_cursor(folder), []
    while lines := cursor.read():
        found += lines
    return found


def test_log_rotates_and_deletes_its_oldest_files(tmp_path):
    log = RotatingLog(tmp_path, file_bytes=100, files=4)
    lines = [b"%03d %s" % (i, b"x" * 20) for i in range(60)]
    for line in lines:
        log.append(line + b"\n")
        log.flush()
    log.close()
    kept = read_lines(tmp_path)
    assert kept == lines[-len(kept) :]
    files = list(tmp_path.glob("*.jsonl"))
    assert len(files) == 4
    assert all(path.stat().st_size <= 100 and path.read_bytes().endswith(b"\n") for path in files)


def test_log_line_longer_than_a_file_is_written_whole(tmp_path):
    log = RotatingLog(tmp_path, file_bytes=100, files=8)
    for line in (b"one\n", b"y" * 500 + b"\n", b"two\n"):
        log.append(line)
        log.flush()
    log.close()
    assert read_lines(tmp_path) == [b"one", b"y" * 500, b"two"]


def test_two_log_writers_lose_nothing_when_one_rotates(tmp_path):
    first, second = (RotatingLog(tmp_path, file_bytes=200, files=100) for _ in range(2))
    lines = []
    for i in range(80):
        lines.append(b"%03d" % i + b"x" * 20)
        writer = first if i % 3 else second
        writer.append(lines[-1] + b"\n")
        writer.flush()
    first.close()
    second.close()
    assert read_lines(tmp_path) == lines


def test_log_line_torn_by_a_dead_process_is_not_joined_with_the_next(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(b"whole\nto")
    log = RotatingLog(tmp_path, file_bytes=1000, files=2)
    log.append(b"ours\n")
    log.close()
    assert read_lines(tmp_path) == [b"whole", b"to", b"ours"]


def test_unwritable_log_warns_once(tmp_path, caplog):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    log = RotatingLog(blocked / "log", file_bytes=100, files=2)
    for _ in range(3):
        log.append(b"x\n")
        log.flush()
    log.close()
    assert len(caplog.records) == 1
    assert str(blocked) in caplog.text


def test_held_lock_delays_log_rotation_only(tmp_path):
    from retinue.support.safe_files import try_lock

    descriptor = os.open(tmp_path / "events.lock", os.O_RDWR | os.O_CREAT)
    assert try_lock(descriptor)
    log = RotatingLog(tmp_path, file_bytes=50, files=3)
    for _ in range(5):
        log.append(b"x" * 30 + b"\n")
        log.flush()
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    os.close(descriptor)
    log.append(b"last\n")
    log.close()
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    assert read_lines(tmp_path)[-1] == b"last"


async def test_root_log_has_the_events_of_all_its_runs(folder):
    async with JsonlStore(folder, limits=WriterLimits(log_bytes=2000, log_files=50)) as store:
        events = []
        for i in range(4):
            events += await record_run(store, run_spec(store.claim(), root="mine"), *(Text(f"{i}") for _ in range(9)))
        await record_run(store, run_spec(store.claim(), root="other"))
        reader = store.root_events("mine")
        assert [event_record async for event_record in reader] == events
        assert reader.damaged_count == 0
        assert [event_record async for event_record in store.root_events("nobody's")] == []
    assert len(list((folder / "roots" / "mine").glob("*.jsonl"))) > 1


async def test_follow_returns_past_and_new_events_across_rotation(folder):
    async with JsonlStore(folder, limits=WriterLimits(log_bytes=1500, log_files=50)) as store:
        events = await record_run(store, run_spec(store.claim()))
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        seen = []
        with anyio.fail_after(10):
            async for event_record in store.follow("root-1"):
                seen.append(event_record)
                if len(seen) == len(events):
                    recorder.record_start()
                    recorder.record(*(Text(f"{i} " + "x" * 200) for i in range(20)))
                    recorder.record_end()
                    await record.sync()
                if len(seen) == len(events) + len(recorder.events) > len(events):
                    break
        await record.release()
    assert seen == events + recorder.events


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ("conversation-1", "conversation-1"),
        ("a.b_c", "a.b_c"),
        ("..", "root-"),
        ("../../etc/passwd", "etc-passwd-"),
        ("a/b", "a-b-"),
        ("", "root-"),
        ("x" * 300, "x" * 40 + "-"),
        ("\ud800 é", "root-"),
        (".hidden", "hidden-"),
    ],
)
def test_foreign_root_id_becomes_a_safe_folder_name(root, name):
    safe = make_safe_name(root)
    assert safe.startswith(name)
    assert "/" not in safe
    assert len(safe) <= 80


def test_similar_root_ids_get_different_folder_names():
    assert len({make_safe_name(root) for root in ("a/b", "a-b", "a b", "a\\b", "a//b")}) == 5
