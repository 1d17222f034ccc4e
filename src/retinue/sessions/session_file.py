"""Open a session's file for a run, with its lease, and append the run's events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import Struct

from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.event_codec import EventRecord, to_line
from retinue.model.events import SYNCED_EVENTS, RunEnded
from retinue.sessions import storage_errors as faults
from retinue.sessions.conversation_log import RootLog
from retinue.sessions.flusher import RecordFlusher
from retinue.sessions.ids import RunLocation, RunPointer, write_run_location
from retinue.sessions.lease import SessionLease, acquire_lease
from retinue.sessions.paths import StateLayout
from retinue.sessions.reader import read_header
from retinue.sessions.record_format import NewerVersion, SegmentHeader
from retinue.sessions.recovery import InterruptedRun, reopen_record
from retinue.sessions.segments import session_segments
from retinue.sessions.store import LeaseOwner
from retinue.sessions.summary import SessionFacts, read_session_facts
from retinue.sessions.writer import PendingLine, RecordWriter, UnsyncedFiles, WriterLimits


class OpenSession(Struct, frozen=True, kw_only=True):
    """A session ready for one more run."""

    lease: SessionLease | None
    writer: RecordWriter
    number: int
    """Of the run, from 1."""
    interrupted: InterruptedRun | None = None
    """The end that the run before was missing."""


def create_session(layout: StateLayout, limits: WriterLimits, owner: LeaseOwner) -> OpenSession | None:
    """A new session; None while another holds its lease. Where it cannot be written, the writer's fault says so."""
    lease: SessionLease | None = None
    # Nobody else knows the id: where no lease can be taken, only the news of a crash is less exact.
    with contextlib.suppress(OSError):
        lease = acquire_lease(layout.lease(owner.session), owner)
        if lease is None:
            return None
    writer = RecordWriter(
        layout.session(owner.session), SegmentHeader(id=owner.session, created=owner.started), limits
    )
    writer.open()
    return OpenSession(lease=lease, writer=writer, number=1)


def resume_session(
    layout: StateLayout, limits: WriterLimits, owner: LeaseOwner, clock: Callable[[], float]
) -> OpenSession | None:
    """A session to be continued, mended where its last owner died; None while another holds its lease.

    Raises:
        Refused: `session_not_found` or `storage`.
    """
    with faults.raise_storage_errors(f"Session {owner.session}"):
        _read_known_header(layout.session(owner.session), owner.session)
        lease = acquire_lease(layout.lease(owner.session), owner)
        if lease is None:
            return None
        try:
            return _repair_session(layout, limits, owner.session, lease, clock())
        except BaseException:
            lease.abandon()
            raise


def _repair_session(
    layout: StateLayout, limits: WriterLimits, session: str, lease: SessionLease, now: float
) -> OpenSession:
    folder = layout.session(session)
    # Looked at again under the lease: it may have been pruned since.
    head = _read_known_header(folder, session)
    facts = read_session_facts(layout, folder)
    if not isinstance(facts, SessionFacts):
        raise RefusedError(_not_found_failure(session, folder))
    writer, interrupted = reopen_record(folder, head, limits, now)
    return OpenSession(lease=lease, writer=writer, number=facts.number + 1, interrupted=interrupted)


def _read_known_header(folder: Path, session: str) -> SegmentHeader:
    head = None if folder.is_symlink() else read_header(session_segments(folder))
    if isinstance(head, NewerVersion):
        raise RefusedError(faults.too_new_failure(session, head))
    if head is None or head.id != session:
        raise RefusedError(_not_found_failure(session, folder))
    return head


def _not_found_failure(session: str, folder: Path) -> Failure:
    message = (
        f"Session {session} was not found in {folder.parent}. It may have been pruned, or the id is not right: "
        f"`retinue sessions list` shows those that exist."
    )
    return Failure(ErrorCode.SESSION_NOT_FOUND, message, detail={"session": session})


RELEASE_TIMEOUT = 5.0
"""Seconds a release waits for a disk that does not answer."""


class FileRecord:
    """A run's record in files. All but the syncing itself happens on the event loop's thread."""

    def __init__(
        self,
        *,
        layout: StateLayout,
        claim: RunPointer,
        opened: OpenSession,
        log: RootLog,
        flusher: RecordFlusher,
        on_closed: Callable[[], None],
        unsaved: Callable[[list[bytes]], None],
    ) -> None:
        self._layout = layout
        self._claim = claim
        self._number = opened.number
        self._lease = opened.lease
        self._writer = opened.writer
        self._log = log
        self._flusher = flusher
        self._on_closed = on_closed
        self._unsaved = unsaved
        self._is_located = opened.number == 1
        self._is_syncing = False
        self._has_begun = False
        self._has_ended = False
        self._is_released = False
        self._is_closed = False
        self._missed_some = False

    @property
    def file(self) -> str | None:
        nothing_written = self._writer.fault and not self._writer.last_position
        return None if nothing_written else str(self._writer.path)

    @property
    def fault(self) -> Failure | None:
        return faults.closed_failure(self._writer.path) if self._missed_some else self._writer.fault

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

    def append(self, stamped: EventRecord) -> None:
        if self._is_closed:
            # Without the lease the file may be another's by now.
            self._missed_some = True
            return
        data = to_line(stamped)
        is_transition = isinstance(stamped.event, SYNCED_EVENTS)
        self._writer.write(PendingLine(data, stamped.seq, is_transition))
        self._log.append(stamped, data)
        self._has_begun = True
        if is_transition:
            self._has_ended = isinstance(stamped.event, RunEnded)
        else:
            # Whoever writes a transition syncs it; nobody waits for a stream event.
            self._flusher.schedule(self, self._writer.unsynced_lines)

    async def sync(self) -> None:
        if self._is_closed:
            await anyio.lowlevel.checkpoint()
            return
        self._log.flush()
        if self._writer.is_behind:
            self._writer.retry()
        if not self._is_located and self._writer.last_position:
            self._is_located = True
            write_run_location(self._layout, self._claim, RunLocation(self._number, self._writer.last_position))
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
        """Closes the record if all of it could be written; False while some still waits."""
        if self._is_closed:
            return True
        if self._is_syncing or self._writer.is_behind or self._writer.has_unsynced:
            with anyio.move_on_after(RELEASE_TIMEOUT, shield=True):
                await self.sync()
        if not self._writer.is_behind:
            self.close()
        return not self._writer.is_behind

    def hand_over(self) -> OpenSession:
        """Pass the session with all that waits to be written on to the record of its next run."""
        self._flusher.stop_trying(self)
        self._is_closed = True
        self._on_closed()
        return OpenSession(lease=self._lease, writer=self._writer, number=self._number + 1)

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
        self._on_closed()

    def take_unsynced(self) -> UnsyncedFiles | None:
        self._log.flush()
        work = self._writer.take_unsynced()
        self._is_syncing = work is not None
        return work

    def mark_synced(self, work: UnsyncedFiles) -> None:
        self._is_syncing = False
        self._writer.mark_synced(work)
