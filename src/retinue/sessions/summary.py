"""What a list shows of a session, from the head and the tail of its record: the cost does not grow with its size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.events import MessageEnded, RunEnded, RunQueued, RunStarted, Stamped, Text
from retinue.results import exit_code
from retinue.sessions import faults
from retinue.sessions.claims import Place, read_claim
from retinue.sessions.framing import Decoder, Header, Newer
from retinue.sessions.parts import BLOCK_BYTES, Cursor, Parts, Position, session_parts
from retinue.sessions.paths import Layout, digits
from retinue.sessions.reading import beginning, lines_backwards, read_header, torn_count
from retinue.sessions.store import INTERRUPTED, RunSummary, SessionSummary, State
from retinue.types import Failure

_CHANGES = (RunQueued, RunStarted, RunEnded)
"""Events that tell which state a run is in."""
_FIRST_LINES = 4
"""Within these a run's beginning shows: header, queued, started."""
_BEGINNINGS = (b'"type":"run_queued"', b'"type":"run_started"')
_UNKNOWN = "(unknown)"
_PREVIEW = 200
"""Characters of a preview."""


class Found(Struct, frozen=True):
    """A session's summary, and whether it stays true while the record does not change."""

    summary: SessionSummary
    settled: bool


class Beginning(Struct, frozen=True):
    """How a run begins."""

    number: int
    """1 for the session's first run."""
    queued: Stamped
    started: Stamped | None = None
    """If it is near."""


class Facts(Struct, frozen=True, kw_only=True):
    """A session by its events: the beginning of its latest run, and how far that has come."""

    session: str
    created: float
    number: int
    """Of the latest run, from 1."""
    queued: Stamped
    first: Stamped
    """How its first run begins, where that is kept; else the latest."""
    started: Stamped | None
    last: Stamped
    ended: Stamped | None
    said: str = ""
    """The latest text, as far as it stands near the end."""
    model: str | None = None
    """Of the latest message of the latest run, in the same way."""
    damaged: int = 0


# -- of files --------------------------------------------------------------------------------------


def find_summary(layout: Layout, folder: Path, is_live: Callable[[str], bool]) -> Found | None:
    """The summary of the session in a folder; None if none has begun there."""
    try:
        return _find_summary(layout, folder, is_live)
    except OSError as error:
        failure = faults.unreadable(f"Session {folder.name}", error)
        return Found(_unreadable(folder.name, 0.0, failure), settled=False)


def _find_summary(layout: Layout, folder: Path, is_live: Callable[[str], bool]) -> Found | None:
    facts = read_facts(layout, folder)
    files = session_parts(folder).files()
    match facts:
        case None:
            return None
        case Newer():
            failure = faults.too_new(folder.name, facts)
            summary = _unreadable(folder.name, max((path.stat().st_mtime for path in files), default=0.0), failure)
        case Facts():
            summary = summary_of(facts, live=facts.ended is None and is_live(facts.session))
    summary = replace(
        summary, file=str(session_parts(folder).newest), size_bytes=sum(path.stat().st_size for path in files)
    )
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
    begins = (place and _at(parts, place, run)) or _by_reading(parts, head, run)
    first = None if run == head.id else _at(parts, Place(1, beginning(parts, head)), head.id)
    return facts_of(head.id, head.created, begins, tail, damaged=decoder.damaged + torn_count(folder), first=first)


def find_beginning(layout: Layout, run: str, parts: Parts, head: Header) -> Position | None:
    """Where a run really begins; None where that is not known. Pruning moves what it keeps."""
    place = _find_place(layout, parts, head, run)
    return place.at if place and _at(parts, place, run) else None


def _find_place(layout: Layout, parts: Parts, head: Header, run: str) -> Place | None:
    """Where a run should begin; None where its claim is lost or silent."""
    if run == head.id:
        return Place(1, beginning(parts, head))
    claimed = read_claim(layout.session(run)) if digits(run) else None
    return claimed[1] if claimed and claimed[0].session == head.id and claimed[0].run == run else None


def _tail(parts: Parts, head: Header, decoder: Decoder) -> list[Stamped]:
    """The last events, newest first: back to a change of state, or as far as one block goes."""
    found: list[Stamped] = []
    seen = 0
    for i, (_, line) in enumerate(lines_backwards(parts, head)):
        # The first piece has no newline behind it: it may be a record that is being written at this moment.
        events: Iterable[Stamped] = decoder.events(line) if i else filter(None, [decoder.event(line)])
        found.extend(reversed(list(events)))
        seen += len(line)
        if found and (isinstance(found[-1].event, _CHANGES) or seen > BLOCK_BYTES):
            break
    return found


def _at(parts: Parts, place: Place, run: str) -> Beginning | None:
    """The beginning of a run, if it is really there."""
    decoder = Decoder()
    lines = Cursor(parts, place.at, BLOCK_BYTES).read()[:_FIRST_LINES]
    events = [event for line in lines if (event := decoder.event(line)) and event.origin.run == run]
    queued = next((event for event in events if isinstance(event.event, RunQueued)), None)
    started = next((event for event in events if isinstance(event.event, RunStarted)), None)
    return Beginning(place.number, queued, started) if queued else None


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
            return Beginning(number, queued, started)
    return None


# -- of events, wherever they are kept -------------------------------------------------------------


def facts_of(
    session: str,
    created: float,
    begins: Beginning | None,
    newest_first: Iterable[Stamped],
    *,
    first: Beginning | None = None,
    damaged: int = 0,
) -> Facts:
    """Puts together how the latest run begins, None if that is lost, and the last events of the record.

    `first` is how the first run begins, if it is another.
    """
    tail = list(newest_first)
    begins = begins or Beginning(1, _unknown_queued(tail[-1]))
    change = next((stamped for stamped in tail if isinstance(stamped.event, _CHANGES)), None)
    started = begins.started
    if change is None or isinstance(change.event, RunStarted):
        # No change of state in sight means that it has long been running.
        started = started or change or begins.queued
    return Facts(
        session=session,
        created=created,
        number=begins.number,
        queued=begins.queued,
        first=(first or begins).queued,
        started=started,
        last=tail[0],
        ended=change if change and isinstance(change.event, RunEnded) else None,
        said=next((stamped.event.text for stamped in tail if isinstance(stamped.event, Text)), ""),
        model=next(_models(tail), None),
        damaged=damaged,
    )


def _models(newest_first: Sequence[Stamped]) -> Iterator[str]:
    """The models that the messages of the latest run name, newest first."""
    for stamped in newest_first:
        event = stamped.event
        if isinstance(event, MessageEnded) and event.model and stamped.origin.run == newest_first[0].origin.run:
            yield event.model


def summary_of(facts: Facts, *, live: bool) -> SessionSummary:
    """The summary of a session; a run that has not ended and has no live owner was interrupted."""
    queued = facts.queued.event
    assert isinstance(queued, RunQueued)
    ended = _ended(facts)
    latest = _run_summary(facts, live=live)
    place = facts.first.origin
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
        begun_in=place.root,
        parent_run=place.parent_run,
        parent_call=place.parent_tool_use_id,
        depth=place.depth,
        timeout=queued.timeout,
        created=facts.created,
        updated=facts.last.time,
        runs=facts.number,
        latest=latest,
        preview=_first_line(latest.failure.message if latest.failure else ended.text if ended else facts.said),
        damaged=facts.damaged,
    )


def _unknown_queued(stamped: Stamped) -> Stamped:
    """Stands for the `run_queued` of a run that has lost it."""
    queued = RunQueued(name=_UNKNOWN, agent=_UNKNOWN, task="", cwd="", surface="")
    return Stamped(stamped.origin, 0, stamped.time, queued)


def _run_summary(facts: Facts, *, live: bool) -> RunSummary:
    run = facts.last.origin.run
    began = facts.started or facts.queued
    ended = _ended(facts)
    if ended and facts.ended:
        return RunSummary(
            run=run,
            state=State.ERROR if ended.failure else State.COMPLETED,
            started=began.time,
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
        state=State.ERROR if failure else State.RUNNING if facts.started else State.QUEUED,
        started=began.time,
        elapsed=max(0.0, facts.last.time - began.time) if facts.started else 0.0,
        failure=failure,
        exit_code=exit_code(failure),
        queued=facts.queued.time,
    )


def _ended(facts: Facts) -> RunEnded | None:
    event = facts.ended.event if facts.ended else None
    return event if isinstance(event, RunEnded) else None


def _unreadable(name: str, changed: float, failure: Failure) -> SessionSummary:
    """Stands in a list for a session whose record this program cannot read."""
    return SessionSummary(
        session=name,
        name=_UNKNOWN,
        agent=_UNKNOWN,
        task="",
        cwd="",
        surface="",
        engine="",
        root="",
        created=changed,
        updated=changed,
        runs=0,
        latest=RunSummary(run=name, state=State.ERROR, started=changed, failure=failure, exit_code=1),
        preview=_first_line(failure.message),
    )


def _first_line(text: str) -> str:
    return next((line.strip() for line in text[: 8 * _PREVIEW].split("\n") if line.strip()), "")[:_PREVIEW]
