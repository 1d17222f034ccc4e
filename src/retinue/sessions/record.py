"""The record of one run while it goes on: its lease, its writer, and its share of the root's log."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from retinue.events import TRANSITIONS, RunEnded, Stamped, to_line
from retinue.sessions import faults
from retinue.sessions.claims import Claim, Place, place_run
from retinue.sessions.flusher import Flusher
from retinue.sessions.opening import Opened
from retinue.sessions.paths import Layout
from retinue.sessions.rotating import RootLog
from retinue.sessions.writer import Line, Unsynced
from retinue.types import Failure

RELEASE = 5.0
"""Seconds a release waits for a disk that does not answer."""


class FileRecord:
    """A run's record in files. All but the syncing itself happens on the event loop's thread."""

    def __init__(
        self,
        *,
        layout: Layout,
        claim: Claim,
        opened: Opened,
        log: RootLog,
        flusher: Flusher,
        closed: Callable[[], None],
        unsaved: Callable[[list[bytes]], None],
    ) -> None:
        self._layout = layout
        self._claim = claim
        self._number = opened.number
        self._lease = opened.lease
        self._writer = opened.writer
        self._log = log
        self._flusher = flusher
        self._closed = closed
        self._unsaved = unsaved
        self._is_placed = opened.number == 1
        self._is_syncing = False
        self._has_begun = False
        self._has_ended = False
        self._is_released = False
        self._is_closed = False
        self._missed_some = False

    @property
    def file(self) -> str | None:
        nothing_written = self._writer.fault and not self._writer.begins
        return None if nothing_written else str(self._writer.path)

    @property
    def fault(self) -> Failure | None:
        return faults.closed(self._writer.path) if self._missed_some else self._writer.fault

    @property
    def is_late(self) -> bool:
        """Whether its run has ended and some of it still waits to be written."""
        return self._is_released and self._writer.is_behind

    @property
    def waiting(self) -> list[bytes]:
        """The lines that wait to be written."""
        return self._writer.waiting

    @property
    def waiting_bytes(self) -> int:
        return self._writer.waiting_bytes

    def append(self, stamped: Stamped) -> None:
        if self._is_closed:
            # Without the lease the file may be another's by now.
            self._missed_some = True
            return
        data = to_line(stamped)
        is_transition = isinstance(stamped.event, TRANSITIONS)
        self._writer.write(Line(data, stamped.seq, is_transition))
        self._log.append(stamped, data)
        self._has_begun = True
        if is_transition:
            self._has_ended = isinstance(stamped.event, RunEnded)
        else:
            # Whoever writes a transition syncs it; nobody waits for a stream event.
            self._flusher.settle(self, self._writer.unsynced_lines)

    async def sync(self) -> None:
        if self._is_closed:
            await anyio.lowlevel.checkpoint()
            return
        self._log.flush()
        if self._writer.is_behind:
            self._writer.retry()
        if not self._is_placed and self._writer.begins:
            self._is_placed = True
            place_run(self._layout, self._claim, Place(self._number, self._writer.begins))
        if self._is_syncing or self._writer.has_unsynced:
            await self._flusher.sync(self)
        else:
            await anyio.lowlevel.checkpoint()

    async def release(self) -> None:
        if self._is_released:
            return
        self._is_released = True
        if not await self.finish():
            self._flusher.keep_trying(self)

    async def finish(self) -> bool:
        """Closes the record if all of it could be written; False while some still waits."""
        if self._is_closed:
            return True
        if self._is_syncing or self._writer.is_behind or self._writer.has_unsynced:
            with anyio.move_on_after(RELEASE, shield=True):
                await self.sync()
        if not self._writer.is_behind:
            self.close()
        return not self._writer.is_behind

    def hand_over(self) -> Opened:
        """Pass the session with all that waits to be written on to the record of its next run."""
        self._flusher.stop_trying(self)
        self._is_closed = True
        self._closed()
        return Opened(lease=self._lease, writer=self._writer, number=self._number + 1)

    def close(self) -> None:
        """Gives the session free, whatever is written."""
        if self._is_closed:
            return
        self._is_closed = self._is_released = True
        if self._writer.is_behind:
            self._unsaved(self._writer.waiting)
        if self._lease is not None:
            if self._writer.is_behind or (self._has_begun and not self._has_ended):
                self._lease.abandon()
            else:
                self._lease.release()
        self._writer.close()
        self._closed()

    def unsynced(self) -> Unsynced | None:
        self._log.flush()
        work = self._writer.unsynced()
        self._is_syncing = work is not None
        return work

    def synced(self, work: Unsynced) -> None:
        self._is_syncing = False
        self._writer.synced(work)
