"""The full-text index of sessions: which sessions may have a text. The records decide which do.

It has the trigrams of each session's texts, without their positions, and no text: a fraction of the records' size.
Reading the few records that may match confirms each and returns the place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.sessions.search import MIN_SEARCHED_CHARS, SearchText
from retinue.sessions.store import normalize_search_text

if TYPE_CHECKING:
    import sqlite3

MAX_QUERY_TRIGRAMS = 40
"""Trigrams of a text that the index looks up; the record is compared with the whole text."""
BATCH_SESSIONS = 200
"""Sessions in one transaction: what a killed process has to read again."""
BATCH_CHARS = 8_000_000
MAX_OUTDATED = 1_000
"""Outdated documents that may stay before they are discarded with the whole index."""

_CREATE = """
BEGIN IMMEDIATE;
DROP TABLE IF EXISTS documents;
CREATE VIRTUAL TABLE texts USING fts5(
    body, content='', detail=none, columnsize=0, tokenize='{tokenizer} case_sensitive 1');
CREATE TABLE documents (
    document INTEGER PRIMARY KEY AUTOINCREMENT, folder TEXT, outdated INTEGER DEFAULT 0, size INTEGER,
    changed INTEGER, chars INTEGER, digest BLOB, UNIQUE (folder, outdated));
COMMIT;
"""
_STALE = """
SELECT s.folder, s.size, s.changed FROM sessions s LEFT JOIN documents d ON d.folder = s.folder AND NOT d.outdated
WHERE d.folder IS NULL OR d.size <> s.size OR d.changed <> s.changed ORDER BY s.changed DESC
"""
_PRUNED = """
SELECT 1 FROM documents d LEFT JOIN sessions s USING (folder) WHERE s.folder IS NULL OR s.size < d.size LIMIT 1
"""
_COUNT_OUTDATED = "SELECT count(*) FROM documents WHERE outdated"
_FIND = "SELECT document, chars, digest FROM documents WHERE folder = ? AND NOT outdated"
_HAS_OUTDATED = "SELECT 1 FROM documents WHERE folder = ? AND outdated"
_MARK_OUTDATED = "UPDATE documents SET outdated = document WHERE document = ?"
_WRITE = "INSERT INTO documents (document, folder, size, changed, chars, digest) VALUES (?, ?, ?, ?, ?, ?)"
_CANDIDATES = """folder IN (
    SELECT folder FROM documents
    WHERE NOT outdated AND document IN (SELECT rowid FROM texts WHERE texts MATCH :trigrams))"""

ReadTexts = Callable[[Path], Iterable[SearchText]]
"""Reads the texts of the record in a folder."""


class StaleDocument(Struct, frozen=True):
    """A session whose record changed since its texts were indexed."""

    folder: str
    size: int
    changed: int


class IndexedText(Struct, frozen=True):
    """The texts of a session, ready to be written."""

    document: StaleDocument
    body: str


def create_tables(database: sqlite3.Connection, tokenizer: str) -> bool:
    """Create the tables if they are missing; return whether SQLite has full-text search with this tokenizer."""
    import sqlite3

    try:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'texts'").fetchone():
            database.executescript(_CREATE.format(tokenizer=tokenizer))
        database.execute("SELECT rowid FROM texts LIMIT 0")
    except sqlite3.OperationalError as error:
        if database.in_transaction:
            database.rollback()
        if str(error).startswith(("no such module", "no such tokenizer", "error in tokenizer")):
            return False
        raise
    return True


def discard_pruned(database: sqlite3.Connection) -> None:
    """Empty the index if it has texts of a session that was deleted or thinned, which `remove_texts` did not remove.

    A contentless table deletes a row only with the text it was made of, and that is gone. Also empty it if too many
    documents are outdated.
    """
    (outdated,) = database.execute(_COUNT_OUTDATED).fetchone()
    if outdated > MAX_OUTDATED or database.execute(_PRUNED).fetchone():
        with database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO texts(texts) VALUES ('delete-all')")
            database.execute("DELETE FROM documents")
            database.execute("DELETE FROM sqlite_sequence WHERE name = 'documents'")


def find_stale(database: sqlite3.Connection) -> list[StaleDocument]:
    """Return the sessions whose texts are not indexed as they are now, last changed first."""
    return [StaleDocument(*row) for row in database.execute(_STALE)]


def read_batch(
    sessions: Path, stale: Sequence[StaleDocument], read_texts: ReadTexts, deadline: float
) -> list[IndexedText]:
    """Read the texts of the first stale sessions: one batch, or those read before the deadline, at least one."""
    batch: list[IndexedText] = []
    size = 0
    for document in stale[:BATCH_SESSIONS]:
        batch.append(IndexedText(document, _read_body(sessions / document.folder, read_texts)))
        size += len(batch[-1].body)
        if size > BATCH_CHARS or time.monotonic() > deadline:
            break
    return batch


def _read_body(folder: Path, read_texts: ReadTexts) -> str:
    return "\n".join(normalize_search_text(text) for _, text in read_texts(folder))


def write_batch(database: sqlite3.Connection, batch: Sequence[IndexedText]) -> None:
    """Write texts to the index in one transaction, in place of those of earlier states of the same records."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        for text in batch:
            document, body = text.document, text.body
            number = None
            if known := _find_document(database, document.folder):
                # A record only grows: what was indexed before is nearly always the beginning of its text.
                is_removed = _delete_row(database, known, body[: known.chars])
                number = known.number if is_removed else None
                if not is_removed:
                    database.execute(_MARK_OUTDATED, (known.number,))
            row = (number, document.folder, document.size, document.changed, len(body), _make_digest(body))
            number = database.execute(_WRITE, row).lastrowid
            database.execute("INSERT INTO texts (rowid, body) VALUES (?, ?)", (number, body))


class PrunedTexts:
    """Removes the texts of sessions from the index, read just before they are pruned, in batches."""

    def __init__(self, read_texts: ReadTexts, write: Callable[[Mapping[str, str]], None]) -> None:
        self._read_texts = read_texts
        self._write = write
        self._bodies: dict[str, str] = {}
        self._size = 0

    def add(self, folder: Path) -> None:
        """Read the texts of the session in a folder."""
        self._bodies[folder.name] = body = _read_body(folder, self._read_texts)
        self._size += len(body)
        if len(self._bodies) >= BATCH_SESSIONS or self._size > BATCH_CHARS:
            self.flush()

    def flush(self) -> None:
        """Remove what was read."""
        bodies, self._bodies, self._size = self._bodies, {}, 0
        if bodies:
            self._write(bodies)


def remove_texts(database: sqlite3.Connection, bodies: Mapping[str, str]) -> None:
    """Remove the texts of sessions by folder; leave what was not made of these texts, for `discard_pruned`."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        for folder, body in bodies.items():
            known = _find_document(database, folder)
            if known and not database.execute(_HAS_OUTDATED, (folder,)).fetchone():
                _delete_row(database, known, body)


def reclaim_space(database: sqlite3.Connection) -> None:
    """Shrink the index to what it has: pruned records must not leave an index larger than the others need."""
    database.execute("INSERT INTO texts(texts) VALUES ('optimize')")
    database.execute("VACUUM")


class _Document(Struct, frozen=True):
    """A row of the index and what it was made of."""

    number: int
    chars: int
    digest: bytes


def _find_document(database: sqlite3.Connection, folder: str) -> _Document | None:
    row = database.execute(_FIND, (folder,)).fetchone()
    return _Document(*row) if row else None


def _delete_row(database: sqlite3.Connection, document: _Document, body: str) -> bool:
    """Delete a row that was made of this text; return whether it was: another text would damage the index."""
    if len(body) != document.chars or _make_digest(body) != document.digest:
        return False
    database.execute("INSERT INTO texts (texts, rowid, body) VALUES ('delete', ?, ?)", (document.number, body))
    database.execute("DELETE FROM documents WHERE document = ?", (document.number,))
    return True


def _make_digest(body: str) -> bytes:
    return blake2b(body.encode("utf-8", "replace"), digest_size=8).digest()


def make_condition(wanted: str) -> tuple[str, str]:
    """Return an SQL condition on sessions that may have a normalized text, and its value.

    Each trigram is a quoted string: nothing in the text is an operator.
    """
    trigrams = [wanted[at : at + MIN_SEARCHED_CHARS] for at in range(len(wanted) - MIN_SEARCHED_CHARS + 1)]
    chosen = list(dict.fromkeys(trigrams[:: len(trigrams) // MAX_QUERY_TRIGRAMS + 1]))
    quoted = ('"' + trigram.replace('"', '""') + '"' for trigram in chosen)
    return _CANDIDATES, " AND ".join(quoted)
