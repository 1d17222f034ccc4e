"""After a crash: ends the runs whose process is gone, and makes their records fit to be appended to.

Recovery looks only at the leases, so its cost is that of what broke.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from retinue.model.errors import RefusedError
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
from retinue.sessions.flusher import fsync_files
from retinue.sessions.lease import SessionLease, adopt_lease
from retinue.sessions.paths import StateLayout, open_private
from retinue.sessions.reader import TORN_FILE, read_header, read_record_backwards
from retinue.sessions.record_format import NewerVersion, RecordDecoder, SegmentHeader, parse_segment_header
from retinue.sessions.segments import SegmentedFile, read_backwards, session_segments
from retinue.sessions.store import INTERRUPTED
from retinue.sessions.writer import PendingLine, RecordWriter, WriterLimits

_SCAN_DELAY = 0.02
"""Seconds before a second look at leases that seemed held: others look at them for an instant, too."""
_MAX_TORN_BYTES = 2**20
"""Of a torn record, kept for whoever wants to look at it."""


class InterruptedRun(Struct, frozen=True):
    """The end that a run was missing."""

    ended: EventRecord
    """Its `run_ended`."""
    vault: str | None
    """Where that is told, too."""


def recover_runs(layout: StateLayout, limits: WriterLimits, clock: Callable[[], float]) -> Iterator[InterruptedRun]:
    """Ends what nobody carries out any more; yields the end of each, once it is durable.

    Safe against a second process that does the same, and against being killed at any point: the end is written
    under the lease, and the lease goes only after it. What cannot be read now is left for the next time.
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
    """The leases that nobody holds, adopted."""
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
    """Ends the last run of the session in a folder, if it has not ended. The caller holds its lease.

    Raises:
        OSError: it cannot be read now.
        Refused: `storage`: it cannot be written now, or is of a newer format.
    """
    head = read_header(session_segments(folder))
    if head is None:
        return None
    if isinstance(head, NewerVersion):
        raise RefusedError(faults.too_new_failure(folder.name, head))
    writer, ended = reopen_record(folder, head, limits, now)
    writer.close()
    return ended


def reopen_record(
    folder: Path, head: SegmentHeader, limits: WriterLimits, now: float
) -> tuple[RecordWriter, InterruptedRun | None]:
    """A writer that goes on with a record, and the end that its last run was missing, durably written by now.

    A torn tail is cut off first. The caller holds the session's lease.

    Raises:
        OSError: the record cannot be repaired now.
        Refused: `storage`.
    """
    writer = RecordWriter(folder, head, limits, _repair_tail(folder))
    try:
        ended = _find_interruption(session_segments(folder), head, now)
        if ended:
            _write_durably(writer, head, ended.ended)
    except BaseException:
        writer.close()
        raise
    return writer, ended


# -- the torn tail ---------------------------------------------------------------------------------


def _repair_tail(folder: Path) -> int | None:
    """Repairs the end of the newest part; returns its size, None if rotation had not made it yet."""
    path = session_segments(folder).newest
    try:
        descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        start, tail = next(iter(read_backwards(file)))
        if not tail:
            return start
        if RecordDecoder().decode_event(tail) or isinstance(parse_segment_header(tail), SegmentHeader):
            # Only the newline is missing.
            os.write(descriptor, b"\n")
            return start + len(tail) + 1
        _save_torn(folder, tail)
        os.ftruncate(descriptor, start)
        return start


def _save_torn(folder: Path, torn: bytes) -> None:
    with contextlib.suppress(OSError):
        descriptor = open_private(folder / TORN_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, torn[:_MAX_TORN_BYTES] + b"\n")
        finally:
            os.close(descriptor)


# -- the missing end -------------------------------------------------------------------------------


def _write_durably(writer: RecordWriter, head: SegmentHeader, ended: EventRecord) -> None:
    writer.write(PendingLine(to_line(ended), ended.seq, is_required=True))
    if work := writer.take_unsynced():
        fsync_files([work])
        writer.mark_synced(work)
    if writer.fault:
        error = writer.error
        raise RefusedError(faults.not_continued_failure(head.id, error, writer.path) if error else writer.fault)


def _find_interruption(parts: SegmentedFile, head: SegmentHeader, now: float) -> InterruptedRun | None:
    """The end that the last run is missing, with what it had; None if it has ended or there is none."""
    found = _UnfinishedRun()
    for stamped in _read_newest_first(parts, head):
        if found.add_earlier(stamped):
            break
    return found.build_end(now)


def _read_newest_first(parts: SegmentedFile, head: SegmentHeader) -> Iterator[EventRecord]:
    decoder = RecordDecoder(head.id)
    for _, line in read_record_backwards(parts, head):
        yield from reversed(list(decoder.decode_events(line)))


class _UnfinishedRun:
    """Gathers what a run had, reading it from its end."""

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

    def add_earlier(self, stamped: EventRecord) -> bool:
        """Takes the event before those it has; True when there are no more of the run."""
        last = self._last = self._last or stamped
        if stamped.origin.run != last.origin.run:
            return True
        match stamped.event:
            case RunEnded():
                self._has_ended = True
            case RunQueued(vault=vault):
                self._vault = vault
            case RunStarted():
                self._started = stamped.time
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
        return isinstance(stamped.event, RunEnded | RunQueued)

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
