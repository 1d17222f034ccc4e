"""What the runs of a root conversation have consumed, as the store remembers it."""

from __future__ import annotations

from contextlib import suppress

from retinue.events import RunEnded
from retinue.sessions.store import SessionStore, SessionSummary, Wanted
from retinue.types import Refused, Usage


async def spent_under(store: SessionStore, root: str) -> Usage:
    """Return what all ended runs under a root conversation consumed.

    Raises:
        Refused: `storage`.
    """
    # Others may have continued what was begun under it, and it may have continued what others had begun.
    found = [*await store.list(Wanted(root=root)), *await store.list(Wanted(begun_in=root))]
    usage = Usage()
    for session in {each.session: each for each in found}.values():
        usage += session.latest.usage if session.runs == 1 else await _of_all_runs(store, session, root)
    return usage


async def _of_all_runs(store: SessionStore, session: SessionSummary, root: str) -> Usage:
    """The summary knows the latest run only, and others may have belonged to another conversation."""
    usage = Usage()
    with suppress(Refused):  # what cannot be read any more is not counted, and keeps nobody from going on
        async for stamped in store.events(session.session):
            if stamped.origin.root == root and isinstance(stamped.event, RunEnded):
                usage += stamped.event.usage
    return usage
