"""What the API tells of one run: everything about it, its events, its tree, its session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

from msgspec import Raw, structs

from retinue.app import Retinue
from retinue.events import RunEnded, Stamped, to_line
from retinue.frontends.http.details import Detail, run_of_session
from retinue.frontends.http.hub import Hub
from retinue.frontends.http.inputs import WhichEvents
from retinue.frontends.http.live import LiveRun
from retinue.frontends.http.rows import GOING_ON, in_tree_order, stored_session, with_ancestors
from retinue.frontends.http.shelf import Shelf
from retinue.frontends.http.values import (
    Ancestor,
    Events,
    RunDetail,
    RunOfSession,
    RunResult,
    RunRow,
    SessionDetail,
    Tree,
)
from retinue.frontends.wording import digits
from retinue.results import AnswerKind
from retinue.sessions.store import SessionSummary, State
from retinue.types import Code, refused

WHOLE_TREE = 5_000
"""Runs of one root conversation that is looked at alone."""
READINGS = 16
"""Records that are kept open for the next page."""
DETAILS = 8
"""Runs of ended sessions that need not be read again when they are looked at again."""
PAGE_BYTES = 4 * 2**20
"""Of the events of one page, about: they may have megabytes each."""
WHOLE_ID = 32


class Reader:
    """Finds and tells one run; writes nothing."""

    def __init__(self, retinue: Retinue, hub: Hub, shelf: Shelf) -> None:
        self._retinue = retinue
        self._hub = hub
        self._shelf = shelf
        self._readings: dict[tuple[str, int], _Reading] = {}
        self._details: dict[tuple[str, float], tuple[Detail, tuple[RunOfSession, ...]]] = {}

    async def find(self, name: str) -> tuple[SessionSummary, str]:
        """The session and the run that an id names.

        A whole id is that of exactly one run. The beginning of a session's id names its latest run.

        Raises:
            Refused: `session_not_found`.
        """
        summary = await self._retinue.session(name)
        if summary is None:
            raise refused(
                Code.SESSION_NOT_FOUND, f'There is no run or session "{name[:64]}". `GET /api/v1/runs` lists them.'
            )
        wanted = digits(name)
        if len(wanted) == WHOLE_ID or summary.session.startswith(wanted):
            return summary, wanted if len(wanted) == WHOLE_ID else summary.latest.run
        if summary.latest.run.startswith(wanted):
            return summary, summary.latest.run
        async for stamped in self._retinue.history(summary.session):
            if stamped.origin.run.startswith(wanted):
                return summary, stamped.origin.run
        return summary, summary.latest.run

    async def run(self, name: str) -> RunDetail:
        """Everything about a run but its events."""
        summary, run = await self.find(name)
        detail, runs = await self._folded(summary, run)
        row = await self._row_of(summary, run, detail)
        tree, _ = await self._shelf.under(_root_of(summary, run), WHOLE_TREE)
        return RunDetail(
            **{field: getattr(row, field) for field in RunRow.__struct_fields__},
            task_text=detail.task or summary.task,
            answer=detail.answer,
            attempts=detail.attempts,
            fallbacks=tuple(detail.fallbacks),
            declared=detail.declared,
            actual=detail.actual,
            masks=detail.actual.masks if detail.actual else 0,
            notices=tuple(detail.notices),
            finalized=detail.finalized,
            files_touched=detail.files,
            tools_used=detail.tools,
            spent=detail.spent(row),
            runs=runs or (run_of_session(row),),
            ancestors=_ancestors(row, tree),
            children=tuple(child for child in in_tree_order(tree) if child.parent_run == run),
        )

    async def result(self, name: str) -> RunResult:
        """What a run answered, or has said so far."""
        summary, run = await self.find(name)
        last = await self._retinue.tail(summary.session, 1) if run == summary.latest.run else ()
        if last and isinstance(end := last[0].event, RunEnded) and last[0].origin.run == run:
            return RunResult(text=end.text, kind=end.answer, failure=end.failure)
        detail, _ = await self._folded(summary, run)
        said, row = detail.answer, await self._row_of(summary, run, detail)
        text, kind = (said.text, said.kind) if said else ("", AnswerKind.NONE)
        return RunResult(text=text, kind=kind, failure=row.failure)

    async def tree(self, name: str) -> Tree:
        """The whole tree that a run belongs to."""
        cursor = self._hub.cursor
        root = _root_of(*await self.find(name))
        rows, more = await self._shelf.under(root, WHOLE_TREE)
        return Tree(root=root, runs=in_tree_order(rows), more=more, cursor=cursor)

    async def session(self, name: str) -> SessionDetail:
        """A session with all its runs."""
        summary, _ = await self.find(name)
        (latest,) = await self._shelf.rows([summary])
        _, runs = await self._folded(summary, summary.latest.run)
        return SessionDetail(session=stored_session(summary), runs=runs or (run_of_session(latest),), latest=latest)

    async def events(self, name: str, query: WhichEvents) -> Events:
        """A page of a run's events; the stream goes on behind the last of them."""
        summary, run = await self.find(name)
        # Taken before anything is read: what is told later comes by the stream, and by nothing else.
        cursor, seen = self._hub.cursor, self._hub.seen(run)
        is_live = run in self._hub.live or (
            not seen and run == summary.latest.run and summary.latest.state in GOING_ON
        )
        reading = None if is_live else self._readings.pop((run, query.after), None)
        reading = reading or _Reading(self._retinue.history(summary.session, run=run))
        found = await reading.page(query.after, query.limit, upto=seen if is_live else None)
        lines, last = tuple(Raw(line) for _, line in found), found[-1][0] if reading.has_more else None
        if last is not None and not is_live:
            self._remember(run, last, reading)
        return Events(events=lines, next=last, cursor=cursor)

    def _remember(self, run: str, seq: int, reading: _Reading) -> None:
        """Keeps a record open where a page ended: whoever asks for the next need not read it from its beginning."""
        self._readings[run, seq] = reading
        if len(self._readings) > READINGS:
            del self._readings[next(iter(self._readings))]

    async def _folded(self, summary: SessionSummary, run: str) -> tuple[Detail, tuple[RunOfSession, ...]]:
        """What the events of a run say, and, where its session has several, all of them."""
        key = (run, summary.updated)
        if known := self._details.get(key):
            return known
        found = await self._read_through(summary, run)
        if summary.latest.state not in GOING_ON:
            self._details[key] = found
            if len(self._details) > DETAILS:
                del self._details[next(iter(self._details))]
        return found

    async def _read_through(self, summary: SessionSummary, run: str) -> tuple[Detail, tuple[RunOfSession, ...]]:
        detail = Detail()
        if summary.runs <= 1:
            async for stamped in self._retinue.history(summary.session, run=run):
                detail.take(stamped)
            return detail, ()
        each: dict[str, LiveRun] = {}
        async for stamped in self._retinue.history(summary.session):
            own = stamped.origin.run
            continues = summary if own != summary.session else None
            told = each.setdefault(own, LiveRun(stamped, number=len(each) + 1, address="?", continues=continues))
            told.take(stamped)
            if own == run:
                detail.take(stamped, summary.runs, continues)
        if not detail.live:
            raise refused(Code.SESSION_NOT_FOUND, f'There is no run "{run}" in session {summary.session}.')
        (latest,) = await self._shelf.rows([summary])
        return detail, tuple(run_of_session(_row(latest, own, told)) for own, told in each.items())

    async def _row_of(self, summary: SessionSummary, run: str, detail: Detail) -> RunRow:
        (latest,) = await self._shelf.rows([summary])
        return _row(latest, run, detail.live)


class _Reading:
    """The events of a run, being read page by page."""

    def __init__(self, events: AsyncIterator[Stamped]) -> None:
        self._events = events
        self._next: Stamped | None = None
        self.has_more = False

    async def page(self, after: int, limit: int, *, upto: int | None) -> list[tuple[int, bytes]]:
        """The next events after a number, and up to one, as lines: not more than go together, and at least one."""
        found: list[tuple[int, bytes]] = []
        size, stamped = 0, self._next or await anext(self._events, None)
        self._next, self.has_more = None, False
        while stamped and (upto is None or stamped.seq <= upto):
            if found and (len(found) == limit or size > PAGE_BYTES):
                self._next, self.has_more = stamped, True
                break
            if stamped.seq > after:
                found.append((stamped.seq, to_line(stamped)[:-1]))
                size += len(found[-1][1])
            stamped = await anext(self._events, None)
        return found


def _root_of(summary: SessionSummary, run: str) -> str:
    """The conversation of a run: the first of a session that was continued elsewhere has its own."""
    return (run == summary.session and summary.begun_in) or summary.root


def _row(latest: RunRow, run: str, told: LiveRun | None) -> RunRow:
    """One run of a session as a row: the latest as lists show it, another as its own events tell it."""
    if told is None:
        return latest
    if latest.run != run:
        return structs.replace(told.row(), parent_session=latest.parent_session)
    if latest.state is State.ERROR and not told.ended:
        # It was interrupted: without an end, only its events know what it used.
        counted = told.row()
        return structs.replace(latest, tools=counted.tools, turns=counted.turns, usage=counted.usage)
    return latest


def _ancestors(row: RunRow, tree: Iterable[RunRow]) -> tuple[Ancestor, ...]:
    """The runs it came of. A tree lists sessions by their latest runs; each says which run asked for it."""
    line = with_ancestors([row], tree)
    return tuple(
        Ancestor(run=below.parent_run or above.run, agent=above.agent, name=above.name)
        for below, above in reversed([*pairwise(line)])
    )
