"""What the runs of a root conversation have consumed, as the store remembers it."""

from __future__ import annotations

from contextlib import suppress

from retinue.events import RunEnded
from retinue.sessions.store import SessionStore, SessionSummary, Wanted
from retinue.types import Refused, Usage


async def spent_under(store: SessionStore, root: str) -> tuple[int, Usage]:
    """How many runs there were under a root, and what they consumed; of those that go on, nothing yet.

    Raises:
        Refused: `storage`.
    """
    sessions = await store.list(Wanted(root=root))
    usage = Usage()
    for session in sessions:
        usage += session.latest.usage if session.runs == 1 else await _of_all_runs(store, session, root)
    return sum(session.runs for session in sessions), usage


async def _of_all_runs(store: SessionStore, session: SessionSummary, root: str) -> Usage:
    """The summary knows the latest run only, and others may have belonged to another conversation."""
    usage = Usage()
    with suppress(Refused):  # what cannot be read any more is not counted, and keeps nobody from going on
        async for stamped in store.events(session.session):
            if isinstance(stamped.event, RunEnded) and stamped.origin.root == root:
                usage += stamped.event.usage
    return usage
