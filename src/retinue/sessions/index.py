"""A derived index of sessions in SQLite: saves reading what has not changed. Delete it and it comes back the same."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from retinue.sessions.paths import open_private
from retinue.sessions.segments import session_segments
from retinue.sessions.store import Conversation, SessionFilter, SessionSummary
from retinue.sessions.summary import CachedSummary

if TYPE_CHECKING:
    import sqlite3

QueryResult = TypeVar("QueryResult")

_VERSION = 3
_CREATE = f"""
CREATE TABLE IF NOT EXISTS sessions (
    folder TEXT PRIMARY KEY, size INTEGER, changed INTEGER, settled INTEGER, session TEXT, updated REAL,
    root TEXT, begun_in TEXT, agent TEXT, engine TEXT, state TEXT, searchable BLOB, summary BLOB);
CREATE INDEX IF NOT EXISTS by_time ON sessions (updated DESC, session);
CREATE INDEX IF NOT EXISTS by_root ON sessions (root, updated);
CREATE INDEX IF NOT EXISTS by_beginning ON sessions (begun_in);
PRAGMA user_version = {_VERSION};
"""
_WRITE = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_READ = "SELECT summary FROM sessions WHERE {which} ORDER BY updated DESC, session LIMIT :limit"
_ROOTS = """
SELECT root, max(updated) AS updated FROM sessions WHERE {which} GROUP BY root
HAVING :root_seen IS NULL OR max(updated) < :seen OR (max(updated) = :seen AND root > :root_seen)
ORDER BY max(updated) DESC, root LIMIT :limit
"""
_UNDER = "SELECT summary FROM sessions WHERE root = :under ORDER BY {which} DESC, updated DESC, session LIMIT :most"
_COUNT = "SELECT count(*) FROM sessions WHERE root = ?"
_CONDITIONS = {
    "root": "root = :root",
    "begun_in": "begun_in = :begun_in",
    "agent": "agent = :agent",
    "engine": "engine = :engine",
    "state": "state = :state",
    "text": "instr(searchable, :text) > 0",
}
_BEFORE = "updated <= :seen AND (updated < :seen OR session > :session_seen)"

MAX_DECODED_SUMMARIES = 20_000
"""Summaries an index remembers: a server is asked for the same lists again and again."""


class RecordStamp(Struct, frozen=True):
    """Tells whether a record has changed."""

    size: int
    changed: int
    """Nanoseconds since the epoch."""


def read_stamps(sessions: Path) -> dict[str, RecordStamp]:
    """The records in the folder of sessions, by the name of their own.

    Raises:
        OSError: the folder is there and cannot be read.
    """
    found = {}
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(sessions) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and (status := _newest(Path(entry))):
                found[entry.name] = RecordStamp(status.st_size, status.st_mtime_ns)
    return found


def _newest(folder: Path) -> os.stat_result | None:
    for path in (session_segments(folder).newest, folder):
        # Only the folder: claimed and not begun, or killed in the middle of a rotation. Neither: just pruned.
        with suppress(OSError):
            return path.lstat()
    return None


class _UnusableIndexError(Exception):
    """The file is not ours to use."""


class IndexedRecords:
    """The records that an index is derived from."""

    def __init__(
        self,
        stamps: Callable[[], Mapping[str, RecordStamp]],
        read: Callable[[str], CachedSummary | None],
        *,
        refresh: bool = True,
    ) -> None:
        """Reads one by the name of its folder; without a look an index answers as it is."""
        self.refresh = refresh
        self._stamps = stamps
        self._read = read
        self._seen: dict[str, CachedSummary | None] = {}

    @cached_property
    def stamps(self) -> Mapping[str, RecordStamp]:
        return self._stamps()

    def read(self, folder: str) -> CachedSummary | None:
        """What is in a folder; read at most once."""
        if folder not in self._seen:
            self._seen[folder] = self._read(folder)
        return self._seen[folder]


class SessionIndex:
    """Answers lists. Every trouble with its file is its own: the answer then comes straight from the records."""

    def __init__(self, path: Path, *, lock_timeout: float = 5.0) -> None:
        """Waits at most `patience` seconds for another process that writes the index."""
        self._path = path
        self._lock_timeout = lock_timeout
        # Closing a second descriptor of the file would drop the locks of the first.
        self._lock = threading.Lock()
        self._decoded: dict[bytes, SessionSummary] = {}
        self._is_stale = False
        """Whether the last look is not in the file: it could be read and not written."""

    def list(self, records: IndexedRecords, session_filter: SessionFilter) -> Sequence[SessionSummary]:
        """The wanted sessions among these records, last changed first; reads only what has changed."""
        return self._query(records, lambda database: self._summaries(_list(database, session_filter)))

    def conversations(
        self, records: IndexedRecords, session_filter: SessionFilter, max_sessions: int
    ) -> Sequence[Conversation]:
        """The root conversations of the wanted sessions, with at most so many sessions each."""
        return self._query(records, lambda database: self._conversations(database, session_filter, max_sessions))

    def _query(self, records: IndexedRecords, query: Callable[[sqlite3.Connection], QueryResult]) -> QueryResult:
        import sqlite3

        try:
            with self._lock, closing(self._open()) as database:
                if _prepare(database) or records.refresh or self._is_stale:
                    _refresh(database, records)
                    self._is_stale = False
                return query(database)
        except (sqlite3.Error, msgspec.MsgspecError, OSError, _UnusableIndexError) as error:
            self._is_stale = True
            self._discard_if_damaged(error)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.executescript(_CREATE)
            _refresh(database, records)
            return query(database)

    def _conversations(
        self, database: sqlite3.Connection, session_filter: SessionFilter, max_sessions: int
    ) -> Sequence[Conversation]:
        which, values = _all_of(_conditions(session_filter)), _values(session_filter)
        under = _UNDER.format(which=f"({which})")
        return [
            Conversation(
                root=root,
                updated=updated,
                count=database.execute(_COUNT, (root,)).fetchone()[0],
                sessions=self._summaries(database.execute(under, {**values, "under": root, "most": max_sessions})),
            )
            for root, updated in database.execute(_ROOTS.format(which=which), values).fetchall()
        ]

    def _summaries(self, rows: Iterable[tuple[bytes]]) -> Sequence[SessionSummary]:
        found = [summary for (summary,) in rows]
        known = self._decoded  # by its own name: another thread may begin a new one
        fresh = [summary for summary in found if summary not in known]
        if len(known) + len(fresh) > MAX_DECODED_SUMMARIES:
            known = self._decoded = {}
            fresh = found
        # Joined, as one array: a call for each of thousands would cost more than the reading.
        known |= zip(fresh, msgspec.json.decode(b"[%b]" % b",".join(fresh), type=list[SessionSummary]), strict=True)
        return [known[summary] for summary in found]

    def _open(self) -> sqlite3.Connection:
        import sqlite3

        if self._path.is_symlink():
            raise _UnusableIndexError
        if not self._path.exists():
            with suppress(FileExistsError):
                os.close(open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        return sqlite3.connect(self._path, timeout=self._lock_timeout, isolation_level=None)

    def _discard_if_damaged(self, error: Exception) -> None:
        import sqlite3

        # The plain error is one of SQL: the file has other tables than ours.
        damaged = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}
        if isinstance(error, msgspec.MsgspecError) or getattr(error, "sqlite_errorcode", None) in damaged:
            with suppress(OSError):
                # The journal first: left beside a new file it would be played back into it.
                self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)
                self._path.unlink(missing_ok=True)


def _prepare(database: sqlite3.Connection) -> bool:
    """Makes the tables ours; whether they are new, and know nothing yet."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        raise _UnusableIndexError
    if version < _VERSION:
        database.executescript(f"BEGIN IMMEDIATE; DROP TABLE IF EXISTS sessions; {_CREATE} COMMIT")
    return bool(version < _VERSION)


def _list(database: sqlite3.Connection, session_filter: SessionFilter) -> sqlite3.Cursor:
    which = [*_conditions(session_filter), *([_BEFORE] if session_filter.before else [])]
    return database.execute(_READ.format(which=_all_of(which)), _values(session_filter))


def _conditions(session_filter: SessionFilter) -> list[str]:
    return [condition for name, condition in _CONDITIONS.items() if getattr(session_filter, name) is not None]


def _all_of(conditions: list[str]) -> str:
    return " AND ".join(conditions) or "1 = 1"


def _values(session_filter: SessionFilter) -> dict[str, str | float | bytes | None]:
    seen, name = session_filter.before or (None, None)
    return {
        "root": session_filter.root,
        "begun_in": session_filter.begun_in,
        "agent": session_filter.agent,
        "engine": session_filter.engine,
        "state": session_filter.state and session_filter.state.value,
        "text": None if session_filter.text is None else session_filter.text.casefold().encode("utf-8", "replace"),
        "limit": -1 if session_filter.limit is None else session_filter.limit,
        "seen": seen,
        "session_seen": name,
        "root_seen": name,
    }


def _refresh(database: sqlite3.Connection, records: IndexedRecords) -> None:
    """Brings the rows up to date with the records, in one short transaction."""
    rows = database.execute(
        "SELECT folder, size, changed, settled, CASE settled WHEN 0 THEN summary END FROM sessions"
    )
    known = {folder: (size, changed, settled, summary) for folder, size, changed, settled, summary in rows}
    removed = known.keys() - records.stamps.keys()
    fresh = []
    for folder, stamp in records.stamps.items():
        # An unsettled row is never trusted: its run ends with its process, without a word in the record.
        if known.get(folder) == (stamp.size, stamp.changed, 1, None):
            continue
        found = records.read(folder)
        if found is None:
            removed |= {folder} & known.keys()
            continue
        row = _row(folder, stamp, found)
        if known.get(folder) != (stamp.size, stamp.changed, int(found.settled), row[-1]):
            fresh.append(row)
    if fresh or removed:
        with database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(_WRITE, fresh)
            database.executemany("DELETE FROM sessions WHERE folder = ?", [(folder,) for folder in removed])


def _row(folder: str, stamp: RecordStamp, found: CachedSummary) -> tuple[str | int | float | bytes, ...]:
    summary = found.summary
    return (
        folder,
        stamp.size,
        stamp.changed,
        int(found.settled),
        summary.session,
        summary.updated,
        summary.root,
        summary.begun_in,
        summary.agent,
        summary.engine,
        summary.latest.state.value,
        summary.search_text.encode(),
        msgspec.json.encode(summary),
    )
