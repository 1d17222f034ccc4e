"""Lists of runs: by conversation or one after the other, narrowed down, page by page."""

from __future__ import annotations

import math
from collections.abc import Container
from contextlib import suppress

from retinue.frontends.http.hub import Hub
from retinue.frontends.http.inputs import WhichGroups, WhichRuns
from retinue.frontends.http.rows import GOING_ON, in_tree_order, stored_session, with_ancestors
from retinue.frontends.http.shelf import Shelf
from retinue.frontends.http.values import Activity, Group, RunRow, Runs, Sessions
from retinue.sessions.store import Conversation, Wanted
from retinue.types import Code, refused

MOST_ROWS = 200
"""Of one root conversation in a list of many."""


class Lists:
    """Each says the place of the stream at which it was made: taken before anything is read, so nothing is missed."""

    def __init__(self, shelf: Shelf, hub: Hub) -> None:
        self._shelf = shelf
        self._hub = hub

    async def activity(self, query: WhichGroups) -> Activity:
        """Root conversations, those with live runs first."""
        cursor, wanted = self._hub.cursor, _wanted(query)
        is_filtered = _is_filtered(query)
        if _is_about_live(query):
            groups = [await self._group_of(root, query) for root in self._shelf.live_roots()]
            return Activity(groups=tuple(group for group in groups if group.runs), next=None, cursor=cursor)
        # Those that are live now: what ends while this is read must not be listed a second time as ended.
        live = () if is_filtered else tuple(self._shelf.live_roots())
        first = [await self._group_of(root, query) for root in live] if query.before is None else []
        page = await self._shelf.conversations(wanted, MOST_ROWS)
        groups = [await self._group(found, query) for found in page if found.root not in live]
        last = page[-1] if len(page) == query.limit else None
        return Activity(
            groups=tuple(group for group in (*first, *groups) if group.runs),
            next=_place(last.updated, last.root) if last else None,
            cursor=cursor,
        )

    async def runs(self, query: WhichRuns) -> Runs:
        """Runs, last changed first."""
        cursor = self._hub.cursor
        if _is_about_live(query):
            rows = [told.row() for told in sorted(self._hub.live.values(), key=lambda told: -told.updated)]
            return Runs(runs=tuple(row for row in rows if _matches(row, query)), next=None, cursor=cursor)
        found = await self._shelf.sessions(_wanted(query))
        rows = await self._shelf.rows(found)
        last = found[-1] if len(found) == query.limit else None
        after = _place(last.updated, last.session) if last else None
        return Runs(runs=tuple(rows), next=after, cursor=cursor)

    async def sessions(self, query: WhichRuns) -> Sessions:
        """Sessions, last changed first."""
        found = await self._shelf.sessions(_wanted(query))
        last = found[-1] if len(found) == query.limit else None
        after = _place(last.updated, last.session) if last else None
        return Sessions(sessions=tuple(map(stored_session, found)), next=after)

    async def _group_of(self, root: str, query: WhichGroups) -> Group:
        rows, more = await self._shelf.under(root, MOST_ROWS)
        updated = max((told.updated for told in self._shelf.live_under(root)), default=0.0)
        return _group(root, updated, rows, more, query)

    async def _group(self, found: Conversation, query: WhichGroups) -> Group:
        rows = self._shelf.with_live(found.root, await self._shelf.rows(found.sessions))
        # By the whole task, of which a row has only the beginning.
        matching = {each.session for each in found.sessions if _wanted(query).matches(each)}
        more = found.count - len(found.sessions)
        return _group(found.root, found.updated, rows, more, query, matching)


def _group(
    root: str, updated: float, rows: list[RunRow], more: int, query: WhichGroups, matching: Container[str] = ()
) -> Group:
    if _is_filtered(query):
        wanted = [row for row in rows if row.session in matching or _matches(row, query)]
        rows, more = with_ancestors(wanted, rows), 0
    live = sum(row.state in GOING_ON for row in rows)
    return Group(root=root, updated=updated, live=live, runs=in_tree_order(rows), more=more)


# -- queries ---------------------------------------------------------------------------------------


def _wanted(query: WhichRuns) -> Wanted:
    return Wanted(
        limit=query.limit,
        before=_seen(query.before) if query.before else None,
        root=query.root,
        agent=query.agent,
        engine=query.engine,
        state=query.state,
        text=query.q,
    )


def _is_about_live(query: WhichRuns) -> bool:
    """Whether only runs are asked for that go on: they are known here, and the index is always a little behind."""
    return query.live or query.state in GOING_ON


def _is_filtered(query: WhichRuns) -> bool:
    return query.live or any((query.state, query.agent, query.engine, query.q, query.root))


def _matches(row: RunRow, query: WhichRuns) -> bool:
    words = f"{row.name}\n{row.agent}\n{row.task}\n{row.preview}".casefold()
    return (
        (not query.live or row.state in GOING_ON)
        and query.state in {None, row.state}
        and query.agent in {None, row.agent}
        and query.engine in {None, row.engine}
        and query.root in {None, row.root}
        and (query.q is None or query.q.casefold() in words)
    )


def _place(updated: float, name: str) -> str:
    return f"{updated!r}~{name}"


def _seen(before: str) -> tuple[float, str]:
    updated, _, name = before.partition("~")
    with suppress(ValueError):
        if math.isfinite(float(updated)):
            return float(updated), name
    raise refused(Code.INVALID_INPUT, "`before` is `next` of the page before, unchanged.")
