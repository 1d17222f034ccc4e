"""The full-text index of sessions: which sessions may have a text. The records decide which do.

It has the trigrams of each session's texts, without their positions, and no text: a fraction of the records' size.
Reading the few records that may match confirms each and returns the place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
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
MAX_REPLACED = 1_000
"""Sessions that may be indexed again before the trigrams of their earlier states are discarded with the index."""

_CREATE = """
BEGIN IMMEDIATE;
DROP TABLE IF EXISTS documents;
CREATE VIRTUAL TABLE texts USING fts5(
    body, content='', detail=none, columnsize=0, tokenize='{tokenizer} case_sensitive 1');
CREATE TABLE documents (
    document INTEGER PRIMARY KEY AUTOINCREMENT, folder TEXT UNIQUE, size INTEGER, changed INTEGER);
COMMIT;
"""
_STALE = """
SELECT s.folder, s.size, s.changed FROM sessions s LEFT JOIN documents d USING (folder)
WHERE d.folder IS NULL OR d.size <> s.size OR d.changed <> s.changed ORDER BY s.changed DESC
"""
_PRUNED = """
SELECT 1 FROM documents d LEFT JOIN sessions s USING (folder) WHERE s.folder IS NULL OR s.size < d.size LIMIT 1
"""
_REPLACED = "SELECT coalesce(max(document), 0) - count(*) FROM documents"
_WRITE = "INSERT OR REPLACE INTO documents (folder, size, changed) VALUES (?, ?, ?)"
_CANDIDATES = (
    "folder IN (SELECT folder FROM documents WHERE document IN (SELECT rowid FROM texts WHERE texts MATCH :trigrams))"
)

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
    """Empty the index if a session was deleted or thinned, or too many were indexed again.

    A contentless table deletes no single row: SQLite would need the text that is gone.
    """
    (replaced,) = database.execute(_REPLACED).fetchone()
    if replaced > MAX_REPLACED or database.execute(_PRUNED).fetchone():
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
        texts = (normalize_search_text(text) for _, text in read_texts(sessions / document.folder))
        batch.append(IndexedText(document, "\n".join(texts)))
        size += len(batch[-1].body)
        if size > BATCH_CHARS or time.monotonic() > deadline:
            break
    return batch


def write_batch(database: sqlite3.Connection, batch: Sequence[IndexedText]) -> None:
    """Write texts to the index in one transaction."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        for text in batch:
            document = text.document
            number = database.execute(_WRITE, (document.folder, document.size, document.changed)).lastrowid
            database.execute("INSERT INTO texts (rowid, body) VALUES (?, ?)", (number, text.body))


def make_condition(wanted: str) -> tuple[str, str]:
    """Return an SQL condition on sessions that may have a normalized text, and its value.

    Each trigram is a quoted string: nothing in the text is an operator.
    """
    trigrams = [wanted[at : at + MIN_SEARCHED_CHARS] for at in range(len(wanted) - MIN_SEARCHED_CHARS + 1)]
    chosen = list(dict.fromkeys(trigrams[:: len(trigrams) // MAX_QUERY_TRIGRAMS + 1]))
    quoted = ('"' + trigram.replace('"', '""') + '"' for trigram in chosen)
    return _CANDIDATES, " AND ".join(quoted)
