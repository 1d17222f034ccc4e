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

from retinue.sessions.parts import session_parts
from retinue.sessions.paths import open_private
from retinue.sessions.store import Conversation, SessionSummary, Wanted
from retinue.sessions.summary import Found

if TYPE_CHECKING:
    import sqlite3

Answer = TypeVar("Answer")

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

DECODED = 20_000
"""Summaries an index remembers: a server is asked for the same lists again and again."""


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


class Records:
    """The records that an index is derived from."""

    def __init__(
        self, stamps: Callable[[], Mapping[str, Stamp]], read: Callable[[str], Found | None], *, look: bool = True
    ) -> None:
        """Reads one by the name of its folder; without a look an index answers as it is."""
        self.look = look
        self._stamps = stamps
        self._read = read
        self._seen: dict[str, Found | None] = {}

    @cached_property
    def stamps(self) -> Mapping[str, Stamp]:
        return self._stamps()

    def read(self, folder: str) -> Found | None:
        """What is in a folder; read at most once."""
        if folder not in self._seen:
            self._seen[folder] = self._read(folder)
        return self._seen[folder]


class Index:
    """Answers lists. Every trouble with its file is its own: the answer then comes straight from the records."""

    def __init__(self, path: Path, *, patience: float = 5.0) -> None:
        """Waits at most `patience` seconds for another process that writes the index."""
        self._path = path
        self._patience = patience
        # Closing a second descriptor of the file would drop the locks of the first.
        self._alone = threading.Lock()
        self._decoded: dict[bytes, SessionSummary] = {}
        self._is_behind = False
        """Whether the last look is not in the file: it could be read and not written."""

    def list(self, records: Records, wanted: Wanted) -> Sequence[SessionSummary]:
        """The wanted sessions among these records, last changed first; reads only what has changed."""
        return self._answered(records, lambda database: self._summaries(_list(database, wanted)))

    def conversations(self, records: Records, wanted: Wanted, most: int) -> Sequence[Conversation]:
        """The root conversations of the wanted sessions, with at most so many sessions each."""
        return self._answered(records, lambda database: self._conversations(database, wanted, most))

    def _answered(self, records: Records, answer: Callable[[sqlite3.Connection], Answer]) -> Answer:
        import sqlite3

        try:
            with self._alone, closing(self._open()) as database:
                if _prepare(database) or records.look or self._is_behind:
                    _refresh(database, records)
                    self._is_behind = False
                return answer(database)
        except (sqlite3.Error, msgspec.MsgspecError, OSError, _Unusable) as error:
            self._is_behind = True
            self._discard_if_damaged(error)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.executescript(_CREATE)
            _refresh(database, records)
            return answer(database)

    def _conversations(self, database: sqlite3.Connection, wanted: Wanted, most: int) -> Sequence[Conversation]:
        which, values = _all_of(_conditions(wanted)), _values(wanted)
        under = _UNDER.format(which=f"({which})")
        return [
            Conversation(
                root=root,
                updated=updated,
                count=database.execute(_COUNT, (root,)).fetchone()[0],
                sessions=self._summaries(database.execute(under, {**values, "under": root, "most": most})),
            )
            for root, updated in database.execute(_ROOTS.format(which=which), values).fetchall()
        ]

    def _summaries(self, rows: Iterable[tuple[bytes]]) -> Sequence[SessionSummary]:
        found = [summary for (summary,) in rows]
        known = self._decoded  # by its own name: another thread may begin a new one
        fresh = [summary for summary in found if summary not in known]
        if len(known) + len(fresh) > DECODED:
            known = self._decoded = {}
            fresh = found
        # Joined, as one array: a call for each of thousands would cost more than the reading.
        known |= zip(fresh, msgspec.json.decode(b"[%b]" % b",".join(fresh), type=list[SessionSummary]), strict=True)
        return [known[summary] for summary in found]

    def _open(self) -> sqlite3.Connection:
        import sqlite3

        if self._path.is_symlink():
            raise _Unusable
        if not self._path.exists():
            with suppress(FileExistsError):
                os.close(open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        return sqlite3.connect(self._path, timeout=self._patience, isolation_level=None)

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
        raise _Unusable
    if version < _VERSION:
        database.executescript(f"BEGIN IMMEDIATE; DROP TABLE IF EXISTS sessions; {_CREATE} COMMIT")
    return bool(version < _VERSION)


def _list(database: sqlite3.Connection, wanted: Wanted) -> sqlite3.Cursor:
    which = [*_conditions(wanted), *([_BEFORE] if wanted.before else [])]
    return database.execute(_READ.format(which=_all_of(which)), _values(wanted))


def _conditions(wanted: Wanted) -> list[str]:
    return [condition for name, condition in _CONDITIONS.items() if getattr(wanted, name) is not None]


def _all_of(conditions: list[str]) -> str:
    return " AND ".join(conditions) or "1 = 1"


def _values(wanted: Wanted) -> dict[str, str | float | bytes | None]:
    seen, name = wanted.before or (None, None)
    return {
        "root": wanted.root,
        "begun_in": wanted.begun_in,
        "agent": wanted.agent,
        "engine": wanted.engine,
        "state": wanted.state and wanted.state.value,
        "text": None if wanted.text is None else wanted.text.casefold().encode("utf-8", "replace"),
        "limit": -1 if wanted.limit is None else wanted.limit,
        "seen": seen,
        "session_seen": name,
        "root_seen": name,
    }


def _refresh(database: sqlite3.Connection, records: Records) -> None:
    """Brings the rows up to date with the records, in one short transaction."""
    rows = database.execute(
        "SELECT folder, size, changed, settled, CASE settled WHEN 0 THEN summary END FROM sessions"
    )
    known = {folder: (size, changed, settled, summary) for folder, size, changed, settled, summary in rows}
    gone = known.keys() - records.stamps.keys()
    fresh = []
    for folder, stamp in records.stamps.items():
        # An unsettled row is never trusted: its run ends with its process, without a word in the record.
        if known.get(folder) == (stamp.size, stamp.changed, 1, None):
            continue
        found = records.read(folder)
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
        summary.begun_in,
        summary.agent,
        summary.engine,
        summary.latest.state.value,
        summary.searchable.encode(),
        msgspec.json.encode(summary),
    )
