"""The log of each root conversation: every durable event of every run under it, from however many processes.

    events.jsonl        the newest
    events.<n>.jsonl    older ones, n rising; the oldest are deleted

The user's vault, if there is one, has another of the same kind, in the words of seed 004 and with nothing else in it.
Rotated at a size, never cut inside a line. Best effort: nothing is synced, and a fault is told once and then ignored.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from pathlib import Path

from retinue.events import Stamped
from retinue.sessions import faults
from retinue.sessions.framing import Decoder
from retinue.sessions.lease import try_lock
from retinue.sessions.parts import Cursor, Parts, Position
from retinue.sessions.paths import Layout, open_private, vault_log
from retinue.sessions.writer import Bounds
from retinue.subagent_events import subagent_line

EVENTS = "events"
LOCK = "events.lock"
WAITING_BYTES = 64 * 1024
"""Lines that wait for a flush; one write of many costs little more than one of one."""

_log = logging.getLogger(__name__)


class RootLogs:
    """The logs this process writes to, each open once, however many runs share it."""

    def __init__(self, layout: Layout, bounds: Bounds) -> None:
        self._layout = layout
        self._bounds = bounds
        self._logs: dict[tuple[str, str | None], tuple[RootLog, int]] = {}

    def open(self, root: str, vault: str | None) -> RootLog:
        log, users = self._logs.get((root, vault)) or (self._log(root, vault), 0)
        self._logs[root, vault] = (log, users + 1)
        return log

    def close(self, root: str, vault: str | None) -> None:
        """Gives back what one `open` took."""
        log, users = self._logs.pop((root, vault))
        if users > 1:
            self._logs[root, vault] = (log, users - 1)
        else:
            log.close()

    def _log(self, root: str, vault: str | None) -> RootLog:
        # A vault that is not there is a slip of the pen, and none is made for it.
        has_vault = vault is not None and os.path.isdir(vault)  # noqa: PTH112 - Path.is_dir raises for odd names
        return RootLog(
            self._rotating(self._layout.root(root)),
            self._rotating(vault_log(Path(vault or ""), root)) if has_vault else None,
        )

    def _rotating(self, folder: Path) -> RotatingLog:
        return RotatingLog(folder, file_bytes=self._bounds.log_bytes, files=self._bounds.log_files)


class RootLog:
    """The log of one root: our own, and the vault's."""

    def __init__(self, own: RotatingLog, vault: RotatingLog | None) -> None:
        self._own = own
        self._vault = vault

    def append(self, stamped: Stamped, line: bytes) -> None:
        """Adds an event, given as it is and as the line of its record."""
        self._own.append(line)
        if self._vault and (told := subagent_line(stamped)):
            self._vault.append(told)

    def flush(self) -> None:
        self._own.flush()
        if self._vault:
            self._vault.flush()

    def close(self) -> None:
        self._own.close()
        if self._vault:
            self._vault.close()


class RootSource:
    """The events under one root, from the oldest that is kept or only those still to come."""

    def __init__(self, layout: Layout, root: str, *, past: bool = True) -> None:
        """Marks the place from which it reads.

        Raises:
            Refused: `storage`; so does `read`.
        """
        self.damaged = 0
        self._what = f"The log of conversation {root}"
        # Two roots may share a folder where the file system ignores case.
        self._decoder = Decoder(root=root)
        with faults.refusing(self._what):
            self._cursor = log_cursor(layout.root(root))
            if not past:
                self._cursor.to_end()

    def read(self) -> list[Stamped] | None:
        with faults.refusing(self._what):
            lines = self._cursor.read()
        events = [stamped for line in lines for stamped in self._decoder.events(line)]
        self.damaged = self._decoder.damaged + self._cursor.skipped
        return events if lines else None


def log_cursor(folder: Path) -> Cursor:
    """The reading end of one log, at the first line that is kept."""
    parts = Parts(folder, EVENTS)
    return Cursor(parts, Position(next(iter(parts.older()), 1)))


class RotatingLog:
    """The writing end of one log."""

    def __init__(self, folder: Path, *, file_bytes: int, files: int) -> None:
        self._parts = Parts(folder, EVENTS)
        self._file_bytes = file_bytes
        self._files = files
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_torn = False
        self._told = False

    def append(self, line: bytes) -> None:
        """Adds one line, newline included; it is written with the next `flush`, or when many wait."""
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > WAITING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what waits. Never raises for storage: what cannot be written is lost, and that is told once."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        try:
            self._ready(len(data))
            self._write(data)
        except OSError as error:
            self._close_file()
            if not self._told:
                self._told = True
                _log.warning("Events are missing from %s: %s", self._parts.newest, error)

    def close(self) -> None:
        self.flush()
        self._close_file()

    def _ready(self, size: int) -> None:
        """Opens the newest file, which another process may just have rotated, and rotates it when it is full."""
        for _ in range(2):
            try:
                status = self._parts.newest.stat()
            except FileNotFoundError:
                self._open()
                return
            if self._file is None or self._identity != (status.st_dev, status.st_ino):
                self._open()
            if status.st_size + size <= self._file_bytes or not status.st_size or not self._rotate():
                return

    def _open(self) -> None:
        self._close_file()
        self._file = open_private(self._parts.newest, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        status = os.fstat(self._file)
        self._identity = (status.st_dev, status.st_ino)
        self._is_torn = False
        if status.st_size:
            os.lseek(self._file, -1, os.SEEK_END)
            self._is_torn = os.read(self._file, 1) != b"\n"

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        if self._is_torn:
            # A process that died while writing left a line without an end: ours must not become part of it.
            data, self._is_torn = b"\n" + data, False
        if os.write(self._file, data) != len(data):
            # Another process may have written behind it already: the rest cannot follow.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _rotate(self) -> bool:
        """Closes the newest file, unless another process just did; False while one is at it."""
        lock = open_private(self._parts.folder / LOCK, os.O_RDWR | os.O_CREAT)
        try:
            if not try_lock(lock):
                return False
            with contextlib.suppress(FileNotFoundError):
                status = self._parts.newest.stat()
                if self._identity == (status.st_dev, status.st_ino):
                    self._close_newest()
        finally:
            os.close(lock)
        return True

    def _close_newest(self) -> None:
        older = self._parts.older()
        self._parts.newest.rename(self._parts.path(older[-1] + 1 if older else 1))
        # One file has just been added to the older ones, and the newest is still to be made.
        for number in older[: max(0, len(older) + 2 - self._files)]:
            self._parts.path(number).unlink(missing_ok=True)
