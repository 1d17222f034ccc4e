"""A derived index of sessions in SQLite: saves reading what has not changed. Delete it and it comes back the same."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from retinue.sessions.parts import session_parts
from retinue.sessions.paths import open_private
from retinue.sessions.store import SessionSummary, Wanted
from retinue.sessions.summary import Found

if TYPE_CHECKING:
    import sqlite3

_VERSION = 1
_CREATE = f"""
CREATE TABLE IF NOT EXISTS sessions (
    folder TEXT PRIMARY KEY, size INTEGER, changed INTEGER, settled INTEGER,
    session TEXT, updated REAL, root TEXT, agent TEXT, state TEXT, searchable BLOB, summary BLOB);
PRAGMA user_version = {_VERSION};
"""
_WRITE = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_READ = """
SELECT summary FROM sessions
WHERE (:root IS NULL OR root = :root) AND (:agent IS NULL OR agent = :agent)
  AND (:state IS NULL OR state = :state) AND (:text IS NULL OR instr(searchable, :text) > 0)
ORDER BY updated DESC, session LIMIT :limit
"""


class Stamp(Struct, frozen=True):
    """Tells whether a record has changed."""

    size: int
    changed: int
    """Nanoseconds since the epoch."""


def stamps(sessions: Path) -> dict[str, Stamp]:
    """The records in the folder of sessions, by the name of their own.

    Raises:
        OSError: the folder is there and cannot be read.
    """
    found = {}
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(sessions) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and (status := _newest(Path(entry))):
                found[entry.name] = Stamp(status.st_size, status.st_mtime_ns)
    return found


def _newest(folder: Path) -> os.stat_result | None:
    for path in (session_parts(folder).newest, folder):
        # Only the folder: claimed and not begun, or killed in the middle of a rotation. Neither: just pruned.
        with suppress(OSError):
            return path.lstat()
    return None


class _Unusable(Exception):  # noqa: N818 - it says what the file is
    """The file is not ours to use."""


class Index:
    """Answers lists. Every trouble with its file is its own: the answer then comes straight from the records."""

    def __init__(self, path: Path, *, patience: float = 5.0) -> None:
        """Waits at most `patience` seconds for another process that writes the index."""
        self._path = path
        self._patience = patience
        # Closing a second descriptor of the file would drop the locks of the first.
        self._alone = threading.Lock()

    def list(
        self, records: Mapping[str, Stamp], read: Callable[[str], Found | None], wanted: Wanted
    ) -> list[SessionSummary]:
        """The wanted sessions among these records, last changed first; reads only what has changed."""
        import sqlite3

        seen: dict[str, Found | None] = {}

        def read_once(folder: str) -> Found | None:
            if folder not in seen:
                seen[folder] = read(folder)
            return seen[folder]

        try:
            with self._alone, closing(self._open()) as database:
                return _answer(database, records, read_once, wanted)
        except (sqlite3.Error, msgspec.MsgspecError, OSError, _Unusable) as error:
            self._discard_if_damaged(error)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.executescript(_CREATE)
            return _answer(database, records, read_once, wanted)

    def _open(self) -> sqlite3.Connection:
        import sqlite3

        if self._path.is_symlink():
            raise _Unusable
        if not self._path.exists():
            with suppress(FileExistsError):
                os.close(open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        database = sqlite3.connect(self._path, timeout=self._patience, isolation_level=None)
        try:
            _prepare(database)
        except (sqlite3.Error, _Unusable):
            database.close()
            raise
        return database

    def _discard_if_damaged(self, error: Exception) -> None:
        import sqlite3

        # The plain error is one of SQL: the file has other tables than ours.
        damaged = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}
        if isinstance(error, msgspec.MsgspecError) or getattr(error, "sqlite_errorcode", None) in damaged:
            with suppress(OSError):
                # The journal first: left beside a new file it would be played back into it.
                self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)
                self._path.unlink(missing_ok=True)


def _prepare(database: sqlite3.Connection) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        raise _Unusable
    if version < _VERSION:
        database.executescript(f"BEGIN IMMEDIATE; DROP TABLE IF EXISTS sessions; {_CREATE} COMMIT")


def _answer(
    database: sqlite3.Connection,
    records: Mapping[str, Stamp],
    read: Callable[[str], Found | None],
    wanted: Wanted,
) -> list[SessionSummary]:
    _refresh(database, records, read)
    values = {
        "root": wanted.root,
        "agent": wanted.agent,
        "state": wanted.state and wanted.state.value,
        "text": None if wanted.text is None else wanted.text.casefold().encode("utf-8", "replace"),
        "limit": -1 if wanted.limit is None else wanted.limit,
    }
    decode = msgspec.json.Decoder(SessionSummary).decode
    return [decode(summary) for (summary,) in database.execute(_READ, values)]


def _refresh(database: sqlite3.Connection, records: Mapping[str, Stamp], read: Callable[[str], Found | None]) -> None:
    """Brings the rows up to date with the records, in one short transaction."""
    rows = database.execute(
        "SELECT folder, size, changed, settled, CASE settled WHEN 0 THEN summary END FROM sessions"
    )
    known = {folder: (size, changed, settled, summary) for folder, size, changed, settled, summary in rows}
    gone = known.keys() - records.keys()
    fresh = []
    for folder, stamp in records.items():
        # An unsettled row is never trusted: its run ends with its process, without a word in the record.
        if known.get(folder) == (stamp.size, stamp.changed, 1, None):
            continue
        found = read(folder)
        if found is None:
            gone |= {folder} & known.keys()
            continue
        row = _row(folder, stamp, found)
        if known.get(folder) != (stamp.size, stamp.changed, int(found.settled), row[-1]):
            fresh.append(row)
    if fresh or gone:
        with database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(_WRITE, fresh)
            database.executemany("DELETE FROM sessions WHERE folder = ?", [(folder,) for folder in gone])


def _row(folder: str, stamp: Stamp, found: Found) -> tuple[str | int | float | bytes, ...]:
    summary = found.summary
    return (
        folder,
        stamp.size,
        stamp.changed,
        int(found.settled),
        summary.session,
        summary.updated,
        summary.root,
        summary.agent,
        summary.latest.state.value,
        summary.searchable.encode(),
        msgspec.json.encode(summary),
    )
