"""A session of 50 MB: its tail and its summary cost as little as those of a small one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue.model.event_codec import EventRecord, EventSource, to_line
from retinue.model.events import RunQueued, RunStarted, Text
from retinue.sessions.paths import RecordPosition, RunLocation, RunPointer, StateLayout, write_run_location
from retinue.sessions.reader import read_last_events
from retinue.sessions.segments import SegmentHeader
from retinue.sessions.store import SessionState
from retinue.sessions.summary import find_summary
from retinue.testing.stores import run_spec

SESSION, RUN = "a" * 32, "b" * 32
READS = Path("/proc/self/io")
PART = 16 * 2**20
LINES = 12_000

pytestmark = pytest.mark.skipif(not READS.exists(), reason="counts what the system read")


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> StateLayout:
    """Two runs of 25 MB in four segments, the second without an end."""
    layout = StateLayout(tmp_path_factory.mktemp("big"))
    folder = layout.session(SESSION)
    folder.mkdir(parents=True)
    data = bytearray()
    part = 1
    for run in (SESSION, RUN):
        spec = run_spec(SESSION, None if run == SESSION else run, task=f"task of {run[0]}")
        origin = EventSource.of(spec)
        queued = RunQueued(name="n", agent="explorer", task=spec.task, cwd="/", surface="single")
        if run == RUN:
            write_run_location(layout, RunPointer(SESSION, RUN), RunLocation(2, RecordPosition(part, len(data))))
        for seq in range(1, LINES):
            event = queued if seq == 1 else RunStarted() if seq == 2 else Text(f"{seq} " + "x" * 2000)
            if len(data) > PART:
                (folder / f"session.{part}.jsonl").write_bytes(data)
                part += 1
                data.clear()
            if not data:
                data += SegmentHeader(id=SESSION, part=part, created=1.0).to_line()
            data += to_line(EventRecord(origin, seq, float(seq), event))
    (folder / "session.jsonl").write_bytes(data)
    return layout


def bytes_read(work: Callable[[], Any]) -> tuple[Any, int]:
    def count() -> int:
        return int(READS.read_text().split()[1])

    before = count()
    result = work()
    return result, count() - before


def test_fixture_session_has_50_megabytes(layout):
    sizes = [path.stat().st_size for path in layout.session(SESSION).iterdir()]
    assert len(sizes) == 4
    assert sum(sizes) > 50_000_000


def test_tail_of_a_large_session_reads_a_few_blocks(layout):
    events, read = bytes_read(lambda: read_last_events(layout.session(SESSION), SESSION, 20))
    assert [event_record.seq for event_record in events] == list(range(LINES - 20, LINES))
    assert read < 500_000


def test_summary_of_a_large_session_reads_head_and_tail_only(layout):
    found, read = bytes_read(lambda: find_summary(layout, layout.session(SESSION), lambda _: True))
    assert found.summary.runs == 2
    assert found.summary.latest.run == RUN
    assert found.summary.latest.state == SessionState.RUNNING
    assert found.summary.task == "task of b"
    assert found.summary.size_bytes > 50_000_000
    assert read < 500_000
