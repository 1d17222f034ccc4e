"""Makes records durable in groups: all that wait share one trip to a worker thread.

A thousand runs that want to be synced at once must not mean a thousand trips, and stream events nobody waits for
still reach the disk within 50 ms or 100 events. What a full disk refused is tried again until it takes it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import anyio
from anyio import CapacityLimiter

from retinue.sessions.paths import open_folder, sync_file
from retinue.sessions.writer import Unsynced

SETTLE = 0.05
"""Seconds within which a stream event reaches the disk."""
PLENTY = 100
"""Events of one record that do not wait that long."""
RETRY = 1.0
"""Seconds between two tries to finish a record that the disk refused."""
MAX_LATE = 256
"""Released records that are tried again, each with open files; the oldest is given up."""
MAX_LATE_BYTES = 64 * 2**20
"""Of the lines that wait in them."""
_THREADS = 4
"""File systems merge syncs that come at the same time; more threads gain nothing."""
_CROWD = 8
"""Fewer records than this are done by one thread."""
_NOT_SYNCABLE = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}


class Syncable(Protocol):
    """A record as the flusher sees it, always on the event loop's thread."""

    def unsynced(self) -> Unsynced | None: ...

    def synced(self, work: Unsynced) -> None: ...

    @property
    def waiting_bytes(self) -> int: ...

    async def finish(self) -> bool: ...

    def close(self) -> None: ...


class Flusher:
    """Belongs to one event loop; works while `run` does."""

    def __init__(self) -> None:
        self._wanted: dict[Syncable, None] = {}
        self._dirty: dict[Syncable, None] = {}
        self._late: dict[Syncable, None] = {}
        self._is_late = anyio.Event()
        self._round = anyio.Event()
        self._wake = anyio.Event()
        self._dirtied = anyio.Event()
        self._plenty = anyio.Event()
        self._threads = CapacityLimiter(_THREADS)
        self._scope = anyio.CancelScope(shield=True)
        self._is_stopped = False

    async def sync(self, record: Syncable) -> None:
        """Returns when everything written to the record before the call is durable, or its fault is known.

        From `stop` on it returns at once: there is nobody left to wait for.
        """
        if self._is_stopped:
            await anyio.lowlevel.checkpoint()
            return
        self._wanted[record] = None
        self._wake.set()
        await self._round.wait()

    def settle(self, record: Syncable, lines: int) -> None:
        """Syncs the record soon; at once if it has plenty of unsynced lines."""
        if record not in self._dirty:
            self._dirty[record] = None
            self._dirtied.set()
        if lines >= PLENTY:
            self._plenty.set()

    def keep_trying(self, record: Syncable) -> None:
        """Finishes a released record as soon as the disk takes what it holds."""
        self._late[record] = None
        self._is_late.set()
        waiting = sum(late.waiting_bytes for late in self._late)
        while self._late and (len(self._late) > MAX_LATE or waiting > MAX_LATE_BYTES):
            oldest = next(iter(self._late))
            del self._late[oldest]
            waiting -= oldest.waiting_bytes
            oldest.close()

    def stop_trying(self, record: Syncable) -> None:
        self._late.pop(record, None)

    async def run(self) -> None:
        """Works until `stop`. Shielded: runs that are being cancelled still have their end to save."""
        with self._scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._flush)
                tasks.start_soon(self._settle)
                tasks.start_soon(self._insist)

    def stop(self) -> None:
        self._is_stopped = True
        self._round.set()
        self._scope.cancel()

    async def _flush(self) -> None:
        while True:
            await self._wake.wait()
            # A record that asks from here on is served by the next round: what it wrote may come too late for this.
            finished, self._round, self._wake = self._round, anyio.Event(), anyio.Event()
            records, self._wanted = self._wanted, {}
            work = [(record, unsynced) for record in records if (unsynced := record.unsynced())]
            try:
                await self._make_durable([unsynced for _, unsynced in work])
                for record, unsynced in work:
                    record.synced(unsynced)
            finally:
                finished.set()

    async def _settle(self) -> None:
        while True:
            await self._dirtied.wait()
            with anyio.move_on_after(SETTLE):
                await self._plenty.wait()
            self._dirtied, self._plenty = anyio.Event(), anyio.Event()
            dirty, self._dirty = self._dirty, {}
            self._wanted |= dirty
            self._wake.set()

    async def _insist(self) -> None:
        while True:
            await self._is_late.wait()
            await anyio.sleep(RETRY)
            while record := next(iter(self._late), None):
                is_finished, is_wanted = await record.finish(), record in self._late
                self._late.pop(record, None)
                if not is_finished:
                    if is_wanted:
                        self._late[record] = None  # last in line, so that one bad record holds up no other
                    break  # the disk still refuses: try again later
            if not self._late:
                self._is_late = anyio.Event()

    async def _make_durable(self, work: Sequence[Unsynced]) -> None:
        if not work:
            return
        if len(work) < _CROWD:
            await self._in_thread(work)
            return
        async with anyio.create_task_group() as threads:
            for i in range(_THREADS):
                threads.start_soon(self._in_thread, work[i::_THREADS])

    async def _in_thread(self, work: Sequence[Unsynced]) -> None:
        await anyio.to_thread.run_sync(make_durable, work, limiter=self._threads)


def make_durable(work: Sequence[Unsynced]) -> None:
    """Syncs files and folders, each folder once, and notes on each piece of work what went wrong."""
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


def _sync_folder(folder: Path, unsynced: Unsynced) -> bool:
    """Whether the folder could be reached at all."""
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
        # Some file systems cannot sync some things: then written is as durable as it gets.
        if error.errno not in _NOT_SYNCABLE:
            raise
