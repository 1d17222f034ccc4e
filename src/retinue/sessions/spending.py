"""What the runs of a root conversation have consumed, as the store remembers it."""

from __future__ import annotations

from contextlib import suppress

from retinue.events import RunEnded, RunQueued
from retinue.sessions.store import SessionStore, SessionSummary, Wanted
from retinue.types import Refused, Usage


async def spent_under(store: SessionStore, root: str) -> tuple[int, Usage]:
    """How many runs there were under a root, and what they consumed; of those that go on, nothing yet.

    Raises:
        Refused: `storage`.
    """
    # Others may have continued what was begun under it, and it may have continued what others had begun.
    found = [*await store.list(Wanted(root=root)), *await store.list(Wanted(begun_in=root))]
    runs, usage = 0, Usage()
    for session in {each.session: each for each in found}.values():
        more, consumed = (1, session.latest.usage) if session.runs == 1 else await _of_all_runs(store, session, root)
        runs, usage = runs + more, usage + consumed
    return runs, usage


async def _of_all_runs(store: SessionStore, session: SessionSummary, root: str) -> tuple[int, Usage]:
    """The summary knows the latest run only, and others may have belonged to another conversation."""
    runs, usage = 0, Usage()
    with suppress(Refused):  # what cannot be read any more is not counted, and keeps nobody from going on
        async for stamped in store.events(session.session):
            if stamped.origin.root != root:
                continue
            match stamped.event:
                case RunQueued():
                    runs += 1
                case RunEnded(usage=consumed):
                    usage += consumed
    return runs, usage
