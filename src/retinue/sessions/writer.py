"""Append lines to a session's record: whole or not at all, rotated at a size, held while the disk refuses them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.model.errors import Failure
from retinue.sessions import storage_errors as faults
from retinue.sessions.paths import RecordPosition, open_folder, open_private, sync_file
from retinue.sessions.segments import SegmentedFile, SegmentHeader

_NOT_SYNCABLE = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}
_MAX_CLOSED_SEGMENTS = 4
"""Closed segments of one record that wait to be synced, each with a descriptor."""


class WriterLimits(Struct, frozen=True, kw_only=True):
    """The sizes at which files rotate and lines are dropped."""

    part_bytes: int = 16 * 2**20
    """A segment that would grow beyond this is closed and a new one is started."""
    pending_bytes: int = 8 * 2**20
    """Lines of one run that may wait in memory while the disk refuses them."""
    log_bytes: int = 16 * 2**20
    """One file of a root conversation's log."""
    log_files: int = 8


class PendingLine(Struct, frozen=True):
    """A record on its way to the disk."""

    data: bytes
    seq: int
    is_required: bool
    """A state transition: never dropped, however long it waits."""


class UnsyncedFiles(Struct):
    """Files and folders to make durable, and the outcome."""

    files: list[int]
    closed: list[int]
    """Files of segments that rotation closed; they are no longer written."""
    folders: list[Path]
    """Folders with new entries."""
    paths: list[Path] = []
    """A claim, and folders above the record: a folder that may be entered but not read cannot be synced."""
    error: OSError | None = None
    unreached: OSError | None = None
    """The error of a folder that could not even be opened; that can be retried."""


class RecordWriter:
    """Writes one record. All methods belong to one thread; none raises for storage."""

    def __init__(self, folder: Path, header: SegmentHeader, limits: WriterLimits, size: int | None = None) -> None:
        """Start a record, or continue one whose newest segment has this size."""
        self.fault: Failure | None = None
        self.error: OSError | None = None
        """The last error of the system."""
        self.first_position: RecordPosition | None = None
        """The position of the first line written by this writer."""
        self.unsynced_lines = 0
        self._segments = SegmentedFile(folder)
        self._header = header
        self._part_bytes = limits.part_bytes
        self._pending_limit = limits.pending_bytes
        self._file: int | None = None
        self._size = size or 0
        self._exists = size is not None
        self._torn = False
        self._pending: list[PendingLine] = []
        self._pending_bytes = 0
        self._dropped = 0
        self._closed: list[int] = []
        self._new_entries = False
        self._lasting_fault: Failure | None = None

    @property
    def path(self) -> Path:
        return self._segments.newest

    @property
    def is_behind(self) -> bool:
        """True while lines wait to be written."""
        return bool(self._pending)

    @property
    def waiting(self) -> list[bytes]:
        """Lines that wait to be written."""
        return [line.data for line in self._pending]

    @property
    def waiting_bytes(self) -> int:
        return self._pending_bytes

    @property
    def has_unsynced(self) -> bool:
        """True while written lines or entries may not be durable."""
        return bool(self.unsynced_lines) or self._new_entries

    def open(self) -> None:
        """Create the files, so that a fault is known before anything is written."""
        try:
            self._ensure_open()
        except OSError as error:
            self._note_fault(error, since=None)

    def write(self, line: PendingLine) -> None:
        if self._pending:
            self._hold_line(line)
            self.retry()
            return
        try:
            self._write_line(line.data)
        except OSError as error:
            self._note_fault(error, line.seq)
            self._hold_line(line)
        else:
            if self.fault is not None:
                self._clear_fault()

    def retry(self) -> None:
        """Write the waiting lines until the disk refuses one."""
        waiting, self._pending, self._pending_bytes = self._pending, [], 0
        for number, line in enumerate(waiting):
            try:
                self._write_line(line.data)
            except OSError as error:
                self._pending = waiting[number:]
                self._pending_bytes = sum(len(remaining.data) for remaining in self._pending)
                self._note_fault(error, line.seq)
                return
        self._clear_fault()

    def take_unsynced(self) -> UnsyncedFiles | None:
        """Return the files to make durable; None if all are. The caller syncs them, then calls `mark_synced`."""
        if not self.has_unsynced:
            return None
        work = UnsyncedFiles(
            files=[] if self._file is None else [self._file],
            closed=self._closed,
            folders=[self._segments.folder, self._segments.folder.parent] if self._new_entries else [],
        )
        self.unsynced_lines, self._closed, self._new_entries = 0, [], False
        return work

    def mark_synced(self, work: UnsyncedFiles) -> None:
        """Update the fault from the outcome of a sync."""
        if work.error is not None:
            # The kernel may have dropped the pages: a later successful sync proves nothing.
            self.error = work.error
            self._lasting_fault = self._lasting_fault or faults.not_synced_failure(work.error, self.path)
        elif self._file is not None and not _has_entry(self._file):
            self._lasting_fault = self._lasting_fault or faults.lost_failure(self.path)
        if work.unreached is not None:
            self._new_entries = True
            self._note_fault(work.unreached, since=None)
        elif not self._pending:
            self._clear_fault()

    def close(self) -> None:
        for descriptor in (*self._closed, self._file):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._closed, self._file = [], None

    def _write_line(self, data: bytes) -> None:
        """Write a whole line or, as far as any reader can see, nothing of it."""
        if self._file is None or self._torn or not self._size:
            self._ensure_open()
        if self._size + len(data) > self._part_bytes and self._size > len(self._header.to_line()):
            self._rotate()
            self._ensure_open()
        start = self._size
        self._write_bytes(data)
        self.unsynced_lines += 1
        if self.first_position is None:
            self.first_position = RecordPosition(self._header.part, start)

    def _write_bytes(self, data: bytes) -> None:
        assert self._file is not None
        written = os.write(self._file, data)
        if written != len(data):
            self._torn = True
            while written < len(data):
                # The rest is either written or raises the reason.
                written += os.write(self._file, data[written:])
            self._torn = False
        self._size += len(data)

    def _repair_tail(self) -> None:
        """Cut off a line that was written in part."""
        if self._torn and self._file is not None:
            os.ftruncate(self._file, self._size)
            self._torn = False

    def _ensure_open(self) -> None:
        self._repair_tail()
        if self._file is None:
            flags = os.O_WRONLY | os.O_APPEND
            self._file = open_private(self.path, flags if self._exists else flags | os.O_CREAT | os.O_EXCL)
            self._new_entries = self._new_entries or not self._exists
            self._exists = True
        if not self._size:
            self._write_bytes(self._header.to_line())

    def _rotate(self) -> None:
        assert self._file is not None
        self.path.rename(self._segments.segment_path(self._header.part))
        self._closed.append(self._file)
        if len(self._closed) > _MAX_CLOSED_SEGMENTS:
            self._sync_oldest()
        self._file, self._size, self._exists = None, 0, False
        self._header = replace(self._header, part=self._header.part + 1)
        self._new_entries = True

    def _sync_oldest(self) -> None:
        """Make a closed segment durable in this thread: the flusher does not keep up."""
        descriptor = self._closed.pop(0)
        try:
            sync_file(descriptor)
        except OSError as error:
            self._lasting_fault = self._lasting_fault or faults.not_synced_failure(error, self.path)
        finally:
            os.close(descriptor)

    def _note_fault(self, error: OSError, since: int | None) -> None:
        self.error = error
        with contextlib.suppress(OSError):
            self._repair_tail()
        if self.fault is None:
            self.fault = faults.not_saved_failure(error, self.path, since)

    def _clear_fault(self) -> None:
        missing = faults.dropped_failure(self._dropped, self.path) if self._dropped else None
        self.fault = self._lasting_fault or missing

    def _hold_line(self, line: PendingLine) -> None:
        self._pending.append(line)
        self._pending_bytes += len(line.data)
        if self._pending_bytes > self._pending_limit:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the oldest stream events until half the space is free; state transitions stay."""
        remaining: list[PendingLine] = []
        excess = self._pending_bytes - self._pending_limit // 2
        for line in self._pending:
            if excess > 0 and not line.is_required:
                excess -= len(line.data)
                self._pending_bytes -= len(line.data)
                self._dropped += 1
            else:
                remaining.append(line)
        self._pending = remaining


def _has_entry(descriptor: int) -> bool:
    """Return whether an open file is still in a folder."""
    with contextlib.suppress(OSError):  # a file server may have forgotten it
        return os.fstat(descriptor).st_nlink > 0
    return False


def fsync_files(work: Sequence[UnsyncedFiles]) -> None:
    """Sync files and folders, each path once, and set the error of each piece of work that failed."""
    synced: set[Path] = set()
    for unsynced in work:
        try:
            for descriptor in (*unsynced.closed, *unsynced.files):
                _sync(sync_file, descriptor)
            for path in (*unsynced.paths, *unsynced.folders):
                if path not in synced and _sync_path(path, unsynced, is_optional=path in unsynced.paths):
                    synced.add(path)
        except OSError as error:
            unsynced.error = error
        finally:
            for descriptor in unsynced.closed:
                os.close(descriptor)


def _sync_path(path: Path, unsynced: UnsyncedFiles, *, is_optional: bool) -> bool:
    """Sync a folder or a claim; return False if it could not be opened."""
    try:
        descriptor = open_folder(path)
    except OSError as error:
        if not (is_optional and isinstance(error, PermissionError)):
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
