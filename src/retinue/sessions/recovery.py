"""Open records for writing: create and resume sessions, and end the runs whose process is gone.

Recovery reads only the leases and the records of dead processes, so its cost is that of the damage.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.event_codec import EventRecord, to_line
from retinue.model.events import (
    AttemptStarted,
    Finalized,
    MessageEnded,
    RunEnded,
    RunQueued,
    RunStarted,
    Text,
    ToolCalled,
)
from retinue.model.results import AnswerStatus, ExecutionReport, Finalization, Usage, compute_exit_code
from retinue.sessions import storage_errors as faults
from retinue.sessions.lease import SessionLease, acquire_lease, adopt_lease
from retinue.sessions.paths import StateLayout, open_private
from retinue.sessions.segments import (
    NewerVersion,
    RecordDecoder,
    SegmentedFile,
    SegmentHeader,
    parse_segment_header,
    read_backwards,
)
from retinue.sessions.store import INTERRUPTED, LeaseOwner, SessionSummary
from retinue.sessions.writer import PendingLine, RecordWriter, WriterLimits, fsync_files

_SCAN_DELAY = 0.02
"""Seconds before a second check of leases that seemed held: other checks lock them for an instant, too."""
_MAX_TORN_BYTES = 2**20
"""Bytes kept of a torn record, for inspection."""


class InterruptedRun(Struct, frozen=True):
    """The end that recovery wrote for a run."""

    ended: EventRecord
    """Its `run_ended`."""
    vault: str | None
    """The vault whose log gets the event, too."""


class OpenSession(Struct, frozen=True, kw_only=True):
    """A session ready for one more run."""

    lease: SessionLease | None
    writer: RecordWriter
    number: int
    """The number of the run, from 1."""
    interrupted: InterruptedRun | None = None
    """The end that the previous run was missing."""


# -- opening a session -----------------------------------------------------------------------------


def create_session(layout: StateLayout, limits: WriterLimits, owner: LeaseOwner) -> OpenSession | None:
    """Create a session; return None while another process holds its lease.

    A session that cannot be written is created all the same: the fault of its writer gives the reason.
    """
    lease: SessionLease | None = None
    # Nobody else knows the id: without a lease only the report of a crash is less exact.
    with contextlib.suppress(OSError):
        lease = acquire_lease(layout.lease(owner.session), owner)
        if lease is None:
            return None
    header = SegmentHeader(id=owner.session, created=owner.started)
    writer = RecordWriter(layout.session(owner.session), header, limits)
    writer.open()
    return OpenSession(lease=lease, writer=writer, number=1)


def resume_session(
    layout: StateLayout, limits: WriterLimits, owner: LeaseOwner, clock: Callable[[], float]
) -> OpenSession | None:
    """Open an existing session, repaired if its last owner died; return None while its lease is held.

    Raises:
        RefusedError: `session_not_found` or `storage`.
    """
    folder, session = layout.session(owner.session), owner.session
    with faults.raise_storage_errors(f"Session {session}"):
        _read_known_header(folder, session)
        lease = acquire_lease(layout.lease(session), owner)
        if lease is None:
            return None
        try:
            # Read again under the lease: the session may have been pruned since.
            head = _read_known_header(folder, session)
            number = _count_runs(layout, folder, session) + 1
            writer, interrupted = _reopen_record(folder, head, limits, clock())
        except BaseException:
            lease.abandon()
            raise
        return OpenSession(lease=lease, writer=writer, number=number, interrupted=interrupted)


def _read_known_header(folder: Path, session: str) -> SegmentHeader:
    from retinue.sessions.reader import read_header

    head = None if folder.is_symlink() else read_header(SegmentedFile(folder))
    if isinstance(head, NewerVersion):
        raise RefusedError(faults.too_new_failure(session, head))
    if head is None or head.id != session:
        raise _session_not_found(session, folder)
    return head


def _count_runs(layout: StateLayout, folder: Path, session: str) -> int:
    from retinue.sessions.summary import read_summary

    summary = read_summary(layout, folder, lambda _: False)
    if not isinstance(summary, SessionSummary):
        raise _session_not_found(session, folder)
    return summary.runs


def _session_not_found(session: str, folder: Path) -> RefusedError:
    message = (
        f"Session {session} not found in {folder.parent}. The session may have been pruned, or the ID is incorrect: "
        "`retinue sessions list` shows the existing sessions."
    )
    return RefusedError(Failure(ErrorCode.SESSION_NOT_FOUND, message, detail={"session": session}))


# -- after a crash ---------------------------------------------------------------------------------


def recover_runs(layout: StateLayout, limits: WriterLimits, clock: Callable[[], float]) -> Iterator[InterruptedRun]:
    """End the runs whose process is gone, and yield the end of each once it is durable.

    Safe against a second process that does the same, and against being killed at any point: the end is written
    under the lease, and the lease is released only after it. A record that cannot be read now is left for the next
    recovery.
    """
    for path, lease in _adopt_orphans(layout.leases):
        try:
            ended = end_run(layout.sessions / path.name, limits, clock())
        except (OSError, RefusedError):
            lease.abandon()
            continue
        lease.release()
        if ended:
            yield ended


def _adopt_orphans(leases: Path) -> Iterator[tuple[Path, SessionLease]]:
    """Adopt and yield the leases that no process holds."""
    held: list[Path] = []
    with contextlib.suppress(OSError):
        held = sorted(leases.iterdir())
    for pause in (0.0, _SCAN_DELAY):
        if held:
            time.sleep(pause)
        paths, held = held, []
        for path in paths:
            if lease := adopt_lease(path):
                yield path, lease
            else:
                held.append(path)


def end_run(folder: Path, limits: WriterLimits, now: float) -> InterruptedRun | None:
    """End the last run of the session in a folder, if it has not ended. The caller holds its lease.

    Raises:
        OSError: the record cannot be read now.
        RefusedError: `storage`: the record cannot be written now, or has a newer format.
    """
    from retinue.sessions.reader import read_header

    head = read_header(SegmentedFile(folder))
    if head is None:
        return None
    if isinstance(head, NewerVersion):
        raise RefusedError(faults.too_new_failure(folder.name, head))
    writer, ended = _reopen_record(folder, head, limits, now)
    writer.close()
    return ended


def _reopen_record(
    folder: Path, head: SegmentHeader, limits: WriterLimits, now: float
) -> tuple[RecordWriter, InterruptedRun | None]:
    """Return a writer that continues a record, and the missing end of its last run, which is durable by then.

    A torn tail is cut off first. The caller holds the session's lease.

    Raises:
        OSError: the record cannot be repaired now.
        RefusedError: `storage`.
    """
    writer = RecordWriter(folder, head, limits, _repair_tail(folder))
    try:
        interrupted = _find_interruption(folder, head, now)
        if interrupted:
            _write_durably(writer, head, interrupted.ended)
    except BaseException:
        writer.close()
        raise
    return writer, interrupted


def _repair_tail(folder: Path) -> int | None:
    """Repair the end of the newest segment and return its size; None if rotation had not created it yet."""
    try:
        descriptor = open_private(SegmentedFile(folder).newest, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        start, tail = next(iter(read_backwards(file)))
        if not tail:
            return start
        if RecordDecoder().decode_event(tail) or isinstance(parse_segment_header(tail), SegmentHeader):
            os.write(descriptor, b"\n")  # all but the newline was written
            return start + len(tail) + 1
        _save_torn(folder, tail)
        os.ftruncate(descriptor, start)
        return start


def _save_torn(folder: Path, torn: bytes) -> None:
    from retinue.sessions.reader import TORN_FILE

    with contextlib.suppress(OSError):
        descriptor = open_private(folder / TORN_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, torn[:_MAX_TORN_BYTES] + b"\n")
        finally:
            os.close(descriptor)


def _write_durably(writer: RecordWriter, head: SegmentHeader, ended: EventRecord) -> None:
    writer.write(PendingLine(to_line(ended), ended.seq, is_required=True))
    if work := writer.take_unsynced():
        fsync_files([work])
        writer.mark_synced(work)
    if writer.fault:
        error = writer.error
        raise RefusedError(faults.not_continued_failure(head.id, error, writer.path) if error else writer.fault)


def _find_interruption(folder: Path, head: SegmentHeader, now: float) -> InterruptedRun | None:
    """Return the missing end of the last run with its partial results; None if it has ended or there is none."""
    from retinue.sessions.reader import read_record_backwards

    unfinished = _UnfinishedRun()
    decoder = RecordDecoder(head.id)
    for _, line in read_record_backwards(SegmentedFile(folder), head):
        for record in reversed(list(decoder.decode_events(line))):
            if unfinished.add_earlier(record):
                return unfinished.build_end(now)
    return unfinished.build_end(now)


class _UnfinishedRun:
    """Collects the partial results of a run, reading its events from the end."""

    def __init__(self) -> None:
        self._last: EventRecord | None = None
        self._has_ended = False
        self._started: float | None = None
        self._texts: list[str] = []
        self._texts_done = False
        self._usage = Usage()
        self._tools: Counter[str] = Counter()
        self._finalized: Finalization | None = None
        self._vault: str | None = None

    def add_earlier(self, record: EventRecord) -> bool:
        """Add the event before those already added; return True when the run has no more."""
        last = self._last = self._last or record
        if record.origin.run != last.origin.run:
            return True
        match record.event:
            case RunEnded():
                self._has_ended = True
            case RunQueued(vault=vault):
                self._vault = vault
            case RunStarted():
                self._started = record.time
            case Text(text) if text.strip() and not self._texts_done:
                self._texts.append(text)
            case MessageEnded(turn=turn):
                self._usage += turn
                self._texts_done = bool(self._texts)
            case ToolCalled(name=name):
                self._tools[name] += 1
            case AttemptStarted():
                self._texts_done = bool(self._texts)
            case Finalized(finalization):
                self._finalized = self._finalized or finalization
        return isinstance(record.event, RunEnded | RunQueued)

    def build_end(self, now: float) -> InterruptedRun | None:
        last = self._last
        if last is None or self._has_ended:
            return None
        text = "\n\n".join(reversed(self._texts))
        event = RunEnded(
            text=text,
            answer=AnswerStatus.PARTIAL if text else AnswerStatus.NONE,
            failure=INTERRUPTED,
            exit_code=compute_exit_code(INTERRUPTED),
            usage=self._usage,
            elapsed=0.0 if self._started is None else max(0.0, last.time - self._started),
            finalized=self._finalized,
            actual=ExecutionReport(tools_used=dict(reversed(self._tools.items()))),
        )
        return InterruptedRun(EventRecord(last.origin, last.seq + 1, now, event), self._vault)
