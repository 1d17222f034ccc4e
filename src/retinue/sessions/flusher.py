"""Record active runs in files and make the records durable in groups: all share one call in a worker thread.

A thousand runs that sync at once must not cost a thousand calls, and stream events that nobody waits for still reach
the disk within 50 ms or 100 events. Lines that a full disk refused are retried until they are written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import anyio
from anyio import CapacityLimiter

from retinue.model.errors import Failure
from retinue.model.event_codec import EventRecord, to_line
from retinue.model.events import SYNCED_EVENTS, RunEnded
from retinue.sessions import storage_errors as faults
from retinue.sessions.conversation_log import RootLog
from retinue.sessions.paths import RunLocation, RunPointer, StateLayout, write_run_location
from retinue.sessions.recovery import OpenSession
from retinue.sessions.writer import PendingLine, UnsyncedFiles, fsync_files

RELEASE_TIMEOUT = 5.0
"""Seconds a release waits for a disk that does not respond."""
FLUSH_DELAY = 0.05
"""Seconds until a stream event reaches the disk."""
MAX_UNSYNCED_LINES = 100
"""Events of one record after which it is synced at once."""
RETRY_INTERVAL = 1.0
"""Seconds between two attempts to finish a record that the disk refused."""
MAX_LATE = 256
"""Released records that are retried, each with open files; beyond that the oldest is given up."""
MAX_LATE_BYTES = 64 * 2**20
"""Bytes of the lines that wait in released records."""
_THREADS = 4
"""File systems merge syncs that come at the same time; more threads gain nothing."""
_MIN_PARALLEL_RECORDS = 8
"""Fewer records than this are synced by one thread."""


class SyncableRecord(Protocol):
    """A record as the flusher sees it, always on the event loop's thread."""

    def take_unsynced(self) -> UnsyncedFiles | None: ...

    def mark_synced(self, work: UnsyncedFiles) -> None: ...

    @property
    def waiting_bytes(self) -> int: ...

    async def finish(self) -> bool: ...

    def close(self) -> None: ...


class RecordFlusher:
    """Syncs the records of one event loop while `run` is running."""

    def __init__(self) -> None:
        self._requested: dict[SyncableRecord, None] = {}
        self._dirty: dict[SyncableRecord, None] = {}
        self._retrying: dict[SyncableRecord, None] = {}
        self._has_retries = anyio.Event()
        self._round_finished = anyio.Event()
        self._wake = anyio.Event()
        self._dirtied = anyio.Event()
        self._is_full = anyio.Event()
        self._threads = CapacityLimiter(_THREADS)
        self._scope = anyio.CancelScope(shield=True)
        self._is_stopped = False
        self._has_lost_tasks = False
        """True after asyncio itself cancelled the tasks, as `asyncio.run` does with all tasks at its end."""

    async def sync(self, record: SyncableRecord) -> None:
        """Return when everything written to the record before the call is durable, or its fault is known.

        After `stop` it returns at once.
        """
        if self._is_stopped:
            await anyio.lowlevel.checkpoint()
            return
        if self._has_lost_tasks:
            self._sync_now([record])
            return
        self._requested[record] = None
        self._wake.set()
        await self._round_finished.wait()

    def schedule(self, record: SyncableRecord, lines: int) -> None:
        """Sync the record soon; at once if it has many unsynced lines."""
        if record not in self._dirty:
            self._dirty[record] = None
            self._dirtied.set()
        if lines >= MAX_UNSYNCED_LINES:
            self._is_full.set()

    def retry_later(self, record: SyncableRecord) -> None:
        """Finish a released record as soon as the disk accepts its lines."""
        self._retrying[record] = None
        self._has_retries.set()
        waiting = sum(late.waiting_bytes for late in self._retrying)
        while self._retrying and (len(self._retrying) > MAX_LATE or waiting > MAX_LATE_BYTES):
            oldest = next(iter(self._retrying))
            del self._retrying[oldest]
            waiting -= oldest.waiting_bytes
            oldest.close()

    def stop_retrying(self, record: SyncableRecord) -> None:
        self._retrying.pop(record, None)

    async def run(self) -> None:
        """Sync records until `stop`. Shielded: runs that are being cancelled still have to save their end."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._flush)
                    tasks.start_soon(self._flush_scheduled)
                    tasks.start_soon(self._retry)
        finally:
            if not self._is_stopped:
                self._has_lost_tasks = True
                self._sync_now([*self._requested, *self._dirty])
                self._round_finished.set()

    def _sync_now(self, records: Iterable[SyncableRecord]) -> None:
        """Sync records in the event loop's own thread: no task is left to do so, and few runs end this way."""
        for record in records:
            if unsynced := record.take_unsynced():
                fsync_files([unsynced])
                record.mark_synced(unsynced)

    def stop(self) -> None:
        self._is_stopped = True
        self._round_finished.set()
        self._scope.cancel()

    async def _flush(self) -> None:
        while True:
            await self._wake.wait()
            await anyio.lowlevel.checkpoint()  # other runs that are ready to sync join this round
            # A record that requests a sync from here on belongs to the next round: this one may miss its last lines.
            finished, self._round_finished, self._wake = self._round_finished, anyio.Event(), anyio.Event()
            records, self._requested = self._requested, {}
            work = [(record, unsynced) for record in records if (unsynced := record.take_unsynced())]
            try:
                await self._fsync([unsynced for _, unsynced in work])
                for record, unsynced in work:
                    record.mark_synced(unsynced)
            finally:
                finished.set()

    async def _flush_scheduled(self) -> None:
        while True:
            await self._dirtied.wait()
            with anyio.move_on_after(FLUSH_DELAY):
                await self._is_full.wait()
            self._dirtied, self._is_full = anyio.Event(), anyio.Event()
            dirty, self._dirty = self._dirty, {}
            self._requested |= dirty
            self._wake.set()

    async def _retry(self) -> None:
        while True:
            await self._has_retries.wait()
            await anyio.sleep(RETRY_INTERVAL)
            while record := next(iter(self._retrying), None):
                is_finished, is_wanted = await record.finish(), record in self._retrying
                self._retrying.pop(record, None)
                if not is_finished:
                    if is_wanted:
                        self._retrying[record] = None  # moved to the end, so that it delays no other record
                    break  # the disk still refuses: retry later
            if not self._retrying:
                self._has_retries = anyio.Event()

    async def _fsync(self, work: Sequence[UnsyncedFiles]) -> None:
        if not work:
            return
        if len(work) < _MIN_PARALLEL_RECORDS:
            await self._in_thread(work)
            return
        async with anyio.create_task_group() as threads:
            for i in range(_THREADS):
                threads.start_soon(self._in_thread, work[i::_THREADS])

    async def _in_thread(self, work: Sequence[UnsyncedFiles]) -> None:
        await anyio.to_thread.run_sync(fsync_files, work, limiter=self._threads)


class FileRecord:
    """A run's record in files. Everything but the sync itself happens in the event loop's thread."""

    def __init__(
        self,
        *,
        layout: StateLayout,
        pointer: RunPointer,
        opened: OpenSession,
        log: RootLog,
        flusher: RecordFlusher,
        on_closed: Callable[[], None],
        keep_unsaved: Callable[[list[bytes]], None],
    ) -> None:
        self._layout = layout
        self._pointer = pointer
        self._number = opened.number
        self._lease = opened.lease
        self._writer = opened.writer
        self._log = log
        self._flusher = flusher
        self._on_closed = on_closed
        self._keep_unsaved = keep_unsaved
        self._is_located = opened.number == 1
        self._has_new_claim = opened.number > 1
        self._unsynced_paths: list[Path] = []
        self._is_syncing = False
        self._has_events = False
        self._has_ended = False
        self._is_released = False
        self._is_closed = False
        self._missed_some = False

    @property
    def file(self) -> str | None:
        nothing_written = self._writer.fault and not self._writer.first_position
        return None if nothing_written else str(self._writer.path)

    @property
    def fault(self) -> Failure | None:
        return faults.closed_failure(self._writer.path) if self._missed_some else self._writer.fault

    @property
    def is_late(self) -> bool:
        """True while the run has ended and some of its lines still wait to be written."""
        return self._is_released and self._writer.is_behind

    @property
    def waiting(self) -> list[bytes]:
        """Lines that wait to be written."""
        return self._writer.waiting

    @property
    def waiting_bytes(self) -> int:
        return self._writer.waiting_bytes

    def append(self, record: EventRecord) -> None:
        if self._is_closed:
            # Without the lease another process may own the file by now.
            self._missed_some = True
            return
        data = to_line(record)
        is_transition = isinstance(record.event, SYNCED_EVENTS)
        self._writer.write(PendingLine(data, record.seq, is_transition))
        self._log.append(record, data)
        self._has_events = True
        if is_transition:
            self._has_ended = isinstance(record.event, RunEnded)
        else:
            # The caller syncs after a transition; nobody waits for a stream event.
            self._flusher.schedule(self, self._writer.unsynced_lines)

    async def sync(self) -> None:
        if self._is_closed:
            await anyio.lowlevel.checkpoint()
            return
        self._log.flush()
        if self._writer.is_behind:
            self._writer.retry()
        if not self._is_located and self._writer.first_position:
            self._is_located = True
            write_run_location(self._layout, self._pointer, RunLocation(self._number, self._writer.first_position))
        if self._is_syncing or self._writer.has_unsynced:
            await self._flusher.sync(self)
        else:
            await anyio.lowlevel.checkpoint()

    async def release(self) -> None:
        if self._is_released:
            return
        self._is_released = True
        if not await self.finish():
            self._flusher.retry_later(self)

    async def finish(self) -> bool:
        """Close the record if all of it could be written; return False while lines still wait."""
        if self._is_closed:
            return True
        if self._is_syncing or self._writer.is_behind or self._writer.has_unsynced:
            with anyio.move_on_after(RELEASE_TIMEOUT, shield=True):
                await self.sync()
        if not self._writer.is_behind:
            self.close()
        return not self._writer.is_behind

    def hand_over(self) -> OpenSession:
        """Hand the session and its waiting lines to the record of the next run."""
        self._flusher.stop_retrying(self)
        self._is_closed = True
        self._on_closed()
        return OpenSession(lease=self._lease, writer=self._writer, number=self._number + 1)

    def close(self) -> None:
        """Release the session, also if lines are not written."""
        if self._is_closed:
            return
        self._is_closed = self._is_released = True
        if self._writer.is_behind:
            self._keep_unsaved(self._writer.waiting)
        if self._lease is not None:
            if self._writer.is_behind or (self._has_events and not self._has_ended):
                self._lease.abandon()
            else:
                self._lease.release()
        self._writer.close()
        self._on_closed()

    def take_unsynced(self) -> UnsyncedFiles | None:
        self._log.flush()
        work = self._writer.take_unsynced()
        if work is None:
            return None
        self._is_syncing = True
        work.paths = self._take_unsynced_paths()
        return work

    def _take_unsynced_paths(self) -> list[Path]:
        """Return what makes the run findable by its id after a power cut, beside its own files."""
        paths, self._unsynced_paths = self._unsynced_paths + self._layout.changed_folders, []
        self._layout.changed_folders = []
        claim = self._layout.session(self._pointer.run)
        if self._has_new_claim and os.path.exists(claim):  # noqa: PTH110 - Path.exists raises where nothing is readable
            paths += [claim, claim.parent]
        self._has_new_claim = False
        return paths

    def mark_synced(self, work: UnsyncedFiles) -> None:
        self._is_syncing = False
        if work.unreached:
            self._unsynced_paths = work.paths
        self._writer.mark_synced(work)
