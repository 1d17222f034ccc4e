"""The runs a session asked for, and those they did, as a tree: for a person and for a program."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from retinue.app import Retinue
from retinue.events import RunQueued
from retinue.frontends.cli.session_text import state_text
from retinue.frontends.cli.table import Cell, table
from retinue.frontends.trees import Branch, as_tree
from retinue.frontends.wording import SHORT
from retinue.sessions.store import SessionSummary, State, Wanted

AT_WORK = (State.QUEUED, State.RUNNING)

Tree = list[Branch[SessionSummary]]


async def tree_below(retinue: Retinue, top: SessionSummary) -> Tree:
    """A session and everything that was asked for in it, at any depth; first come, first drawn."""
    wanted = [one for root in await _roots(retinue, top) for one in (Wanted(root=root), Wanted(begun_in=root))]
    found = [one for each in wanted for one in await retinue.sessions(each)]
    others = [*{one.session: one for one in found}.values()]
    parents = await parents_of(retinue, others)
    parents.pop(top.session, None)
    ordered = [top, *sorted(others, key=lambda one: one.created)]
    first, *rest = as_tree(ordered, _name, lambda one: parents.get(one.session))
    return [first, *takewhile(lambda branch: branch.level > 1, rest)]


async def parents_of(retinue: Retinue, sessions: Sequence[SessionSummary]) -> dict[str, str]:
    """The session that each of them was asked for in, where there is one."""
    # The first run of a session has its id; others are looked up.
    known = {run: one.session for one in sessions for run in (one.session, one.latest.run)}
    parents: dict[str, str] = {}
    for one in sessions:
        if run := one.parent_run:
            if run not in known:
                above = await retinue.session(run)
                known[run] = above.session if above else run
            parents[one.session] = known[run]
    return parents


def in_tree(sessions: Sequence[SessionSummary], parents: dict[str, str]) -> Tree:
    """Sessions as they are listed, those below the one that asked for them that were asked for."""
    return as_tree(sessions, _name, lambda one: parents.get(one.session))


def tree_lines(tree: Tree, now: float) -> list[str]:
    """One line per session: who, on what, how it stands, how long, how many tools."""
    rows: list[list[Cell]] = [
        [
            (branch.guide, branch.item.agent),
            branch.item.engine,
            state_text(branch.item),
            f"{elapsed(branch.item, now):.1f}s",
            _tools(branch.item),
            branch.item.session[:SHORT],
            branch.item.task,
        ]
        for branch in tree
    ]
    return table([["AGENT", "ENGINE", "STATE", "TIME", "TOOLS", "SESSION", "TASK"], *rows])


def tree_json(tree: Tree, now: float) -> dict[str, Any]:
    """The first of the tree with the others as its `children`, each with its own."""
    nodes: list[dict[str, Any]] = []
    for branch in tree:
        one = branch.item
        node: dict[str, Any] = {
            "session": one.session,
            "run": one.latest.run,
            "parentRun": one.parent_run,
            "depth": one.depth,
            "agent": one.agent,
            "engine": one.engine,
            "model": one.model,
            "task": one.task,
            "state": one.latest.state,
            "elapsed": round(elapsed(one, now), 3),
            "tools": None if one.latest.state in AT_WORK else one.latest.tools,
            "children": [],
        }
        del nodes[branch.level - 1 :]
        if nodes:
            nodes[-1]["children"].append(node)
        nodes.append(node)
    return nodes[0]


def elapsed(summary: SessionSummary, now: float) -> float:
    """How long the latest run took, or has taken so far."""
    latest = summary.latest
    return max(now - latest.started, 0.0) if latest.state is State.RUNNING else latest.elapsed


def _tools(summary: SessionSummary) -> str:
    return "" if summary.latest.state in AT_WORK else str(summary.latest.tools)


def _name(summary: SessionSummary) -> str:
    return summary.session


async def _roots(retinue: Retinue, summary: SessionSummary) -> list[str]:
    """The conversations its runs belong to: one that was continued may have several."""
    if summary.runs <= 1:
        return [summary.root]
    found = [
        stamped.origin.root
        async for stamped in retinue.history(summary.session)
        if isinstance(stamped.event, RunQueued)
    ]
    return list(dict.fromkeys([*found, summary.root]))
