"""Stored sessions as rows of a list, and rows put in the order of their tree."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.frontends.http.live import TASK
from retinue.frontends.http.values import Can, RunRow, Session, Used
from retinue.output.frame import one_line
from retinue.sessions.store import SessionSummary, State

GOING_ON = (State.QUEUED, State.RUNNING)


def stored_row(summary: SessionSummary, parent_session: str | None = None) -> RunRow:
    """The latest run of a session, as the store knows it; it stands below that other one, if any."""
    latest = summary.latest
    is_over, preview = latest.state not in GOING_ON, one_line(summary.preview, TASK)
    return RunRow(
        run=latest.run,
        session=summary.session,
        root=summary.root,
        parent_run=summary.parent_run,
        parent_session=parent_session,
        parent_tool_use_id=summary.parent_call or None,
        depth=summary.depth,
        name=summary.name,
        agent=summary.agent,
        engine=summary.engine,
        model=summary.model,
        provider=summary.provider,
        surface=summary.surface,
        state=latest.state,
        task=summary.task[:TASK],
        doing="" if is_over else preview,
        created=latest.queued or summary.created,
        started=None if latest.state is State.QUEUED else latest.started,
        ended=(latest.ended or summary.updated) if is_over else None,
        elapsed=latest.elapsed if is_over else None,
        timeout=summary.timeout,
        tools=latest.tools,
        turns=latest.usage.turns,
        usage=Used.of(latest.usage),
        failure=latest.failure,
        preview=preview,
        cwd=summary.cwd,
        session_runs=summary.runs,
        owner=None,
        can=Can(resume=is_over and summary.runs > 0),
    )


def stored_session(summary: SessionSummary) -> Session:
    """A session as a list shows it."""
    return Session(
        session=summary.session,
        name=summary.name,
        agent=summary.agent,
        task=summary.task[:TASK],
        cwd=summary.cwd,
        surface=summary.surface,
        engine=summary.engine,
        model=summary.model,
        root=summary.root,
        created=summary.created,
        updated=summary.updated,
        runs=summary.runs,
        state=summary.latest.state,
        preview=one_line(summary.preview, TASK),
        file=summary.file,
        size_bytes=summary.size_bytes,
        damaged=summary.damaged,
    )


def in_tree_order(rows: Iterable[RunRow]) -> tuple[RunRow, ...]:
    """Parents before their children, older before newer beside each other; who has no parent here stands on top.

    A session is listed by its latest run, and has below it what any of its runs asked for.
    """
    rows = list(rows)
    here = {row.session: row for row in rows}
    below: dict[str | None, list[RunRow]] = {}
    for row in sorted(rows, key=lambda row: (row.created, row.run)):
        parent = here.get(row.parent_session or "", row)
        below.setdefault(None if parent is row else parent.session, []).append(row)
    found: list[RunRow] = []
    waiting = below.pop(None, [])[::-1]
    while waiting:
        row = waiting.pop()
        found.append(row)
        waiting += below.pop(row.session, [])[::-1]
    # Runs that name each other as parents, as only a damaged record can say, are shown all the same.
    return (*found, *(row for rest in below.values() for row in rest))


def with_ancestors(wanted: Iterable[RunRow], rows: Iterable[RunRow]) -> list[RunRow]:
    """The wanted rows and, of all these, those they stand below."""
    here = {row.session: row for row in rows}
    kept: dict[str, RunRow] = {}
    for row in wanted:
        above: RunRow | None = row
        while above and above.run not in kept:
            kept[above.run] = above
            above = here.get(above.parent_session or "")
    return list(kept.values())
