"""The log of each root conversation: every durable event of every run under it, written by any number of processes.

    events.jsonl        the newest
    events.<n>.jsonl    older ones, n rising; the oldest are deleted

The user's vault, if configured, has another log of the same kind, in the format of `model/event_codec.py`.
Files rotate at a size, never inside a line. Best effort: nothing is synced, and a fault is logged once.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from pathlib import Path

from retinue.model.event_codec import EventRecord, to_subagent_line
from retinue.sessions import storage_errors as faults
from retinue.sessions.paths import RecordPosition, StateLayout, open_private, vault_log_folder
from retinue.sessions.segments import RecordDecoder, SegmentCursor, SegmentedFile
from retinue.sessions.writer import WriterLimits
from retinue.support.safe_files import try_lock

LOG_STEM = "events"
LOCK_FILE = "events.lock"
MAX_WAITING_BYTES = 64 * 1024
"""Lines that wait for a flush; one write of many lines costs little more than one of one line."""

_log = logging.getLogger(__name__)


class RootLogs:
    """The open logs of this process, each opened once for all runs that share it."""

    def __init__(self, layout: StateLayout, limits: WriterLimits) -> None:
        self._layout = layout
        self._limits = limits
        self._logs: dict[tuple[str, str | None], RootLog] = {}

    def open(self, root: str, vault: str | None) -> RootLog:
        log = self._logs.get((root, vault))
        if log is None:
            folders = [self._layout.root(root)]
            # A vault that does not exist is a typing error, and is not created.
            if vault is not None and os.path.isdir(vault):  # noqa: PTH112 - Path.is_dir raises for odd names
                folders.append(vault_log_folder(Path(vault), root))
            log = self._logs[root, vault] = RootLog(*(self._open_file(folder) for folder in folders))
        log.users += 1
        return log

    def close(self, root: str, vault: str | None) -> None:
        """Undo one `open`; the last one closes the log."""
        log = self._logs[root, vault]
        log.users -= 1
        if not log.users:
            del self._logs[root, vault]
            log.close()

    def _open_file(self, folder: Path) -> RotatingLog:
        return RotatingLog(folder, file_bytes=self._limits.log_bytes, files=self._limits.log_files)


class RootLog:
    """The log of one root conversation in the state folder, and its copy in the vault."""

    def __init__(self, own: RotatingLog, vault: RotatingLog | None = None) -> None:
        self.users = 0
        """Runs that write to it."""
        self._own = own
        self._vault = vault

    def append(self, record: EventRecord, line: bytes) -> None:
        """Add an event, given with its encoded line."""
        self._own.append(line)
        if self._vault and (sidecar_line := to_subagent_line(record)):
            self._vault.append(sidecar_line)

    def flush(self) -> None:
        for log in filter(None, (self._own, self._vault)):
            log.flush()

    def close(self) -> None:
        for log in filter(None, (self._own, self._vault)):
            log.close()


class RootEventSource:
    """The events of one root conversation, from the oldest stored one."""

    def __init__(self, layout: StateLayout, root: str) -> None:
        self.damaged_count = 0
        self._description = f"The log of conversation {root}"
        # Two roots may share a folder where the file system ignores case.
        self._decoder = RecordDecoder(root=root)
        with faults.raise_storage_errors(self._description):
            self._cursor = open_log_cursor(layout.root(root))

    def read(self) -> list[EventRecord] | None:
        with faults.raise_storage_errors(self._description):
            lines = self._cursor.read()
        events = [record for line in lines for record in self._decoder.decode_events(line)]
        self.damaged_count = self._decoder.damaged_count + self._cursor.skipped
        return events if lines else None


def open_log_cursor(folder: Path) -> SegmentCursor:
    """Return a cursor at the first stored line of a log."""
    segments = SegmentedFile(folder, LOG_STEM)
    return SegmentCursor(segments, RecordPosition(next(iter(segments.list_closed()), 1)))


class RotatingLog:
    """Writes one log."""

    def __init__(self, folder: Path, *, file_bytes: int, files: int) -> None:
        self._segments = SegmentedFile(folder, LOG_STEM)
        self._file_bytes = file_bytes
        self._files = files
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_torn = False
        self._fault_logged = False

    def append(self, line: bytes) -> None:
        """Add one line, newline included; it is written by the next `flush`, or when many wait."""
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the waiting lines. Never raises for storage: lines that cannot be written are lost, logged once."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        try:
            self._prepare(len(data))
            self._write(data)
        except OSError as error:
            self._close_file()
            if not self._fault_logged:
                self._fault_logged = True
                _log.warning("Events are missing from %s: %s", self._segments.newest, error)

    def close(self) -> None:
        self.flush()
        self._close_file()

    def _prepare(self, size: int) -> None:
        """Open the newest file, which another process may just have rotated, and rotate it when it is full."""
        for _ in range(2):
            try:
                status = self._segments.newest.stat()
            except FileNotFoundError:
                self._open()
                return
            if self._file is None or self._identity != (status.st_dev, status.st_ino):
                self._open()
            if status.st_size + size <= self._file_bytes or not status.st_size or not self._rotate():
                return

    def _open(self) -> None:
        self._close_file()
        self._file = open_private(self._segments.newest, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        status = os.fstat(self._file)
        self._identity = (status.st_dev, status.st_ino)
        self._is_torn = False
        if status.st_size:
            os.lseek(self._file, -1, os.SEEK_END)
            self._is_torn = os.read(self._file, 1) != b"\n"

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        if self._is_torn:
            # A process that died while writing left a line without newline: ours must not become part of it.
            data, self._is_torn = b"\n" + data, False
        if os.write(self._file, data) != len(data):
            # Another process may have appended already: the rest cannot follow.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _rotate(self) -> bool:
        """Close the newest file, unless another process just did; return False while another is doing so."""
        lock = open_private(self._segments.folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        try:
            if not try_lock(lock):
                return False
            with contextlib.suppress(FileNotFoundError):
                status = self._segments.newest.stat()
                if self._identity == (status.st_dev, status.st_ino):
                    self._close_newest()
        finally:
            os.close(lock)
        return True

    def _close_newest(self) -> None:
        older = self._segments.list_closed()
        self._segments.newest.rename(self._segments.segment_path(older[-1] + 1 if older else 1))
        # One file has just been added to the older ones, and the newest is still to be created.
        for number in older[: max(0, len(older) + 2 - self._files)]:
            self._segments.segment_path(number).unlink(missing_ok=True)
