"""The log of each root conversation: every durable event of every run under it."""

from __future__ import annotations

from retinue.events import Stamped
from retinue.sessions.framing import Decoder
from retinue.sessions.paths import Layout
from retinue.sessions.rotating import RotatingLog, log_cursor
from retinue.sessions.writer import Bounds


class RootLogs:
    """The logs this process writes to, each open once, however many runs share it."""

    def __init__(self, layout: Layout, bounds: Bounds) -> None:
        self._layout = layout
        self._bounds = bounds
        self._logs: dict[str, tuple[RotatingLog, int]] = {}

    def open(self, root: str) -> RotatingLog:
        log, users = self._logs.get(root) or (self._log(root), 0)
        self._logs[root] = (log, users + 1)
        return log

    def close(self, root: str) -> None:
        """Gives back what one `open` took."""
        log, users = self._logs.pop(root)
        if users > 1:
            self._logs[root] = (log, users - 1)
        else:
            log.close()

    def _log(self, root: str) -> RotatingLog:
        folder = self._layout.root(root)
        return RotatingLog(folder, file_bytes=self._bounds.log_bytes, files=self._bounds.log_files)


class RootSource:
    """The events under one root, from the oldest that is kept or only those still to come."""

    def __init__(self, layout: Layout, root: str, *, past: bool = True) -> None:
        self.damaged = 0
        self._cursor = log_cursor(layout.root(root))
        # Two roots may share a folder where the file system ignores case.
        self._decoder = Decoder(root=root)
        if not past:
            self._cursor.to_end()

    def read(self) -> list[Stamped] | None:
        lines = self._cursor.read()
        events = [stamped for line in lines for stamped in self._decoder.events(line)]
        self.damaged = self._decoder.damaged + self._cursor.skipped
        return events if lines else None
