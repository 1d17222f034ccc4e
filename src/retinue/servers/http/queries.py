"""Queries about one run: details, result, events, tree, session and transcript."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from itertools import pairwise
from typing import Literal

from msgspec import Raw, structs

from retinue.client import Retinue
from retinue.model.errors import ErrorCode, refuse
from retinue.model.event_codec import EventRecord, to_line
from retinue.model.events import RunEnded
from retinue.model.results import AnswerStatus
from retinue.servers.http import schemas
from retinue.servers.http.details import RunDetailBuilder, to_session_run
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.inputs import EventQuery
from retinue.servers.http.live_runs import LiveRunState
from retinue.servers.http.responses import FileDownload
from retinue.servers.http.run_list import ACTIVE_STATES, RunListCache, add_ancestors, sort_by_tree, to_session_row
from retinue.sessions.store import SessionState, SessionSummary
from retinue.support.formatting import normalize_id
from retinue.transcripts.html import HtmlTranscript, encode_with, make_file_name
from retinue.transcripts.text import MarkdownTranscript, TextTranscript

MAX_TREE_RUNS = 5_000
"""Runs of one root conversation in a tree."""
MAX_OPEN_PAGES = 16
"""Records that stay open for their next page."""
MAX_CACHED_DETAILS = 8
"""Ended runs whose details are cached."""
MAX_PAGE_BYTES = 4 * 2**20
"""Of the events of one page, roughly: one event may have megabytes."""
FULL_ID_LENGTH = 32


class RunQueries:
    """Reads about one run."""

    def __init__(self, retinue: Retinue, feed: EventFeed, runs: RunListCache) -> None:
        self._retinue = retinue
        self._feed = feed
        self._runs = runs
        self._open_pages: dict[tuple[str, int], _EventPages] = {}
        self._details: dict[tuple[str, float], tuple[RunDetailBuilder, tuple[schemas.SessionRun, ...]]] = {}

    async def find_run(self, name: str) -> tuple[SessionSummary, str]:
        """Return the session and the run that an id or its beginning names.

        A complete id names exactly one run; the beginning of a session id names the latest run of the session.

        Raises:
            RefusedError: `session_not_found`.
        """
        summary = await self._retinue.session(name)
        if summary is None:
            raise refuse(
                ErrorCode.SESSION_NOT_FOUND,
                f'Run or session "{name[:64]}" not found. `GET /api/v1/runs` lists the runs.',
            )
        wanted = normalize_id(name)
        if len(wanted) == FULL_ID_LENGTH or summary.session.startswith(wanted):
            return summary, wanted if len(wanted) == FULL_ID_LENGTH else summary.latest.run
        if summary.latest.run.startswith(wanted):
            return summary, summary.latest.run
        async for stamped in self._retinue.history(summary.session):
            if stamped.origin.run.startswith(wanted):
                return summary, stamped.origin.run
        return summary, summary.latest.run

    async def find_first_run(self, root: str) -> str | None:
        """Return the first run of a conversation; None if it has none."""
        rows, _ = await self._runs.list_under_root(root, MAX_TREE_RUNS)
        first = min((row for row in rows if row.parent_run is None), key=lambda row: row.created, default=None)
        return first.session if first else None  # the id of its first run, too

    async def load_row(self, name: str) -> schemas.RunRow:
        """Return the row of a run.

        Raises:
            RefusedError: `session_not_found`.
        """
        summary, run = await self.find_run(name)
        detail, _ = await self._load_detail(summary, run)
        return await self._build_row(summary, run, detail)

    async def load_run(self, name: str) -> schemas.RunDetail:
        """Return everything about a run but its events."""
        summary, run = await self.find_run(name)
        detail, runs = await self._load_detail(summary, run)
        row = await self._build_row(summary, run, detail)
        tree, _ = await self._runs.list_under_root(_find_root(summary, run), MAX_TREE_RUNS)
        return schemas.copy_fields(
            row,
            schemas.RunDetail,
            task_text=detail.task or summary.task,
            answer=detail.answer,
            attempts=detail.attempts,
            fallbacks=tuple(detail.fallbacks),
            declared=detail.declared,
            actual=detail.actual,
            masks=detail.actual.masks if detail.actual else 0,
            notices=tuple(detail.notices),
            finalized=detail.finalized,
            structured=detail.finalized.structured if detail.finalized else None,
            files_touched=detail.files,
            tools_used=detail.tools,
            spent=detail.time_breakdown(row),
            runs=runs or (to_session_run(row),),
            ancestors=_list_ancestors(row, tree),
            children=tuple(child for child in sort_by_tree(tree) if child.parent_run == run),
        )

    async def load_result(self, name: str) -> schemas.ResultText:
        """Return the answer of a run, or its text so far."""
        summary, run = await self.find_run(name)
        last = await self._retinue.tail(summary.session, 1) if run == summary.latest.run else ()
        if last and isinstance(end := last[0].event, RunEnded) and last[0].origin.run == run:
            return schemas.ResultText(text=end.text, kind=end.answer, failure=end.failure)
        detail, _ = await self._load_detail(summary, run)
        answer, row = detail.answer, await self._build_row(summary, run, detail)
        text, kind = (answer.text, answer.kind) if answer else ("", AnswerStatus.NONE)
        return schemas.ResultText(text=text, kind=kind, failure=row.failure)

    async def load_tree(self, name: str) -> schemas.RunTree:
        """Return the tree that a run belongs to."""
        cursor = self._feed.cursor
        root = _find_root(*await self.find_run(name))
        rows, more = await self._runs.list_under_root(root, MAX_TREE_RUNS)
        return schemas.RunTree(root=root, runs=sort_by_tree(rows), more=more, cursor=cursor)

    async def load_session(self, name: str) -> schemas.SessionDetail:
        """Return a session with all its runs."""
        summary, _ = await self.find_run(name)
        (latest,) = await self._runs.build_rows([summary])
        _, runs = await self._load_detail(summary, summary.latest.run)
        return schemas.SessionDetail(
            session=to_session_row(summary), runs=runs or (to_session_run(latest),), latest=latest
        )

    async def load_events(self, name: str, query: EventQuery) -> schemas.EventPage:
        """Return a page of a run's events, and the stream cursor that follows them."""
        summary, run = await self.find_run(name)
        # Taken before anything is read: later events come by the stream only.
        cursor, seen = self._feed.cursor, self._feed.last_seq(run)
        is_live = run in self._feed.live or (
            not seen and run == summary.latest.run and summary.latest.state in ACTIVE_STATES
        )
        reading = None if is_live else self._open_pages.pop((run, query.after), None)
        reading = reading or _EventPages(self._retinue.history(summary.session, run=run))
        found = await reading.next_page(query.after, query.limit, upto=seen if is_live else None)
        lines, last = tuple(Raw(line) for _, line in found), found[-1][0] if reading.has_more else None
        if last is not None and not is_live:
            self._store_page(run, last, reading)
        return schemas.EventPage(events=lines, next=last, cursor=cursor)

    def _store_page(self, run: str, seq: int, pages: _EventPages) -> None:
        """Keep a record open at the end of a page, so that the next page does not read it from its beginning."""
        self._open_pages[run, seq] = pages
        if len(self._open_pages) > MAX_OPEN_PAGES:
            del self._open_pages[next(iter(self._open_pages))]

    async def _load_detail(
        self, summary: SessionSummary, run: str
    ) -> tuple[RunDetailBuilder, tuple[schemas.SessionRun, ...]]:
        """Return the details of a run, and all runs of its session if there are several."""
        key = (run, summary.updated)
        if known := self._details.get(key):
            return known
        found = await self._read_detail(summary, run)
        if summary.latest.state not in ACTIVE_STATES:
            self._details[key] = found
            if len(self._details) > MAX_CACHED_DETAILS:
                del self._details[next(iter(self._details))]
        return found

    async def _read_detail(
        self, summary: SessionSummary, run: str
    ) -> tuple[RunDetailBuilder, tuple[schemas.SessionRun, ...]]:
        detail = RunDetailBuilder()
        if summary.runs <= 1:
            async for stamped in self._retinue.history(summary.session, run=run):
                detail.add_event(stamped)
            return detail, ()
        each: dict[str, LiveRunState] = {}
        async for stamped in self._retinue.history(summary.session):
            own = stamped.origin.run
            continues = summary if own != summary.session else None
            session_run = each.setdefault(
                own, LiveRunState(stamped, number=len(each) + 1, address="?", continues=continues)
            )
            session_run.add_event(stamped)
            if own == run:
                detail.add_event(stamped, summary.runs, continues)
        if not detail.live:
            raise refuse(ErrorCode.SESSION_NOT_FOUND, f'Run "{run}" not found in session {summary.session}.')
        (latest,) = await self._runs.build_rows([summary])
        return detail, tuple(to_session_run(_run_row(latest, own, live_run)) for own, live_run in each.items())

    async def _build_row(self, summary: SessionSummary, run: str, detail: RunDetailBuilder) -> schemas.RunRow:
        (latest,) = await self._runs.build_rows([summary])
        return _run_row(latest, run, detail.live)


class _EventPages:
    """The events of a run, read page by page."""

    def __init__(self, events: AsyncIterator[EventRecord]) -> None:
        self._events = events
        self._next: EventRecord | None = None
        self.has_more = False

    async def next_page(self, after: int, limit: int, *, upto: int | None) -> list[tuple[int, bytes]]:
        """Return the next events after one number and up to another, as lines: at least one, at most a page."""
        found: list[tuple[int, bytes]] = []
        size, stamped = 0, self._next or await anext(self._events, None)
        self._next, self.has_more = None, False
        while stamped and (upto is None or stamped.seq <= upto):
            if found and (len(found) == limit or size > MAX_PAGE_BYTES):
                self._next, self.has_more = stamped, True
                break
            if stamped.seq > after:
                found.append((stamped.seq, to_line(stamped)[:-1]))
                size += len(found[-1][1])
            stamped = await anext(self._events, None)
        return found


def _find_root(summary: SessionSummary, run: str) -> str:
    """Return the root of a run: the first run of a session that was continued elsewhere has its own."""
    return (run == summary.session and summary.begun_in) or summary.root


def _run_row(latest: schemas.RunRow, run: str, live_run: LiveRunState | None) -> schemas.RunRow:
    """Return the row of one run of a session: the latest as in lists, any other from its events."""
    if live_run is None:
        return latest
    if latest.run != run:
        return structs.replace(live_run.to_row(), parent_session=latest.parent_session)
    if latest.state is SessionState.ERROR and not live_run.ended:
        # It was interrupted: without an end event, only its other events have its usage.
        counted = live_run.to_row()
        return structs.replace(latest, tools=counted.tools, turns=counted.turns, usage=counted.usage)
    return latest


def _list_ancestors(row: schemas.RunRow, tree: Iterable[schemas.RunRow]) -> tuple[schemas.AncestorRow, ...]:
    """Return the ancestors of a run. A tree lists sessions by their latest runs; each row names its parent run."""
    line = add_ancestors([row], tree)
    return tuple(
        schemas.AncestorRow(run=below.parent_run or above.run, agent=above.agent, name=above.name)
        for below, above in reversed([*pairwise(line)])
    )


CHUNK_BYTES = 64 * 2**10
"""Bytes sent together, about."""

CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    "jsonl": "application/jsonl; charset=utf-8",
}


async def open_transcript(
    retinue: Retinue, queries: RunQueries, name: str, form: Literal["html", "md", "txt", "jsonl"]
) -> FileDownload:
    """Return the transcript of a run as a download in the given format.

    Raises:
        RefusedError: `session_not_found`.
    """
    summary, run = await queries.find_run(name)
    events = retinue.history(summary.session, run=run)
    return FileDownload(make_file_name(summary.agent, run, form), CONTENT_TYPES[form], _iter_chunks(events, form))


async def _iter_chunks(events: AsyncIterator[EventRecord], form: str) -> AsyncGenerator[bytes, None]:
    encode = {
        "jsonl": lambda record: [to_line(record)],
        "txt": encode_with(TextTranscript()),
        "md": encode_with(MarkdownTranscript()),
        "html": encode_with(HtmlTranscript()),
    }[form]
    lines, size = list[bytes](), 0
    async for record in events:
        for line in encode(record):
            lines.append(line)
            size += len(line)
        if size > CHUNK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)
