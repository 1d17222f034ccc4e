"""What a list shows of a session, from the head and the tail of its record: the cost does not grow with its size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.model.errors import Failure
from retinue.model.event_codec import EventRecord
from retinue.model.events import MessageEnded, RunEnded, RunQueued, RunStarted, Text
from retinue.model.results import compute_exit_code
from retinue.sessions import storage_errors as faults
from retinue.sessions.ids import RunLocation, read_run_pointer
from retinue.sessions.paths import StateLayout, parse_id_digits
from retinue.sessions.reader import count_torn_records, find_start, read_header, read_record_backwards
from retinue.sessions.record_format import NewerVersion, RecordDecoder, SegmentHeader
from retinue.sessions.segments import BLOCK_BYTES, RecordPosition, SegmentCursor, SegmentedFile, session_segments
from retinue.sessions.store import INTERRUPTED, RunSummary, SessionState, SessionSummary

_STATE_EVENTS = (RunQueued, RunStarted, RunEnded)
"""Events that tell which state a run is in."""
_MAX_FIRST_LINES = 4
"""Within these a run's beginning shows: header, queued, started."""
_START_MARKERS = (b'"type":"run_queued"', b'"type":"run_started"')
_UNKNOWN_NAME = "(unknown)"
_MAX_PREVIEW_CHARS = 200
"""Characters of a preview."""


class CachedSummary(Struct, frozen=True):
    """A session's summary, and whether it stays true while the record does not change."""

    summary: SessionSummary
    settled: bool


class RunStart(Struct, frozen=True):
    """How a run begins."""

    number: int
    """1 for the session's first run."""
    queued: EventRecord
    started: EventRecord | None = None
    """If it is near."""


class SessionFacts(Struct, frozen=True, kw_only=True):
    """A session by its events: the beginning of its latest run, and how far that has come."""

    session: str
    created: float
    number: int
    """Of the latest run, from 1."""
    queued: EventRecord
    first: EventRecord
    """How its first run begins, where that is kept; else the latest."""
    started: EventRecord | None
    last: EventRecord
    ended: EventRecord | None
    last_text: str = ""
    """The latest text, as far as it stands near the end."""
    model: str | None = None
    """Of the latest message of the latest run, in the same way."""
    damaged: int = 0


# -- of files --------------------------------------------------------------------------------------


def find_summary(layout: StateLayout, folder: Path, is_live: Callable[[str], bool]) -> CachedSummary | None:
    """The summary of the session in a folder; None if none has begun there."""
    try:
        return _find_summary(layout, folder, is_live)
    except OSError as error:
        failure = faults.unreadable_failure(f"Session {folder.name}", error)
        return CachedSummary(_unreadable_summary(folder.name, 0.0, failure), settled=False)


def _find_summary(layout: StateLayout, folder: Path, is_live: Callable[[str], bool]) -> CachedSummary | None:
    facts = read_session_facts(layout, folder)
    files = session_segments(folder).list_files()
    match facts:
        case None:
            return None
        case NewerVersion():
            failure = faults.too_new_failure(folder.name, facts)
            summary = _unreadable_summary(
                folder.name, max((path.stat().st_mtime for path in files), default=0.0), failure
            )
        case SessionFacts():
            summary = build_summary(facts, live=facts.ended is None and is_live(facts.session))
    summary = replace(
        summary, file=str(session_segments(folder).newest), size_bytes=sum(path.stat().st_size for path in files)
    )
    return CachedSummary(summary, settled=not isinstance(facts, SessionFacts) or facts.ended is not None)


def read_session_facts(layout: StateLayout, folder: Path) -> SessionFacts | NewerVersion | None:
    """What the record in a folder says; None if it holds no event."""
    parts = session_segments(folder)
    head = read_header(parts)
    if not isinstance(head, SegmentHeader):
        return head
    decoder = RecordDecoder(head.id)
    tail = _read_tail(parts, head, decoder)
    if not tail:
        return None
    run = tail[0].origin.run
    location = _find_location(layout, parts, head, run)
    run_start = (location and _read_run_start(parts, location, run)) or _scan_for_run_start(parts, head, run)
    first = None if run == head.id else _read_run_start(parts, RunLocation(1, find_start(parts, head)), head.id)
    return build_facts(
        head.id,
        head.created,
        run_start,
        tail,
        damaged=decoder.damaged_count + count_torn_records(folder),
        first=first,
    )


def find_run_start(layout: StateLayout, run: str, parts: SegmentedFile, head: SegmentHeader) -> RecordPosition | None:
    """Where a run really begins; None where that is not known. Pruning moves what it keeps."""
    location = _find_location(layout, parts, head, run)
    return location.at if location and _read_run_start(parts, location, run) else None


def _find_location(layout: StateLayout, parts: SegmentedFile, head: SegmentHeader, run: str) -> RunLocation | None:
    """Where a run should begin; None where its claim is lost or silent."""
    if run == head.id:
        return RunLocation(1, find_start(parts, head))
    claimed = read_run_pointer(layout.session(run)) if parse_id_digits(run) else None
    return claimed[1] if claimed and claimed[0].session == head.id and claimed[0].run == run else None


def _read_tail(parts: SegmentedFile, head: SegmentHeader, decoder: RecordDecoder) -> list[EventRecord]:
    """The last events, newest first: back to a change of state, or as far as one block goes."""
    found: list[EventRecord] = []
    seen = 0
    for i, (_, line) in enumerate(read_record_backwards(parts, head)):
        # The first piece has no newline behind it: it may be a record that is being written at this moment.
        events: Iterable[EventRecord] = (
            decoder.decode_events(line) if i else filter(None, [decoder.decode_event(line)])
        )
        found.extend(reversed(list(events)))
        seen += len(line)
        if found and (isinstance(found[-1].event, _STATE_EVENTS) or seen > BLOCK_BYTES):
            break
    return found


def _read_run_start(parts: SegmentedFile, location: RunLocation, run: str) -> RunStart | None:
    """The beginning of a run, if it is really there."""
    decoder = RecordDecoder()
    lines = SegmentCursor(parts, location.at, BLOCK_BYTES).read()[:_MAX_FIRST_LINES]
    events = [event for line in lines if (event := decoder.decode_event(line)) and event.origin.run == run]
    queued = next((event for event in events if isinstance(event.event, RunQueued)), None)
    started = next((event for event in events if isinstance(event.event, RunStarted)), None)
    return RunStart(location.number, queued, started) if queued else None


def _scan_for_run_start(parts: SegmentedFile, head: SegmentHeader, run: str) -> RunStart | None:
    """Reads the record through: the last resort where a claim was lost or what it says no longer holds."""
    cursor = SegmentCursor(parts, find_start(parts, head))
    decoder = RecordDecoder(head.id)
    runs: list[EventRecord] = []
    started = None
    while lines := cursor.read():
        for line in lines:
            if any(mark in line for mark in _START_MARKERS) and (stamped := decoder.decode_event(line)):
                if isinstance(stamped.event, RunQueued):
                    runs.append(stamped)
                elif stamped.origin.run == run:
                    started = stamped
    for number, queued in enumerate(runs, 1):
        if queued.origin.run == run:
            return RunStart(number, queued, started)
    return None


# -- of events, wherever they are kept -------------------------------------------------------------


def build_facts(
    session: str,
    created: float,
    run_start: RunStart | None,
    newest_first: Iterable[EventRecord],
    *,
    first: RunStart | None = None,
    damaged: int = 0,
) -> SessionFacts:
    """Puts together how the latest run begins, None if that is lost, and the last events of the record.

    `first` is how the first run begins, if it is another.
    """
    tail = list(newest_first)
    run_start = run_start or RunStart(1, _make_unknown_queued(tail[-1]))
    change = next((stamped for stamped in tail if isinstance(stamped.event, _STATE_EVENTS)), None)
    started = run_start.started
    if change is None or isinstance(change.event, RunStarted):
        # No change of state in sight means that it has long been running.
        started = started or change or run_start.queued
    return SessionFacts(
        session=session,
        created=created,
        number=run_start.number,
        queued=run_start.queued,
        first=(first or run_start).queued,
        started=started,
        last=tail[0],
        ended=change if change and isinstance(change.event, RunEnded) else None,
        last_text=next((stamped.event.text for stamped in tail if isinstance(stamped.event, Text)), ""),
        model=next(_models(tail), None),
        damaged=damaged,
    )


def _models(newest_first: Sequence[EventRecord]) -> Iterator[str]:
    """The models that the messages of the latest run name, newest first."""
    for stamped in newest_first:
        event = stamped.event
        if isinstance(event, MessageEnded) and event.model and stamped.origin.run == newest_first[0].origin.run:
            yield event.model


def build_summary(facts: SessionFacts, *, live: bool) -> SessionSummary:
    """The summary of a session; a run that has not ended and has no live owner was interrupted."""
    queued = facts.queued.event
    assert isinstance(queued, RunQueued)
    ended = _find_run_end(facts)
    latest = _build_run_summary(facts, live=live)
    location = facts.first.origin
    return SessionSummary(
        session=facts.session,
        name=queued.name,
        agent=queued.agent,
        task=queued.task,
        cwd=queued.cwd,
        surface=queued.surface,
        engine=queued.engine,
        model=(ended.actual.model if ended else facts.model) or queued.model,
        provider=queued.provider,
        root=facts.queued.origin.root,
        begun_in=location.root,
        parent_run=location.parent_run,
        parent_call=location.parent_tool_use_id,
        depth=location.depth,
        timeout=queued.timeout,
        created=facts.created,
        updated=facts.last.time,
        runs=facts.number,
        latest=latest,
        preview=_preview_line(latest.failure.message if latest.failure else ended.text if ended else facts.last_text),
        damaged=facts.damaged,
    )


def _make_unknown_queued(stamped: EventRecord) -> EventRecord:
    """Stands for the `run_queued` of a run that has lost it."""
    queued = RunQueued(name=_UNKNOWN_NAME, agent=_UNKNOWN_NAME, task="", cwd="", surface="")
    return EventRecord(stamped.origin, 0, stamped.time, queued)


def _build_run_summary(facts: SessionFacts, *, live: bool) -> RunSummary:
    run = facts.last.origin.run
    started = facts.started or facts.queued
    ended = _find_run_end(facts)
    if ended and facts.ended:
        return RunSummary(
            run=run,
            state=SessionState.ERROR if ended.failure else SessionState.COMPLETED,
            started=started.time,
            ended=facts.ended.time,
            elapsed=ended.elapsed,
            failure=ended.failure,
            exit_code=ended.exit_code,
            usage=ended.usage,
            queued=facts.queued.time,
            tools=sum(ended.actual.tools_used.values()),
        )
    failure = None if live else INTERRUPTED
    return RunSummary(
        run=run,
        state=SessionState.ERROR if failure else SessionState.RUNNING if facts.started else SessionState.QUEUED,
        started=started.time,
        elapsed=max(0.0, facts.last.time - started.time) if facts.started else 0.0,
        failure=failure,
        exit_code=compute_exit_code(failure),
        queued=facts.queued.time,
    )


def _find_run_end(facts: SessionFacts) -> RunEnded | None:
    event = facts.ended.event if facts.ended else None
    return event if isinstance(event, RunEnded) else None


def _unreadable_summary(name: str, changed: float, failure: Failure) -> SessionSummary:
    """Stands in a list for a session whose record this program cannot read."""
    return SessionSummary(
        session=name,
        name=_UNKNOWN_NAME,
        agent=_UNKNOWN_NAME,
        task="",
        cwd="",
        surface="",
        engine="",
        root="",
        created=changed,
        updated=changed,
        runs=0,
        latest=RunSummary(run=name, state=SessionState.ERROR, started=changed, failure=failure, exit_code=1),
        preview=_preview_line(failure.message),
    )


def _preview_line(text: str) -> str:
    return next((line.strip() for line in text[: 8 * _MAX_PREVIEW_CHARS].split("\n") if line.strip()), "")[
        :_MAX_PREVIEW_CHARS
    ]
