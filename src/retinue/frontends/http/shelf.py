"""The latest run of every session as a row: from the index, with what is known live laid over it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from msgspec import structs

from retinue.app import Retinue
from retinue.frontends.http.hub import Hub
from retinue.frontends.http.live import LiveRun
from retinue.frontends.http.rows import GOING_ON, stored_row
from retinue.frontends.http.values import RunRow
from retinue.sessions.store import Conversation, SessionSummary, Wanted
from retinue.types import Refused

TRUSTED = 30.0
"""Seconds the index is believed while nothing is known to have changed."""
MADE = 20_000
"""Rows that are kept: lists are asked for again and again."""


class Shelf:
    """What lists are made of. Nothing is read whole, and nothing is written but the index."""

    def __init__(self, retinue: Retinue, hub: Hub) -> None:
        self._retinue = retinue
        self._hub = hub
        self._made: dict[str, tuple[float, RunRow]] = {}
        self._asked: dict[str, str] = {}
        """The sessions of runs that were looked up because they asked for others: that of a run never changes."""
        self._looked = (-1, 0.0)
        """At what number of changes the index was last brought up to date, and when."""

    async def sessions(self, wanted: Wanted) -> Sequence[SessionSummary]:
        """Sessions, last changed first."""
        with self._looking() as look:
            return await self._retinue.sessions(wanted, look=look)

    async def conversations(self, wanted: Wanted, most: int) -> Sequence[Conversation]:
        """Root conversations, last changed first, each with at most so many sessions."""
        with self._looking() as look:
            return await self._retinue.conversations(wanted, most=most, look=look)

    @contextmanager
    def _looking(self) -> Iterator[bool]:
        """Whether the records may have changed since the index last looked at them; once it has, they have not."""
        changes, now = self._hub.changes, time.monotonic()
        look = self._looked[0] != changes or now - self._looked[1] > TRUSTED
        yield look
        if look:
            self._looked = (changes, now)

    def live_roots(self) -> tuple[str, ...]:
        """The roots of what runs, the last begun first."""
        return tuple(dict.fromkeys(told.origin.root for told in reversed(self._hub.live.values())))

    async def under(self, root: str, most: int) -> tuple[list[RunRow], int]:
        """The runs under a root, the latest of each session, and how many more there are."""
        found = await self.conversations(Wanted(root=root, limit=1), most)
        sessions = found[0].sessions if found else ()
        rows = self.with_live(root, await self.rows(sessions))
        return rows, found[0].count - len(sessions) if found else 0

    def live_under(self, root: str) -> list[LiveRun]:
        """What runs under a root."""
        return [told for told in self._hub.live.values() if told.origin.root == root]

    def with_live(self, root: str, rows: list[RunRow]) -> list[RunRow]:
        """The rows and those of runs that the index does not know yet."""
        here = {row.run for row in rows}
        return [*rows, *(told.row() for told in self.live_under(root) if told.origin.run not in here)]

    async def rows(self, summaries: Sequence[SessionSummary]) -> list[RunRow]:
        """The rows of sessions, in their order."""
        parents = await self._parents(summaries)
        live = {told.origin.session: told for told in self._hub.live.values()}
        return [self._row(summary, parents.get(summary.session), live) for summary in summaries]

    async def _parents(self, summaries: Sequence[SessionSummary]) -> Mapping[str, str]:
        """The session that each of them was asked for in, where there is one."""
        # The first run of a session has its id; others are looked up.
        known = {run: each.session for each in summaries for run in (each.session, each.latest.run)}
        found: dict[str, str] = {}
        for each in summaries:
            if run := each.parent_run:
                found[each.session] = known.get(run) or await self._looked_up(run)
        return found

    async def _looked_up(self, run: str) -> str:
        if run not in self._asked:
            if len(self._asked) >= MADE:
                self._asked.clear()
            self._asked[run] = await session_of(self._retinue, run)
        return self._asked[run]

    def _row(self, summary: SessionSummary, parent_session: str | None, live: Mapping[str, LiveRun]) -> RunRow:
        """The row of a session's latest run: what is known live wins over what was indexed."""
        if told := live.get(summary.session):
            return structs.replace(told.row(), session_runs=max(summary.runs, told.number))
        known = self._made.get(summary.session)
        if known and known[0] == summary.updated:
            return known[1]
        row = stored_row(summary, parent_session)
        if row.state in GOING_ON:
            return self._hub.row(row.run) or row
        self._keep(summary.updated, row)
        return row

    def _keep(self, updated: float, row: RunRow) -> None:
        """Remembers the row of a session where nothing goes on, until that changes."""
        if len(self._made) >= MADE:
            self._made.clear()
        self._made[row.session] = (updated, row)


async def session_of(retinue: Retinue, run: str) -> str:
    """The session of a run; what is no longer kept may have been the first of its own."""
    with suppress(Refused):
        if found := await retinue.session(run):
            return found.session
    return run
