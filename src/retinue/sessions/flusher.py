"""Make records durable in groups: all waiting records share one call in a worker thread.

A thousand runs that sync at once must not cost a thousand calls, and stream events that nobody waits for still reach
the disk within 50 ms or 100 events. Lines that a full disk refused are retried until they are written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import anyio
from anyio import CapacityLimiter

from retinue.sessions.paths import open_folder, sync_file
from retinue.sessions.writer import UnsyncedFiles

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
_NOT_SYNCABLE = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}


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


def fsync_files(work: Sequence[UnsyncedFiles]) -> None:
    """Sync files and folders, each folder once, and set the error of each piece of work that failed."""
    synced: set[Path] = set()
    for unsynced in work:
        try:
            for descriptor in (*unsynced.closed, *unsynced.files):
                _sync(sync_file, descriptor)
            for folder in unsynced.folders:
                if folder not in synced and _sync_folder(folder, unsynced):
                    synced.add(folder)
        except OSError as error:
            unsynced.error = error
        finally:
            for descriptor in unsynced.closed:
                os.close(descriptor)


def _sync_folder(folder: Path, unsynced: UnsyncedFiles) -> bool:
    """Sync a folder; return False if it could not be opened."""
    try:
        descriptor = open_folder(folder)
    except OSError as error:
        unsynced.unreached = error
        return False
    try:
        _sync(os.fsync, descriptor)
    finally:
        os.close(descriptor)
    return True


def _sync(sync: Callable[[int], None], descriptor: int) -> None:
    try:
        sync(descriptor)
    except OSError as error:
        # Some file systems cannot sync some files: then written is as durable as it gets.
        if error.errno not in _NOT_SYNCABLE:
            raise
