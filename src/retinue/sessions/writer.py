"""Appends lines to a session's record: whole or not at all, rotated at a cap, held while the disk refuses them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.sessions import faults
from retinue.sessions.framing import Header
from retinue.sessions.parts import Position, session_parts
from retinue.sessions.paths import open_private, sync_file
from retinue.types import Failure

_CLOSED = 4
"""Closed parts of one record that wait to be synced, each with a descriptor."""


class Bounds(Struct, frozen=True, kw_only=True):
    """How much is written and kept."""

    part_bytes: int = 16 * 2**20
    """A part of a record that would grow beyond is closed and a new one begun."""
    pending_bytes: int = 8 * 2**20
    """Lines of one run that wait in memory while the disk refuses them."""
    log_bytes: int = 16 * 2**20
    """One file of a root's log."""
    log_files: int = 8


class Line(Struct, frozen=True):
    """A record on its way to the disk."""

    data: bytes
    seq: int
    must: bool
    """A state transition: never dropped, however long it waits."""


class Unsynced(Struct):
    """What has to be made durable, and what came of it."""

    files: list[int]
    closed: list[int]
    """Files of parts that rotation closed; nobody writes to them any more."""
    folders: list[Path]
    """Folders with new entries."""
    error: OSError | None = None
    unreached: OSError | None = None
    """Why a folder could not even be opened; that can be tried again."""


class Writer:
    """The writing end of one record. All methods belong to one thread; none raises for storage."""

    def __init__(self, folder: Path, header: Header, bounds: Bounds, size: int | None = None) -> None:
        """Begins a record, or goes on with one whose newest part has this size."""
        self.fault: Failure | None = None
        self.error: OSError | None = None
        """What the system said when it last refused something."""
        self.begins: Position | None = None
        """Where the first line written by this writer stands."""
        self.unsynced_lines = 0
        self._parts = session_parts(folder)
        self._header = header
        self._part_bytes = bounds.part_bytes
        self._pending_limit = bounds.pending_bytes
        self._file: int | None = None
        self._size = size or 0
        self._exists = size is not None
        self._torn = False
        self._pending: list[Line] = []
        self._pending_bytes = 0
        self._dropped = 0
        self._closed: list[int] = []
        self._new_entries = False
        self._lasting_fault: Failure | None = None

    @property
    def path(self) -> Path:
        return self._parts.newest

    @property
    def is_behind(self) -> bool:
        """Whether lines wait to be written."""
        return bool(self._pending)

    @property
    def waiting(self) -> list[bytes]:
        """The lines that wait to be written."""
        return [line.data for line in self._pending]

    @property
    def waiting_bytes(self) -> int:
        return self._pending_bytes

    @property
    def has_unsynced(self) -> bool:
        """Whether something is written that may not be durable yet."""
        return bool(self.unsynced_lines) or self._new_entries

    def open(self) -> None:
        """Makes the files, so that a fault is known before anything is written."""
        try:
            self._ensure_open()
        except OSError as error:
            self._refused(error, since=None)

    def write(self, line: Line) -> None:
        if self._pending:
            self._hold(line)
            self.retry()
            return
        try:
            self._put(line.data)
        except OSError as error:
            self._refused(error, line.seq)
            self._hold(line)
        else:
            if self.fault is not None:
                self._caught_up()

    def retry(self) -> None:
        """Writes what waits, as far as the disk takes it."""
        waiting, self._pending, self._pending_bytes = self._pending, [], 0
        for number, line in enumerate(waiting):
            try:
                self._put(line.data)
            except OSError as error:
                self._pending = waiting[number:]
                self._pending_bytes = sum(len(left.data) for left in self._pending)
                self._refused(error, line.seq)
                return
        self._caught_up()

    def unsynced(self) -> Unsynced | None:
        """What is written and not yet durable; None if all is. The caller makes it so, then says `synced`."""
        if not self.has_unsynced:
            return None
        work = Unsynced(
            files=[] if self._file is None else [self._file],
            closed=self._closed,
            folders=[self._parts.folder, self._parts.folder.parent] if self._new_entries else [],
        )
        self.unsynced_lines, self._closed, self._new_entries = 0, [], False
        return work

    def synced(self, work: Unsynced) -> None:
        """Notes what came of making it durable."""
        if work.error is not None:
            # The kernel may have dropped the pages: that a later sync succeeds proves nothing.
            self.error = work.error
            self._lasting_fault = self._lasting_fault or faults.not_synced(work.error, self.path)
        elif self._file is not None and os.fstat(self._file).st_nlink == 0:
            self._lasting_fault = self._lasting_fault or faults.lost(self.path)
        if work.unreached is not None:
            self._new_entries = True
            self._refused(work.unreached, since=None)
        elif not self._pending:
            self._caught_up()

    def close(self) -> None:
        for descriptor in (*self._closed, self._file):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._closed, self._file = [], None

    def _put(self, data: bytes) -> None:
        """Writes all of a line or, as far as anyone reading can tell, nothing of it."""
        if self._file is None or self._torn or not self._size:
            self._ensure_open()
        if self._size + len(data) > self._part_bytes and self._size > len(self._header.line()):
            self._rotate()
            self._ensure_open()
        start = self._size
        self._put_bytes(data)
        self.unsynced_lines += 1
        if self.begins is None:
            self.begins = Position(self._header.part, start)

    def _put_bytes(self, data: bytes) -> None:
        assert self._file is not None
        written = os.write(self._file, data)
        if written != len(data):
            self._torn = True
            while written < len(data):
                # The rest either goes through or says why not.
                written += os.write(self._file, data[written:])
            self._torn = False
        self._size += len(data)

    def _mend(self) -> None:
        """Cuts off a line that went through in part."""
        if self._torn and self._file is not None:
            os.ftruncate(self._file, self._size)
            self._torn = False

    def _ensure_open(self) -> None:
        self._mend()
        if self._file is None:
            flags = os.O_WRONLY | os.O_APPEND
            self._file = open_private(self.path, flags if self._exists else flags | os.O_CREAT | os.O_EXCL)
            self._new_entries = self._new_entries or not self._exists
            self._exists = True
        if not self._size:
            self._put_bytes(self._header.line())

    def _rotate(self) -> None:
        assert self._file is not None
        self.path.rename(self._parts.path(self._header.part))
        self._closed.append(self._file)
        if len(self._closed) > _CLOSED:
            self._sync_oldest()
        self._file, self._size, self._exists = None, 0, False
        self._header = replace(self._header, part=self._header.part + 1)
        self._new_entries = True

    def _sync_oldest(self) -> None:
        """Makes a closed part durable here and now: the flusher does not keep up."""
        descriptor = self._closed.pop(0)
        try:
            sync_file(descriptor)
        except OSError as error:
            self._lasting_fault = self._lasting_fault or faults.not_synced(error, self.path)
        finally:
            os.close(descriptor)

    def _refused(self, error: OSError, since: int | None) -> None:
        self.error = error
        with contextlib.suppress(OSError):
            self._mend()
        if self.fault is None:
            self.fault = faults.not_saved(error, self.path, since)

    def _caught_up(self) -> None:
        missing = faults.dropped(self._dropped, self.path) if self._dropped else None
        self.fault = self._lasting_fault or missing

    def _hold(self, line: Line) -> None:
        self._pending.append(line)
        self._pending_bytes += len(line.data)
        if self._pending_bytes > self._pending_limit:
            self._shed()

    def _shed(self) -> None:
        """Drops the oldest stream events until half the room is free; transitions stay."""
        kept: list[Line] = []
        excess = self._pending_bytes - self._pending_limit // 2
        for line in self._pending:
            if excess > 0 and not line.must:
                excess -= len(line.data)
                self._pending_bytes -= len(line.data)
                self._dropped += 1
            else:
                kept.append(line)
        self._pending = kept
