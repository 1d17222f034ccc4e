"""A derived index of sessions in SQLite: only changed records are read. A deleted index is rebuilt the same."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from retinue.sessions import text_index
from retinue.sessions.paths import StateLayout, open_private
from retinue.sessions.search import MIN_SEARCHED_CHARS, find_match, find_summary_match, read_search_texts
from retinue.sessions.segments import RECORD_FILE
from retinue.sessions.storage_errors import raise_storage_errors
from retinue.sessions.store import (
    Conversation,
    IndexProgress,
    SearchMatch,
    SessionFilter,
    SessionSummary,
    normalize_search_text,
)
from retinue.sessions.summary import CachedSummary, SummaryDecodeError, decode_summaries, encode_summary

if TYPE_CHECKING:
    import sqlite3

QueryResult = TypeVar("QueryResult")

_VERSION = 6
_CREATE = f"""
CREATE TABLE IF NOT EXISTS sessions (
    folder TEXT PRIMARY KEY, size INTEGER, changed INTEGER, settled INTEGER, session TEXT, updated REAL,
    root TEXT, begun_elsewhere TEXT, agent TEXT, engine TEXT, state TEXT, outcome TEXT, model TEXT, cwd TEXT,
    cost REAL, elapsed REAL, summary BLOB);
CREATE INDEX IF NOT EXISTS by_time ON sessions (updated DESC);
CREATE INDEX IF NOT EXISTS by_root ON sessions (root, updated);
CREATE INDEX IF NOT EXISTS by_beginning ON sessions (begun_elsewhere) WHERE begun_elsewhere IS NOT NULL;
PRAGMA user_version = {_VERSION};
"""
_DROP = "".join(f"DROP TABLE IF EXISTS {table};" for table in ("sessions", "documents", "texts"))
_WRITE = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_READ = "SELECT summary FROM sessions WHERE {which} ORDER BY updated DESC, session LIMIT :limit"
_CANDIDATES = """
SELECT folder, size, changed, root, updated, {has_trigrams}, summary FROM sessions
WHERE {which} ORDER BY updated DESC, {then}
"""
_IN_ROOT = "SELECT folder, summary FROM sessions WHERE root = :root ORDER BY updated DESC, session"
_ROOTS = """
SELECT root, max(updated) AS updated FROM sessions WHERE {which} GROUP BY root
HAVING :root_seen IS NULL OR max(updated) < :seen OR (max(updated) = :seen AND root > :root_seen)
ORDER BY max(updated) DESC, root LIMIT :limit
"""
_UNDER = "SELECT summary FROM sessions WHERE root = :under ORDER BY {which} DESC, updated DESC, session LIMIT :most"
_COUNT = "SELECT count(*) FROM sessions WHERE root = ?"
_COLUMNS = ("root", "agent", "engine", "state", "outcome", "model", "cwd")
_CONDITIONS = {
    **{name: f"{name} = :{name}" for name in _COLUMNS},
    "begun_in": "(begun_elsewhere = :begun_in OR (root = :begun_in AND begun_elsewhere IS NULL))",
    "since": "updated >= :since",
    "until": "updated < :until",
    "min_cost": "cost >= :min_cost",
    "min_elapsed": "elapsed >= :min_elapsed",
}
_BEFORE = "updated <= :seen AND (updated < :seen OR session > :session_seen)"

MAX_INTEGER = 2**63 - 1
"""The largest integer of SQLite."""
MAX_DECODED_SUMMARIES = 20_000
"""Decoded summaries an index caches: a server answers the same lists again and again."""
MAX_CACHED_MATCHES = 20_000
"""Results of comparing a record with a text: a page and its counts ask for the same."""
SEARCH_STEP = 1.0
"""Seconds of indexing after which other lists of this process have their turn."""


class RecordStamp(Struct, frozen=True):
    """Size and time of a record, compared to detect changes."""

    size: int
    changed: int
    """Nanoseconds since the epoch."""


def read_stamps(sessions: Path) -> dict[str, RecordStamp]:
    """Return the stamp of each record in the sessions folder, by the name of its own folder.

    Raises:
        OSError: the folder exists and cannot be read.
    """
    found = {}
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(sessions) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and (status := _stat_record(entry.path)):
                found[entry.name] = RecordStamp(status.st_size, status.st_mtime_ns)
    return found


def _stat_record(folder: str) -> os.stat_result | None:
    # Not with pathlib, which takes longer than the system: a list asks for every session.
    for path in (f"{folder}{os.sep}{RECORD_FILE}", folder):
        try:
            return os.lstat(path)
        except OSError:
            # Only the folder: claimed without a run, or killed in the middle of a rotation. Neither: just pruned.
            continue
    return None


_Query = Callable[["sqlite3.Connection", bool], QueryResult]
"""A query of a database, and whether that is the index file: else it has the summaries alone."""
ReadSummary = Callable[[Path], CachedSummary | None]
"""Reads the summary of the record in a folder."""


class _Candidate(Struct, frozen=True, gc=False):
    """A session that may have the text of a search."""

    folder: str
    size: int
    changed: int
    root: str
    updated: float
    has_trigrams: int
    """Whether the record may have the text, by the full-text index."""
    summary: bytes


class _UnusableIndexError(Exception):
    """The file is a link or of a newer version, and must not be used."""


class SessionIndex:
    """Lists sessions from an index file; if the file cannot be used, from the records alone."""

    def __init__(
        self,
        layout: StateLayout,
        read_summary: ReadSummary,
        *,
        lock_timeout: float = 5.0,
        read_texts: text_index.ReadTexts = read_search_texts,
        tokenizer: str = "trigram",
    ) -> None:
        """Wait at most `lock_timeout` seconds for another process that writes the index."""
        self._path = layout.index
        self._sessions = layout.sessions
        self._read_summary = read_summary
        self._lock_timeout = lock_timeout
        # Closing a second descriptor of the file would drop the locks of the first.
        self._lock = threading.Lock()
        self._decoded: dict[bytes, SessionSummary] = {}
        self._is_stale = False
        """True after changes could be read and not written to the file."""
        self._read_texts = read_texts
        self._tokenizer = tokenizer
        self._must_scan = False
        """Whether searches read the records: SQLite has no full-text search, or the file cannot be written now."""
        self.scans_records = False
        """Whether the last search read every record."""
        self._matches: dict[tuple[str, str], tuple[int, int, SearchMatch | None]] = {}
        """By text and folder: the stamp of the record and where the text is in it."""

    def list(self, session_filter: SessionFilter, *, refresh: bool = True) -> Sequence[SessionSummary]:
        """Return the sessions that match the filter, last changed first; read only changed records.

        Without `refresh` no record is read, and the list is as last indexed; a search reads those that may match.
        """
        if session_filter.text is not None:
            return self._search_sessions(session_filter, refresh=refresh)
        return self._query(lambda database, _: self._decode(_list(database, session_filter)), refresh=refresh)

    def conversations(
        self, session_filter: SessionFilter, max_sessions: int, *, refresh: bool = True
    ) -> Sequence[Conversation]:
        """Return the root conversations of matching sessions, with at most `max_sessions` sessions each."""
        if session_filter.text is not None:
            return self._search_conversations(session_filter, max_sessions, refresh=refresh)
        return self._query(
            lambda database, _: self._conversations(database, session_filter, max_sessions), refresh=refresh
        )

    def advance(self, max_seconds: float, *, for_search: bool = False) -> IndexProgress:
        """Read changed records for at most so many seconds, the latest first, and return how far the index is.

        With `for_search` also their texts, after all summaries. Where the file cannot be used there is nothing to
        advance: each list reads what it needs.
        """
        import sqlite3

        stamps = self._read_stamps()
        deadline = time.monotonic() + max_seconds
        unread = 0
        try:
            with self._lock, closing(self._open()) as database:
                _prepare(database)
                left = _refresh(database, self._sessions, stamps, self._read_summary, deadline)
                self._is_stale = False
            if for_search:
                unread = self._advance_texts(deadline) + left
        except (sqlite3.Error, SummaryDecodeError, OSError, _UnusableIndexError) as error:
            self._is_stale = True
            self._discard_if_damaged(error)
            left, unread, self._must_scan = 0, 0, self._must_scan or for_search
        if for_search:
            left = (left + unread + 1) // 2  # both passes read every session
        return IndexProgress(len(stamps) - left, len(stamps), self._must_scan and for_search)

    def collect_pruned_texts(self) -> text_index.PrunedTexts:
        """Return a collection of sessions that are about to be pruned, which removes their texts from the index."""
        return text_index.PrunedTexts(
            self._read_texts,
            lambda bodies: self._change_texts(lambda database: text_index.remove_texts(database, bodies)),
        )

    def discard_pruned_texts(self) -> None:
        """Remove what sessions that were thinned or deleted have left in the index, as far as it can be written."""

        def discard(database: sqlite3.Connection) -> None:
            _refresh(database, self._sessions, self._read_stamps(), self._read_summary)
            text_index.discard_pruned(database)
            text_index.reclaim_space(database)

        self._change_texts(discard)

    def _change_texts(self, change: Callable[[sqlite3.Connection], None]) -> None:
        import sqlite3

        if not self._path.exists():
            return
        # The index is derived: what is wrong with it is repaired by the next list.
        errors = (sqlite3.Error, SummaryDecodeError, OSError, _UnusableIndexError)
        with suppress(*errors), self._lock, closing(self._open()) as database:
            _prepare(database)
            if text_index.create_tables(database, self._tokenizer):
                change(database)

    def _advance_texts(self, deadline: float) -> int:
        """Read the texts of changed records, in short transactions; return how many are left."""
        with self._lock, closing(self._open()) as database:
            self._must_scan = not text_index.create_tables(database, self._tokenizer)
            if self._must_scan:
                return 0
            text_index.discard_pruned(database)
            stale = text_index.find_stale(database)
        while stale:
            # Read without the lock: lists of this process do not wait for it.
            batch = text_index.read_batch(self._sessions, stale, self._read_texts, deadline)
            with self._lock, closing(self._open()) as database:
                text_index.write_batch(database, batch)
            stale = stale[len(batch) :]
            if time.monotonic() > deadline:
                break
        return len(stale)

    # -- search ------------------------------------------------------------------------------------

    def _search_sessions(self, session_filter: SessionFilter, *, refresh: bool) -> Sequence[SessionSummary]:
        wanted = _normalize_wanted(session_filter)
        conditions = [_BEFORE] if session_filter.before else []
        candidates = self._find_candidates(session_filter, wanted, conditions, "session", refresh=refresh)
        matches = ((each.summary, match) for each in candidates if (match := self._find_match(each, wanted)))
        found = dict(islice(matches, session_filter.limit))
        summaries = self._decode((summary,) for summary in found)
        return [replace(each, match=match) for each, match in zip(summaries, found.values(), strict=True)]

    def _search_conversations(
        self, session_filter: SessionFilter, max_sessions: int, *, refresh: bool
    ) -> Sequence[Conversation]:
        wanted, before = _normalize_wanted(session_filter), session_filter.before
        limit = MAX_INTEGER if session_filter.limit is None else session_filter.limit
        roots: dict[str, float] = {}
        matches: dict[str, dict[str, SearchMatch]] = {}
        for each in self._find_candidates(session_filter, wanted, [], "root", refresh=refresh):
            root, is_new = each.root, each.root not in matches
            if (is_new and len(roots) >= limit) or len(matches.get(root, ())) >= max_sessions:
                continue  # no record is read that is not on the page
            if match := self._find_match(each, wanted):
                matches.setdefault(root, {})[each.folder] = match
                if is_new and (before is None or (-each.updated, root) > (-before[0], before[1])):
                    roots[root] = each.updated
        return [
            self._make_conversation(root, updated, matches[root], max_sessions) for root, updated in roots.items()
        ]

    def _make_conversation(
        self, root: str, updated: float, matches: Mapping[str, SearchMatch], max_sessions: int
    ) -> Conversation:
        """Return a conversation with its matching sessions first."""
        rows = self._query(lambda database, _: database.execute(_IN_ROOT, {"root": root}).fetchall(), refresh=False)
        rows.sort(key=lambda row: row[0] not in matches)
        page = rows[:max_sessions]
        summaries = self._decode((summary,) for _, summary in page)
        sessions = [
            replace(each, match=matches.get(folder)) for (folder, _), each in zip(page, summaries, strict=True)
        ]
        return Conversation(root=root, updated=updated, count=len(rows), sessions=sessions)

    def _find_candidates(
        self, session_filter: SessionFilter, wanted: str, conditions: Sequence[str], then: str, *, refresh: bool
    ) -> Sequence[_Candidate]:
        """Return the sessions that match the other conditions, last changed first, and which may have the text."""
        while refresh and not self.advance(SEARCH_STEP, for_search=True).is_complete:
            pass

        def query(database: sqlite3.Connection, is_file: bool) -> Sequence[_Candidate]:
            values, has_trigrams = _values(session_filter), "0"
            self.scans_records = False
            if len(wanted) >= MIN_SEARCHED_CHARS:
                if is_file and not self._must_scan and text_index.create_tables(database, self._tokenizer):
                    has_trigrams, values["trigrams"] = text_index.make_condition(wanted)
                else:
                    has_trigrams, self.scans_records = "1", True
            statement = _CANDIDATES.format(
                has_trigrams=has_trigrams, which=_all_of([*_conditions(session_filter), *conditions]), then=then
            )
            return [_Candidate(*row) for row in database.execute(statement, values)]

        return self._query(query, refresh=False)

    def _find_match(self, candidate: _Candidate, wanted: str) -> SearchMatch | None:
        (summary,) = self._decode([(candidate.summary,)])
        if match := find_summary_match(summary, wanted):
            return match
        if not candidate.has_trigrams:
            return None
        key, stamp = (wanted, candidate.folder), (candidate.size, candidate.changed)
        if (known := self._matches.get(key)) and known[:2] == stamp:
            return known[2]
        match = find_match(self._read_texts(self._sessions / candidate.folder), wanted)
        if len(self._matches) >= MAX_CACHED_MATCHES:
            self._matches = {}
        self._matches[key] = (*stamp, match)
        return match

    # -- the file ----------------------------------------------------------------------------------

    def _query(self, query: _Query[QueryResult], *, refresh: bool) -> QueryResult:
        import sqlite3

        # Cached for this query: where the file can be read and not written, all is needed twice.
        read_stamps, read_summary = cache(self._read_stamps), cache(self._read_summary)
        try:
            with self._lock, closing(self._open()) as database:
                if _prepare(database) or refresh or self._is_stale:
                    _refresh(database, self._sessions, read_stamps(), read_summary)
                    self._is_stale = False
                return query(database, True)
        except (sqlite3.Error, SummaryDecodeError, OSError, _UnusableIndexError) as error:
            self._is_stale = True
            self._discard_if_damaged(error)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.executescript(_CREATE)
            _refresh(database, self._sessions, read_stamps(), read_summary)
            return query(database, False)

    def _read_stamps(self) -> Mapping[str, RecordStamp]:
        with raise_storage_errors(f"The state folder {self._sessions.parent}"):
            return read_stamps(self._sessions)

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
                sessions=self._decode(database.execute(under, {**values, "under": root, "most": max_sessions})),
            )
            for root, updated in database.execute(_ROOTS.format(which=which), values).fetchall()
        ]

    def _decode(self, rows: Iterable[tuple[bytes]]) -> Sequence[SessionSummary]:
        found = [summary for (summary,) in rows]
        known = self._decoded  # a local name: another thread may replace the cache
        fresh = [summary for summary in found if summary not in known]
        if len(known) + len(fresh) > MAX_DECODED_SUMMARIES:
            known = self._decoded = {}
            fresh = found
        known |= zip(fresh, decode_summaries(fresh), strict=True)
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

        # SQLITE_ERROR is an error of SQL: the file has other tables than ours.
        damaged = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details of extended codes
        if isinstance(error, SummaryDecodeError) or code in damaged:
            with suppress(OSError):
                # The journal first: left beside a new file it would be applied to it.
                self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)
                self._path.unlink(missing_ok=True)


def _prepare(database: sqlite3.Connection) -> bool:
    """Create the tables if they are missing or old; return whether they are new and empty."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        raise _UnusableIndexError
    if version < _VERSION:
        database.executescript(f"BEGIN IMMEDIATE; {_DROP} {_CREATE} COMMIT")
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
        **{name: _encodable(getattr(session_filter, name)) for name in _CONDITIONS},
        "limit": -1 if session_filter.limit is None else min(session_filter.limit, MAX_INTEGER),
        "seen": seen,
        "session_seen": name,
        "root_seen": name,
    }


def _normalize_wanted(session_filter: SessionFilter) -> str:
    return normalize_search_text(session_filter.text or "").encode("utf-8", "replace").decode()


def _encodable(value: str | float | None) -> str | float | None:
    """Return a text with undecodable bytes replaced: SQLite refuses it otherwise, and no record contains any."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _refresh(
    database: sqlite3.Connection,
    sessions: Path,
    stamps: Mapping[str, RecordStamp],
    read_summary: ReadSummary,
    deadline: float = math.inf,
) -> int:
    """Update the rows from the changed records, the latest first, in one short transaction.

    Return the number of changed records that were not read before the deadline.
    """
    rows = database.execute(
        "SELECT folder, size, changed, settled, CASE settled WHEN 0 THEN summary END FROM sessions"
    )
    known = {folder: (size, changed, settled, summary) for folder, size, changed, settled, summary in rows}
    removed = known.keys() - stamps.keys()
    fresh = []
    # An unsettled row is never trusted: its run may end with its process, without a change of the record.
    changed = [
        folder for folder, stamp in stamps.items() if known.get(folder) != (stamp.size, stamp.changed, 1, None)
    ]
    changed.sort(key=lambda folder: -stamps[folder].changed)
    left = len(changed)
    for folder in changed:
        if left < len(changed) and time.monotonic() > deadline:
            break  # at least one was read: every step advances
        left -= 1
        found = read_summary(sessions / folder)
        if found is None:
            removed |= {folder} & known.keys()
            continue
        row = _row(folder, stamps[folder], found)
        if known.get(folder) != (stamps[folder].size, stamps[folder].changed, int(found.settled), row[-1]):
            fresh.append(row)
    if fresh or removed:
        with database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(_WRITE, fresh)
            database.executemany("DELETE FROM sessions WHERE folder = ?", [(folder,) for folder in removed])
    return left


def _row(folder: str, stamp: RecordStamp, found: CachedSummary) -> tuple[str | int | float | bytes | None, ...]:
    summary = found.summary
    return (
        folder,
        stamp.size,
        stamp.changed,
        int(found.settled),
        summary.session,
        summary.updated,
        summary.root,
        None if summary.begun_in == summary.root else summary.begun_in,
        summary.agent,
        summary.engine,
        summary.latest.state.value,
        summary.latest.outcome.value,
        summary.model,
        summary.cwd,
        summary.latest.usage.cost,
        summary.latest.elapsed,
        encode_summary(summary),
    )
