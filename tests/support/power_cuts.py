"""Record sessions of every kind, and check what the store reads after a power cut."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct
from tests.support.recorded_disk import DiskRecorder, DiskState, History, Sync

from retinue.model.event_codec import EventRecord, to_line
from retinue.model.events import RunEnded, Text
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.retention import RESULT_EVENTS
from retinue.sessions.store import INTERRUPTED, SessionState
from retinue.sessions.writer import WriterLimits
from retinue.testing.stores import StoreRecorder, read_all, record_run, run_spec

STATE = "home/state/retinue"
"""The state folder below the recorded one; its parents do not exist at first, as on a new machine."""
SMALL = WriterLimits(part_bytes=1500, log_bytes=3000, log_files=3)
"""Records and logs rotate after a few events."""


class Durable(Struct, frozen=True):
    """The store reported the events of a run up to this one as durable."""

    session: str
    run: str
    seq: int


class Pruning(Struct, frozen=True):
    """From here on the details of every session, or all of it, may be gone."""

    keep_results: bool


class RecordedSessions(Struct, frozen=True):
    """What happened on the disk, and every event that was written."""

    history: History
    written: dict[tuple[str, int], EventRecord]
    """By run and sequence number."""


class SessionsScript:
    """Real sessions of every kind on a recorded disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.disk = DiskRecorder(folder)
        self.written: dict[tuple[str, int], EventRecord] = {}
        self._state = folder / STATE

    async def play(self) -> RecordedSessions:
        with self.disk:
            await self._record_runs()
            torn = await self._die_within_a_run()
            await self._recover(torn)
            await self._prune(keep_results=True)
            await self._record_runs()
            await self._prune(keep_results=False)
        self.disk.assert_complete()
        return RecordedSessions(self.disk.history, self.written)

    async def _record_runs(self) -> None:
        """Record a session of three runs that rotates its segments, and four sessions at once."""
        async with JsonlStore(self._state, limits=SMALL) as store:
            session = store.claim()
            for number in range(3):
                await self._record_run(store, session, store.claim(session) if number else None)
            async with anyio.create_task_group() as runs:
                for number in range(4):
                    runs.start_soon(partial(self._record_run, store, store.claim(), root=f"root-{number % 2}"))

    async def _record_run(
        self, store: JsonlStore, session: str, run: str | None = None, root: str = "root-1"
    ) -> None:
        spec = run_spec(session, run, root=root)
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        self._note(recorder)
        await record.sync()
        self._acknowledge(recorder)
        for number in range(4):
            recorder.record(Text(f"{number} " + "x" * 200))
            self._note(recorder)
            await anyio.lowlevel.checkpoint()
        recorder.record_end()
        self._note(recorder)
        await record.sync()
        assert record.fault is None
        self._acknowledge(recorder)
        await record.release()

    async def _die_within_a_run(self) -> Durable:
        """Leave a run without its end and with a torn line, as a killed process does."""
        async with JsonlStore(self._state, limits=SMALL) as store:
            spec = run_spec(store.claim())
            record = await store.open_record(spec)
            recorder = StoreRecorder(record, spec)
            recorder.record_start()
            self._note(recorder)
            await record.sync()
            recorder.record(Text("half of it"))
            self._note(recorder)
            record.close()
        line = to_line(recorder.events[-1])
        descriptor = os.open(self._state / "sessions" / spec.session[:8] / "session.jsonl", os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, line[: len(line) // 2])
        os.close(descriptor)
        durable = Durable(spec.session, spec.run, 2)
        self.disk.acknowledge(durable)
        return durable

    async def _recover(self, torn: Durable) -> None:
        store = JsonlStore(self._state, limits=SMALL)
        (recovered,) = await store.recover()
        assert (recovered.session, recovered.latest.failure) == (torn.session, INTERRUPTED)
        (*_, ended) = await read_all(store, torn.session)
        self.written[ended.origin.run, ended.seq] = ended
        self.disk.acknowledge(Durable(torn.session, torn.run, ended.seq))
        async with JsonlStore(self._state, limits=SMALL) as opened:
            await self._record_run(opened, torn.session, opened.claim(torn.session))

    async def _prune(self, *, keep_results: bool) -> None:
        self.disk.acknowledge(Pruning(keep_results))
        report = await JsonlStore(self._state, limits=SMALL).prune(older_than=-10.0, keep_results=keep_results)
        assert report.skipped == 0

    def _note(self, recorder: StoreRecorder) -> None:
        for record in recorder.events:
            self.written[record.origin.run, record.seq] = record

    def _acknowledge(self, recorder: StoreRecorder) -> None:
        last = recorder.events[-1]
        self.disk.acknowledge(Durable(last.origin.session, last.origin.run, last.seq))


def without_syncs(history: History) -> History:
    """Return the same history of a store that syncs nothing: a control, which the check must notice."""
    return History([each for each in history.operations if not isinstance(each, Sync)], history.folders)


async def find_losses(root: Path, disk: DiskState, written: dict[tuple[str, int], EventRecord]) -> list[str]:
    """Open the store on what a power cut left; return what is lost, made up or unusable."""
    disk.write_to(root)
    store = JsonlStore(root / STATE, limits=SMALL)
    await store.recover()
    read: Counter[tuple[str, int]] = Counter()
    ends: Counter[str] = Counter()
    losses: list[str] = []
    summaries = await store.list()
    for summary in summaries:
        if summary.latest.state not in {SessionState.COMPLETED, SessionState.ERROR}:
            losses.append(f"session {summary.session} seems to be running")
        for record in await read_all(store, summary.session):
            read[record.origin.run, record.seq] += 1
            ends[record.origin.run] += isinstance(record.event, RunEnded)
            is_recovery = isinstance(record.event, RunEnded) and record.event.failure == INTERRUPTED
            if not is_recovery and written.get((record.origin.run, record.seq)) != record:
                losses.append(f"event {record.seq} of run {record.origin.run} was never written like this")
    losses += [f"event {seq} of run {run} is there {times} times" for (run, seq), times in read.items() if times > 1]
    losses += [f"run {run} has {count} ends" for run, count in ends.items() if count > 1]
    losses += await _find_missing(store, disk, written, read)
    async with store:
        for summary in summaries[:1]:
            added = await record_run(store, run_spec(summary.session, store.claim(summary.session)), Text("again"))
            if (await read_all(store, summary.session))[-len(added) :] != added:
                losses.append(f"session {summary.session} cannot be continued")
        fresh = store.claim()
        if await record_run(store, run_spec(fresh)) != await read_all(store, fresh):
            losses.append("a new session is not read back")
    return losses


async def _find_missing(
    store: JsonlStore,
    disk: DiskState,
    written: dict[tuple[str, int], EventRecord],
    read: Counter[tuple[str, int]],
) -> list[str]:
    losses: list[str] = []
    is_thinned = False
    durable: list[Durable] = []
    for value in disk.acknowledged:
        match value:
            case Durable():
                durable.append(value)
            case Pruning(keep_results=True):
                is_thinned = True
            case Pruning():
                durable = []
    for each in durable:
        for seq in range(1, each.seq + 1):
            event = written[each.run, seq].event
            if (isinstance(event, RESULT_EVENTS) or not is_thinned) and not read[each.run, seq]:
                losses.append(f"event {seq} of run {each.run} was durable and is lost")
        if await store.find(each.run) != each.session:
            losses.append(f"run {each.run} is not found by its id")
    return losses
