"""Finds what is known of a session in the head and the tail of its record: the cost does not grow with its size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.events import RunQueued, RunStarted, Stamped
from retinue.sessions import faults
from retinue.sessions.claims import Place, read_claim
from retinue.sessions.framing import Decoder, Header, Newer
from retinue.sessions.parts import BLOCK_BYTES, Cursor, Parts, Position
from retinue.sessions.paths import Layout
from retinue.sessions.reading import beginning, lines_backwards, read_header, session_parts, torn_count
from retinue.sessions.store import SessionSummary
from retinue.sessions.summary import CHANGES, Facts, facts_of, summary_of, unknown_queued, unreadable_summary

_FIRST_LINES = 4
"""Within these a run's beginning shows: header, queued, started."""
_BEGINNINGS = (b'"type":"run_queued"', b'"type":"run_started"')

Beginning = tuple[int, Stamped, Stamped | None]
"""The number of a run, its `run_queued`, and its `run_started` if it is near."""


class Found(Struct, frozen=True):
    """A session's summary, and whether it stays true while the record does not change."""

    summary: SessionSummary
    settled: bool


def find_summary(layout: Layout, folder: Path, is_live: Callable[[str], bool]) -> Found | None:
    """The summary of the session in a folder; None if none has begun there."""
    try:
        return _find_summary(layout, folder, is_live)
    except OSError as error:
        failure = faults.unreadable(folder.name, error)
        return Found(unreadable_summary(folder.name, 0.0, failure), settled=False)


def _find_summary(layout: Layout, folder: Path, is_live: Callable[[str], bool]) -> Found | None:
    facts = read_facts(layout, folder)
    parts = session_parts(folder)
    match facts:
        case None:
            return None
        case Newer():
            failure = faults.too_new(folder.name, facts)
            summary = unreadable_summary(folder.name, parts.newest.stat().st_mtime, failure)
        case Facts():
            summary = summary_of(facts, live=facts.ended is None and is_live(facts.session))
    paths = (parts.newest, *map(parts.path, parts.older()))
    size = sum(path.stat().st_size for path in paths if path.exists())
    summary = replace(summary, file=str(parts.newest), size_bytes=size)
    return Found(summary, settled=not isinstance(facts, Facts) or facts.ended is not None)


def read_facts(layout: Layout, folder: Path) -> Facts | Newer | None:
    """What the record in a folder says; None if it holds no event."""
    parts = session_parts(folder)
    head = read_header(parts)
    if not isinstance(head, Header):
        return head
    decoder = Decoder(head.id)
    tail = _tail(parts, head, decoder)
    if not tail:
        return None
    run = tail[0].origin.run
    place = _find_place(layout, parts, head, run)
    begins = (
        (place and _at(parts, place, run)) or _by_reading(parts, head, run) or (1, unknown_queued(tail[-1]), None)
    )
    return facts_of(head.id, head.created, begins, tail, decoder.damaged + torn_count(folder))


def _find_place(layout: Layout, parts: Parts, head: Header, run: str) -> Place | None:
    """Where a run should begin; None where its claim is lost or silent."""
    if run == head.id:
        return Place(1, beginning(parts, head))
    claimed = read_claim(layout.session(run))
    return claimed[1] if claimed and claimed[0].session == head.id and claimed[0].run == run else None


def find_beginning(layout: Layout, run: str, parts: Parts, head: Header) -> Position | None:
    """Where a run really begins; None where that is not known. Pruning moves what it keeps."""
    place = _find_place(layout, parts, head, run)
    return place.at if place and _at(parts, place, run) else None


def _tail(parts: Parts, head: Header, decoder: Decoder) -> list[Stamped]:
    """The last events, newest first: back to a change of state, or as far as one block goes."""
    found: list[Stamped] = []
    seen = 0
    for i, (_, line) in enumerate(lines_backwards(parts, head)):
        # The first piece has no newline behind it: it may be a record that is being written at this moment.
        events: Iterable[Stamped] = decoder.events(line) if i else filter(None, [decoder.event(line)])
        found.extend(reversed(list(events)))
        seen += len(line)
        if found and (isinstance(found[-1].event, CHANGES) or seen > BLOCK_BYTES):
            break
    return found


def _at(parts: Parts, place: Place, run: str) -> Beginning | None:
    decoder = Decoder()
    lines = Cursor(parts, place.at, BLOCK_BYTES).read()[:_FIRST_LINES]
    events = [event for line in lines if (event := decoder.event(line)) and event.origin.run == run]
    queued = next((event for event in events if isinstance(event.event, RunQueued)), None)
    started = next((event for event in events if isinstance(event.event, RunStarted)), None)
    return (place.number, queued, started) if queued else None


def _by_reading(parts: Parts, head: Header, run: str) -> Beginning | None:
    """Reads the record through: the last resort where a claim was lost or what it says no longer holds."""
    cursor = Cursor(parts, beginning(parts, head))
    decoder = Decoder(head.id)
    runs: list[Stamped] = []
    started = None
    while lines := cursor.read():
        for line in lines:
            if any(mark in line for mark in _BEGINNINGS) and (stamped := decoder.event(line)):
                if isinstance(stamped.event, RunQueued):
                    runs.append(stamped)
                elif stamped.origin.run == run:
                    started = stamped
    for number, queued in enumerate(runs, 1):
        if queued.origin.run == run:
            return number, queued, started
    return None
