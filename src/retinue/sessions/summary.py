"""Summarize a session from the head and the tail of its record: the cost does not grow with the record's size.

The index stores summaries as JSON, compressed with what all of them have in common.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.model.errors import ErrorCode, Failure
from retinue.model.event_codec import EventRecord
from retinue.model.events import MessageEnded, RunEnded, RunQueued, RunStarted, Text
from retinue.model.results import Usage, compute_exit_code
from retinue.output.untrusted_text import first_prose_sentence
from retinue.sessions import storage_errors as faults
from retinue.sessions.paths import RunLocation, StateLayout
from retinue.sessions.reader import (
    RunStart,
    count_torn_records,
    find_run_location,
    find_start,
    read_header,
    read_record_backwards,
    read_run_start,
)
from retinue.sessions.segments import (
    BLOCK_BYTES,
    NewerVersion,
    RecordDecoder,
    SegmentCursor,
    SegmentedFile,
    SegmentHeader,
)
from retinue.sessions.store import INTERRUPTED, RunSummary, SessionState, SessionSummary

IsLive = Callable[[str], bool]
"""Returns whether a live process holds the lease of a session."""

_STATE_EVENTS = (RunQueued, RunStarted, RunEnded)
"""Events that change the state of a run."""
_START_MARKERS = (b'"type":"run_queued"', b'"type":"run_started"')
_UNKNOWN_NAME = "(unknown)"
_MAX_PREVIEW_CHARS = 200


class CachedSummary(Struct, frozen=True):
    """A session's summary, and whether it stays valid while the record does not change."""

    summary: SessionSummary
    settled: bool


def find_summary(layout: StateLayout, folder: Path, is_live: IsLive) -> CachedSummary | None:
    """Return the summary of the session in a folder; None if the folder has no event."""
    segments = SegmentedFile(folder)
    try:
        found = read_summary(layout, folder, is_live)
        if found is None:
            return None
        files = segments.list_files()
        if isinstance(found, SessionSummary):
            summary, settled = found, found.latest.ended is not None
        else:
            changed = max((path.stat().st_mtime for path in files), default=0.0)
            failure = faults.too_new_failure(folder.name, found)
            summary, settled = _unreadable_summary(folder.name, changed, failure), True
        size = sum(path.stat().st_size for path in files)
        return CachedSummary(replace(summary, file=str(segments.newest), size_bytes=size), settled)
    except OSError as error:
        failure = faults.unreadable_failure(f"Session {folder.name}", error)
        return CachedSummary(_unreadable_summary(folder.name, 0.0, failure), settled=False)


def read_summary(layout: StateLayout, folder: Path, is_live: IsLive) -> SessionSummary | NewerVersion | None:
    """Summarize the record in a folder, without its file and size; None if it has no event."""
    segments = SegmentedFile(folder)
    head = read_header(segments)
    if not isinstance(head, SegmentHeader):
        return head
    decoder = RecordDecoder(head.id)
    tail = _read_tail(segments, head, decoder)
    if not tail:
        return None
    run = tail[0].origin.run
    location = find_run_location(layout, segments, head, run)
    run_start = (location and read_run_start(segments, location, run)) or _scan_for_run_start(segments, head, run)
    first = None if run == head.id else read_run_start(segments, RunLocation(1, find_start(segments, head)), head.id)
    damaged = decoder.damaged_count + count_torn_records(folder)
    return _build_summary(head.id, head.created, run_start, tail, is_live, first=first, damaged=damaged)


def _read_tail(segments: SegmentedFile, head: SegmentHeader, decoder: RecordDecoder) -> list[EventRecord]:
    """Return the last events, newest first: back to a change of state, or within the last block."""
    found: list[EventRecord] = []
    seen = 0
    for i, (_, line) in enumerate(read_record_backwards(segments, head)):
        # No newline follows the first piece: it may be a record that is being written right now.
        events: Iterable[EventRecord] = (
            decoder.decode_events(line) if i else filter(None, [decoder.decode_event(line)])
        )
        found.extend(reversed(list(events)))
        seen += len(line)
        if found and (isinstance(found[-1].event, _STATE_EVENTS) or seen > BLOCK_BYTES):
            break
    return found


def _scan_for_run_start(segments: SegmentedFile, head: SegmentHeader, run: str) -> RunStart | None:
    """Search the whole record for the start of a run: needed if its claim was lost or is no longer true."""
    cursor = SegmentCursor(segments, find_start(segments, head))
    decoder = RecordDecoder(head.id)
    runs: list[EventRecord] = []
    started = None
    while lines := cursor.read():
        for line in lines:
            if any(mark in line for mark in _START_MARKERS) and (record := decoder.decode_event(line)):
                if isinstance(record.event, RunQueued):
                    runs.append(record)
                elif record.origin.run == run:
                    started = record
    numbered = ((number, queued) for number, queued in enumerate(runs, 1) if queued.origin.run == run)
    return next((RunStart(number, queued, started) for number, queued in numbered), None)


def summarize_events(session: str, events: Sequence[EventRecord], *, is_live: bool) -> SessionSummary | None:
    """Summarize a session from all its events; None if there are none."""
    if not events:
        return None
    run = events[-1].origin.run
    queued = [record for record in events if isinstance(record.event, RunQueued)]
    started = (each for each in events if isinstance(each.event, RunStarted) and each.origin.run == run)
    run_start = RunStart(len(queued), queued[-1], next(started, None)) if queued else None
    first = RunStart(1, queued[0]) if queued else None
    return _build_summary(session, events[0].time, run_start, reversed(events), lambda _: is_live, first=first)


def _build_summary(
    session: str,
    created: float,
    run_start: RunStart | None,
    newest_first: Iterable[EventRecord],
    is_live: IsLive,
    *,
    first: RunStart | None = None,
    damaged: int = 0,
) -> SessionSummary:
    """Summarize a session from the start of its latest run, None if that is lost, and its last events.

    `first` is the start of the first run, if that is another. A run without an end and without a live owner was
    interrupted.
    """
    tail = list(newest_first)
    run_start = run_start or RunStart(1, _make_unknown_queued(tail[-1]))
    queued = run_start.queued.event
    assert isinstance(queued, RunQueued)
    change = next((record for record in tail if isinstance(record.event, _STATE_EVENTS)), None)
    ended = change.event if change and isinstance(change.event, RunEnded) else None
    latest = _summarize_run(run_start, tail, change, is_live)
    last_text = next((record.event.text for record in tail if isinstance(record.event, Text)), "")
    origin = (first or run_start).queued.origin
    return SessionSummary(
        session=session,
        name=queued.name,
        agent=queued.agent,
        task=queued.task,
        cwd=queued.cwd,
        surface=queued.surface,
        engine=queued.engine,
        model=(ended.actual.model if ended else _find_last_model(tail)) or queued.model,
        provider=queued.provider,
        root=run_start.queued.origin.root,
        begun_in=origin.root,
        parent_run=origin.parent_run,
        parent_call=origin.parent_tool_use_id,
        depth=origin.depth,
        timeout=queued.timeout,
        created=created,
        updated=tail[0].time,
        runs=run_start.number,
        latest=latest,
        preview=_preview(latest.failure.message if latest.failure else ended.text if ended else last_text),
        damaged=damaged,
    )


def _summarize_run(
    run_start: RunStart, tail: list[EventRecord], change: EventRecord | None, is_live: IsLive
) -> RunSummary:
    """Summarize the latest run from its start, the last events, and the last of these that changed its state."""
    last = tail[0]
    queued = run_start.queued.time
    if change and isinstance(ended := change.event, RunEnded):
        return RunSummary(
            run=last.origin.run,
            state=SessionState.ERROR if ended.failure else SessionState.COMPLETED,
            started=run_start.started.time if run_start.started else queued,
            ended=change.time,
            elapsed=ended.elapsed,
            failure=ended.failure,
            exit_code=ended.exit_code,
            usage=ended.usage,
            queued=queued,
            tools=sum(ended.actual.tools_used.values()),
        )
    started = run_start.started
    if change is None or isinstance(change.event, RunStarted):
        # No change of state among the last events means that the run started long ago.
        started = started or change or run_start.queued
    failure = None if is_live(last.origin.session) else INTERRUPTED
    return RunSummary(
        run=last.origin.run,
        state=SessionState.ERROR if failure else SessionState.RUNNING if started else SessionState.QUEUED,
        started=started.time if started else queued,
        elapsed=max(0.0, last.time - started.time) if started else 0.0,
        failure=failure,
        exit_code=compute_exit_code(failure),
        queued=queued,
    )


def _find_last_model(newest_first: list[EventRecord]) -> str | None:
    """Return the model named by the latest message of the latest run, if one is near the end."""
    for record in newest_first:
        event = record.event
        if isinstance(event, MessageEnded) and event.model and record.origin.run == newest_first[0].origin.run:
            return event.model
    return None


def _make_unknown_queued(record: EventRecord) -> EventRecord:
    """Return a substitute for a `run_queued` that was lost."""
    queued = RunQueued(name=_UNKNOWN_NAME, agent=_UNKNOWN_NAME, task="", cwd="", surface="")
    return EventRecord(record.origin, 0, record.time, queued)


def _unreadable_summary(name: str, changed: float, failure: Failure) -> SessionSummary:
    """Return the list entry of a session whose record this program cannot read."""
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
        preview=_preview(failure.message),
    )


def _preview(text: str) -> str:
    return first_prose_sentence(text[: 8 * _MAX_PREVIEW_CHARS])[:_MAX_PREVIEW_CHARS]


_COMPRESSION_LEVEL = 1
"""Higher levels take longer and save a hundredth."""


class SummaryDecodeError(Exception):
    """Bytes are no encoded summary of this version."""


def encode_summary(summary: SessionSummary) -> bytes:
    """Return the stored form of a summary; equal summaries have equal forms."""
    compressor = zlib.compressobj(_COMPRESSION_LEVEL, zdict=_make_dictionary())
    return compressor.compress(msgspec.json.encode(summary)) + compressor.flush()


def decode_summaries(encoded: Iterable[bytes]) -> Sequence[SessionSummary]:
    """Return the summaries of stored forms, in the same order.

    Raises:
        SummaryDecodeError: one is damaged or of a version with other fields.
    """
    try:
        texts = [_decompress(each) for each in encoded]
        # Joined as one array: one decoder call for each of thousands would cost more than the query.
        return msgspec.json.decode(b"[%b]" % b",".join(texts), type=list[SessionSummary])
    except (zlib.error, msgspec.MsgspecError) as error:
        raise SummaryDecodeError(str(error)) from error


def _decompress(encoded: bytes) -> bytes:
    return zlib.decompressobj(zdict=_make_dictionary()).decompress(encoded)


@cache
def _make_dictionary() -> bytes:
    """Return the fields of a summary with common values. Decompression refuses what was made with another one."""
    usage = Usage(input=1, output=1, cache_read=1, cache_write=1, cost=0.01, turns=1)
    common = SessionSummary(
        session="",
        name="researcher",
        agent="implementer",
        task="",
        cwd="/home/",
        surface="",
        engine="",
        root="",
        timeout=900.0,
        created=1.0,
        updated=1.0,
        runs=1,
        latest=RunSummary(run="", state=SessionState.COMPLETED, started=1.0, usage=usage),
        file="/.local/state/retinue/sessions//session.jsonl",
    )
    failed = Failure(ErrorCode.TIMEOUT, "")
    rare = replace(common, latest=replace(common.latest, state=SessionState.ERROR, failure=failed))
    return msgspec.json.encode(rare) + msgspec.json.encode(common)
