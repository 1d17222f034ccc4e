"""Pages of runs and sessions: by conversation or flat, filtered, live runs included."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import anyio
from msgspec import structs

from retinue.client import Retinue
from retinue.model.errors import ErrorCode, RefusedError, refuse
from retinue.output.untrusted_text import to_one_line
from retinue.servers.http import schemas
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.inputs import GroupQuery, RunQuery
from retinue.servers.http.live_runs import MAX_TASK_CHARS, LiveRunState
from retinue.sessions.store import Conversation, RunOutcome, SessionFilter, SessionState, SessionSummary, find_outcome

ACTIVE_STATES = (SessionState.QUEUED, SessionState.RUNNING)
ACTIVE_OUTCOMES = (RunOutcome.QUEUED, RunOutcome.RUNNING)


def to_run_row(summary: SessionSummary, parent_session: str | None = None) -> schemas.RunRow:
    """Return the row of the latest run of a session, from the session store; `parent_session` is its parent's."""
    latest = summary.latest
    has_ended, preview = latest.state not in ACTIVE_STATES, to_one_line(summary.preview, MAX_TASK_CHARS)
    return schemas.copy_fields(
        summary,
        schemas.RunRow,
        run=latest.run,
        parent_session=parent_session,
        parent_tool_use_id=summary.parent_call or None,
        state=latest.state,
        task=summary.task[:MAX_TASK_CHARS],
        doing="" if has_ended else preview,
        created=latest.queued or summary.created,
        started=None if latest.state is SessionState.QUEUED else latest.started,
        ended=(latest.ended or summary.updated) if has_ended else None,
        elapsed=latest.elapsed if has_ended else None,
        tools=latest.tools,
        turns=latest.usage.turns,
        usage=schemas.copy_fields(latest.usage, schemas.UsageTotals),
        failure=latest.failure,
        preview=preview,
        session_runs=summary.runs,
        owner=None,
        can=schemas.RunActions(resume=has_ended and summary.runs > 0),
        match=None,
    )


def to_session_row(summary: SessionSummary) -> schemas.SessionRow:
    """Return the row of a session in a list."""
    preview = to_one_line(summary.preview, MAX_TASK_CHARS)
    task, state = summary.task[:MAX_TASK_CHARS], summary.latest.state
    return schemas.copy_fields(summary, schemas.SessionRow, task=task, state=state, preview=preview)


def sort_by_tree(rows: Iterable[schemas.RunRow]) -> tuple[schemas.RunRow, ...]:
    """Sort rows by tree: parents before children, older siblings first, rows without a parent at the top.

    A session is listed by its latest run, with the child runs of all its runs below it.
    """
    rows = list(rows)
    here = {row.session: row for row in rows}
    below: dict[str | None, list[schemas.RunRow]] = {}
    for row in sorted(rows, key=lambda row: (row.created, row.run)):
        parent = here.get(row.parent_session or "", row)
        below.setdefault(None if parent is row else parent.session, []).append(row)
    found: list[schemas.RunRow] = []
    waiting = below.pop(None, [])[::-1]
    while waiting:
        row = waiting.pop()
        found.append(row)
        waiting += below.pop(row.session, [])[::-1]
    # Runs that name each other as parents, as only a damaged record does, are listed last.
    return (*found, *(row for rest in below.values() for row in rest))


def add_ancestors(wanted: Iterable[schemas.RunRow], rows: Iterable[schemas.RunRow]) -> list[schemas.RunRow]:
    """Return the wanted rows with their ancestors among all rows."""
    here = {row.session: row for row in rows}
    selected: dict[str, schemas.RunRow] = {}
    for row in wanted:
        above: schemas.RunRow | None = row
        while above and above.run not in selected:
            selected[above.run] = above
            above = here.get(above.parent_session or "")
    return list(selected.values())


INDEX_MAX_AGE = 30.0
"""Seconds until the index is refreshed although no change is known."""
INDEX_STEPS = (0.1, 1.0)
"""Seconds of indexing before a partial list is answered: the first and a later one."""
MAX_CACHED_ROWS = 20_000
"""Rows that are cached: clients load the same lists again and again."""


class RunListCache:
    """Rows of sessions and live runs, from the index and the event feed; reads no record as a whole."""

    def __init__(self, retinue: Retinue, feed: EventFeed) -> None:
        self._retinue = retinue
        self._feed = feed
        self._cached_rows: dict[str, tuple[float, schemas.RunRow]] = {}
        self._known_parents: dict[str, str] = {}
        """The sessions of parent runs that were looked up; the session of a run never changes."""
        self._advancing = anyio.Lock()
        self._is_indexing = False
        """Whether the last step of indexing left sessions for the next."""
        self._last_refresh = {False: (-1, 0.0), True: (-1, 0.0)}
        """The number of changes and the time at which the index was last refreshed, for lists and for searches."""

    async def list_sessions(self, wanted: SessionFilter) -> Sequence[SessionSummary]:
        """Return the sessions that match the filter, last changed first."""
        with self._index_refresh(for_search=wanted.text is not None) as refresh:
            return await self._retinue.sessions(wanted, look=refresh)

    async def advance_index(self, *, for_search: bool) -> schemas.IndexingProgress | None:
        """Read changed records for a moment; return how many are left to read, None if none are."""
        async with self._advancing:
            with self._index_refresh(for_search=for_search) as refresh:
                step = INDEX_STEPS[self._is_indexing]
                progress = await self._retinue.advance_index(step, for_search=for_search) if refresh else None
            self._is_indexing = progress is not None and not progress.is_complete
            if progress is None or progress.is_complete:
                return None
            self._last_refresh[for_search] = (-1, 0.0)  # the next list continues
            return schemas.IndexingProgress(done=progress.done, total=progress.total)

    async def list_conversations(
        self, wanted: SessionFilter, most: int, *, as_indexed: bool = False
    ) -> Sequence[Conversation]:
        """Return root conversations, last changed first, each with at most `most` sessions."""
        if as_indexed:
            return await self._retinue.conversations(wanted, most=most, look=False)
        with self._index_refresh(for_search=wanted.text is not None) as refresh:
            return await self._retinue.conversations(wanted, most=most, look=refresh)

    def scans_records(self, query: RunQuery) -> bool:
        """Return whether the search that a query was answered with read every record."""
        return query.q is not None and self._retinue.scans_records

    @contextmanager
    def _index_refresh(self, *, for_search: bool) -> Iterator[bool]:
        """Yield whether the index needs a refresh; after the block it counts as refreshed."""
        changes, now = self._feed.changes, time.monotonic()
        last_changes, last_time = self._last_refresh[for_search]
        refresh = last_changes != changes or now - last_time > INDEX_MAX_AGE
        yield refresh
        if refresh:
            self._last_refresh[for_search] = (changes, now)

    def live_roots(self) -> tuple[str, ...]:
        """Return the roots of live runs, the latest first."""
        return tuple(dict.fromkeys(live_run.origin.root for live_run in reversed(self._feed.live.values())))

    async def list_under_root(
        self, root: str, most: int, *, as_indexed: bool = False
    ) -> tuple[list[schemas.RunRow], int]:
        """Return the latest run of each session under a root, and the number of sessions left out."""
        found = await self.list_conversations(SessionFilter(root=root, limit=1), most, as_indexed=as_indexed)
        sessions = found[0].sessions if found else ()
        rows = self.add_live_rows(root, await self.build_rows(sessions))
        return rows, found[0].count - len(sessions) if found else 0

    def list_live_under_root(self, root: str) -> list[LiveRunState]:
        """Return the live runs under a root."""
        return [live_run for live_run in self._feed.live.values() if live_run.origin.root == root]

    def add_live_rows(self, root: str, rows: list[schemas.RunRow]) -> list[schemas.RunRow]:
        """Return the rows with those of live runs that are not in the index yet."""
        here = {row.run for row in rows}
        return [
            *rows,
            *(live_run.to_row() for live_run in self.list_live_under_root(root) if live_run.origin.run not in here),
        ]

    async def build_rows(self, summaries: Sequence[SessionSummary]) -> list[schemas.RunRow]:
        """Return the rows of sessions, in the same order."""
        parents = await self._find_parents(summaries)
        live = {live_run.origin.session: live_run for live_run in self._feed.live.values()}
        rows = [self._build_row(summary, parents.get(summary.session), live) for summary in summaries]
        return [
            structs.replace(row, match=summary.match) if summary.match else row
            for row, summary in zip(rows, summaries, strict=True)
        ]

    async def _find_parents(self, summaries: Sequence[SessionSummary]) -> Mapping[str, str]:
        """Return the parent session of each session that has one."""
        # The first run of a session has the id of the session; other runs are looked up.
        known = {run: each.session for each in summaries for run in (each.session, each.latest.run)}
        found: dict[str, str] = {}
        for each in summaries:
            if run := each.parent_run:
                found[each.session] = known.get(run) or await self._find_session(run)
        return found

    async def _find_session(self, run: str) -> str:
        if run not in self._known_parents:
            if len(self._known_parents) >= MAX_CACHED_ROWS:
                self._known_parents.clear()
            self._known_parents[run] = await find_session_id(self._retinue, run)
        return self._known_parents[run]

    def _build_row(
        self, summary: SessionSummary, parent_session: str | None, live: Mapping[str, LiveRunState]
    ) -> schemas.RunRow:
        """Return the row of a session's latest run; the live state wins over the index."""
        if live_run := live.get(summary.session):
            return structs.replace(live_run.to_row(), session_runs=max(summary.runs, live_run.number))
        known = self._cached_rows.get(summary.session)
        if known and known[0] == summary.updated:
            return known[1]
        row = to_run_row(summary, parent_session)
        if row.state in ACTIVE_STATES:
            return self._feed.find_row(row.run) or row
        self._cache_row(summary.updated, row)
        return row

    def _cache_row(self, updated: float, row: schemas.RunRow) -> None:
        """Cache the row of a session without live runs until it changes."""
        if len(self._cached_rows) >= MAX_CACHED_ROWS:
            self._cached_rows.clear()
        self._cached_rows[row.session] = (updated, row)


async def find_session_id(retinue: Retinue, run: str) -> str:
    """Return the session of a run; a run that is no longer stored counts as the first of its session."""
    with suppress(RefusedError):
        if found := await retinue.session(run):
            return found.session
    return run


MAX_ROWS = 200
"""Rows of one root conversation in a list of many."""


class RunLists:
    """Pages for clients. Their stream cursor is taken before anything is read, so that no event is missed."""

    def __init__(self, runs: RunListCache, feed: EventFeed) -> None:
        self.cache = self._runs = runs
        self._feed = feed

    async def list_activity(self, query: GroupQuery) -> schemas.ActivityPage:
        """Return root conversations, those with live runs first."""
        cursor, wanted = self._feed.cursor, to_session_filter(query)
        is_filtered = _is_filtered(query)
        indexing = await self._runs.advance_index(for_search=query.q is not None) if query.partial else None
        if _wants_live_only(query):
            groups = [await self._live_group(root, query) for root in self._runs.live_roots()]
            shown = tuple(group for group in groups if group.runs)
            return schemas.ActivityPage(
                groups=shown, indexing=indexing, scans_records=False, next=None, cursor=cursor
            )
        # Fixed now: a conversation that ends while this is read must not be listed a second time as ended.
        live = () if is_filtered else tuple(self._runs.live_roots())
        first = [await self._live_group(root, query) for root in live] if query.before is None else []
        page = await self._runs.list_conversations(wanted, MAX_ROWS, as_indexed=indexing is not None)
        groups = [await self._stored_group(found, query) for found in page if found.root not in live]
        last = page[-1] if len(page) == query.limit else None
        return schemas.ActivityPage(
            groups=tuple(group for group in (*first, *groups) if group.runs),
            indexing=indexing,
            scans_records=self._runs.scans_records(query),
            next=_format_cursor(last.updated, last.root) if last else None,
            cursor=cursor,
        )

    async def list_runs(self, query: RunQuery) -> schemas.RunPage:
        """Return runs, last changed first."""
        cursor = self._feed.cursor
        if _wants_live_only(query):
            rows = [
                live_run.to_row()
                for live_run in sorted(self._feed.live.values(), key=lambda live_run: -live_run.updated)
            ]
            shown = tuple(row for row in rows if _row_matches(row, query))
            return schemas.RunPage(runs=shown, scans_records=False, next=None, cursor=cursor)
        found = await self._runs.list_sessions(to_session_filter(query))
        rows = await self._runs.build_rows(found)
        last = found[-1] if len(found) == query.limit else None
        after = _format_cursor(last.updated, last.session) if last else None
        scans_records = self._runs.scans_records(query)
        return schemas.RunPage(runs=tuple(rows), scans_records=scans_records, next=after, cursor=cursor)

    async def list_sessions(self, query: RunQuery) -> schemas.SessionPage:
        """Return sessions, last changed first."""
        found = await self._runs.list_sessions(to_session_filter(query))
        last = found[-1] if len(found) == query.limit else None
        after = _format_cursor(last.updated, last.session) if last else None
        return schemas.SessionPage(
            sessions=tuple(map(to_session_row, found)), scans_records=self._runs.scans_records(query), next=after
        )

    async def _live_group(self, root: str, query: GroupQuery) -> schemas.RunGroup:
        rows, more = await self._runs.list_under_root(root, MAX_ROWS, as_indexed=query.partial)
        updated = max((live_run.updated for live_run in self._runs.list_live_under_root(root)), default=0.0)
        return _make_group(root, updated, rows, more, query)

    async def _stored_group(self, found: Conversation, query: GroupQuery) -> schemas.RunGroup:
        rows = self._runs.add_live_rows(found.root, await self._runs.build_rows(found.sessions))
        # Filtered by the whole task; a row has only its beginning.
        matching = {each.session for each in found.sessions if to_session_filter(query).matches(each)}
        more = found.count - len(found.sessions)
        return _make_group(found.root, found.updated, rows, more, query, matching)


def _make_group(
    root: str, updated: float, rows: list[schemas.RunRow], more: int, query: GroupQuery, matching: Container[str] = ()
) -> schemas.RunGroup:
    total = len(rows) + more
    if _is_filtered(query):
        wanted = [row for row in rows if row.session in matching or _row_matches(row, query)]
        rows, more = add_ancestors(wanted, rows), 0
    live = sum(row.state in ACTIVE_STATES for row in rows)
    return schemas.RunGroup(root=root, updated=updated, live=live, runs=sort_by_tree(rows), more=more, total=total)


# -- queries ---------------------------------------------------------------------------------------


def to_session_filter(query: RunQuery) -> SessionFilter:
    """Return the filter of the store for a query."""
    return SessionFilter(
        limit=query.limit,
        before=_parse_cursor(query.before) if query.before else None,
        root=query.root,
        agent=query.agent,
        engine=query.engine,
        state=query.state,
        text=query.q,
        outcome=query.outcome,
        model=query.model,
        cwd=query.cwd,
        since=query.since,
        until=query.until,
        min_cost=query.min_cost,
        min_elapsed=query.min_elapsed,
    )


def _wants_live_only(query: RunQuery) -> bool:
    """Return whether the query is for live runs only, which the feed knows before the index does."""
    return query.live or query.state in ACTIVE_STATES or query.outcome in ACTIVE_OUTCOMES


_FILTER_FIELDS = frozenset(RunQuery.__struct_fields__) - {"limit", "before"}


def _is_filtered(query: RunQuery) -> bool:
    return any(getattr(query, name) not in {None, False} for name in _FILTER_FIELDS)


def _row_matches(row: schemas.RunRow, query: RunQuery) -> bool:
    text = f"{row.name}\n{row.agent}\n{row.task}\n{row.preview}".casefold()
    return (
        (not query.live or row.state in ACTIVE_STATES)
        and query.state in {None, row.state}
        and query.agent in {None, row.agent}
        and query.engine in {None, row.engine}
        and query.root in {None, row.root}
        and (query.q is None or query.q.casefold() in text)
        and query.model in {None, row.model}
        and query.cwd in {None, row.cwd}
        and _run_matches(row, query)
    )


def _run_matches(row: schemas.RunRow, query: RunQuery) -> bool:
    changed = row.ended or time.time()
    return (
        query.outcome in {None, find_outcome(row.state, row.failure)}
        and (query.since is None or changed >= query.since)
        and (query.until is None or changed < query.until)
        and (query.min_cost is None or (row.usage.cost is not None and row.usage.cost >= query.min_cost))
        and (query.min_elapsed is None or (row.elapsed is not None and row.elapsed >= query.min_elapsed))
    )


def _format_cursor(updated: float, name: str) -> str:
    return f"{updated!r}~{name}"


def _parse_cursor(before: str) -> tuple[float, str]:
    updated, _, name = before.partition("~")
    with suppress(ValueError):
        if math.isfinite(float(updated)):
            return float(updated), name
    raise refuse(ErrorCode.INVALID_INPUT, "`before` must be the unchanged `next` of the previous page.")
