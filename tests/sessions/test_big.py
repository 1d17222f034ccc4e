"""A session of 50 MB: its end and its summary cost what those of a small one do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue.events import Origin, RunQueued, RunStarted, Stamped, Text, to_line
from retinue.sessions.claims import Claim, Place, place_run
from retinue.sessions.framing import Header
from retinue.sessions.parts import Position
from retinue.sessions.paths import Layout
from retinue.sessions.reading import last_events
from retinue.sessions.store import State
from retinue.sessions.summary import find_summary
from retinue.testing.stores import run_spec

SESSION, RUN = "a" * 32, "b" * 32
READS = Path("/proc/self/io")
PART = 16 * 2**20
LINES = 12_000

pytestmark = pytest.mark.skipif(not READS.exists(), reason="counts what the system read")


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Two runs of 25 MB in four parts, the second without an end."""
    layout = Layout(tmp_path_factory.mktemp("big"))
    folder = layout.session(SESSION)
    folder.mkdir(parents=True)
    data = bytearray()
    part = 1
    for run in (SESSION, RUN):
        spec = run_spec(SESSION, None if run == SESSION else run, task=f"task of {run[0]}")
        origin = Origin.of(spec)
        queued = RunQueued(name="n", agent="explorer", task=spec.task, cwd="/", surface="single")
        if run == RUN:
            place_run(layout, Claim(SESSION, RUN), Place(2, Position(part, len(data))))
        for seq in range(1, LINES):
            event = queued if seq == 1 else RunStarted() if seq == 2 else Text(f"{seq} " + "x" * 2000)
            if len(data) > PART:
                (folder / f"session.{part}.jsonl").write_bytes(data)
                part += 1
                data.clear()
            if not data:
                data += Header(id=SESSION, part=part, created=1.0).line()
            data += to_line(Stamped(origin, seq, float(seq), event))
    (folder / "session.jsonl").write_bytes(data)
    return layout


def bytes_read(work: Callable[[], Any]) -> tuple[Any, int]:
    def count() -> int:
        return int(READS.read_text().split()[1])

    before = count()
    result = work()
    return result, count() - before


def test_it_is_big(layout):
    sizes = [path.stat().st_size for path in layout.session(SESSION).iterdir()]
    assert len(sizes) == 4
    assert sum(sizes) > 50_000_000


def test_the_tail_reads_a_few_blocks(layout):
    events, read = bytes_read(lambda: last_events(layout.session(SESSION), SESSION, 20))
    assert [stamped.seq for stamped in events] == list(range(LINES - 20, LINES))
    assert read < 500_000


def test_the_summary_reads_head_and_tail(layout):
    found, read = bytes_read(lambda: find_summary(layout, layout.session(SESSION), lambda _: True))
    assert found.summary.runs == 2
    assert found.summary.latest.run == RUN
    assert found.summary.latest.state == State.RUNNING
    assert found.summary.task == "task of b"
    assert found.summary.size_bytes > 50_000_000
    assert read < 500_000
