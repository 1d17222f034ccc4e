"""Looking something up in what is remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from retinue.app import Retinue
from retinue.frontends.cli.talk import fault
from retinue.frontends.event_lines import SHORT
from retinue.sessions.store import SessionSummary

NAMED = 5
"""Sessions named where the one asked for is not known."""

Found = TypeVar("Found")


def within(work: Callable[[Retinue], Awaitable[Found]], *, cwd: str | None = None) -> Found:
    """Does something in an open Retinue."""

    async def working() -> Found:
        async with Retinue(cwd=cwd) as retinue:
            return await work(retinue)

    return anyio.run(working)


async def find_session(retinue: Retinue, name: str) -> SessionSummary | None:
    """The session of an id; says so if there is none."""
    summary = await retinue.session(name)
    if summary is None:
        latest = ", ".join(one.session[:SHORT] for one in await retinue.sessions(limit=NAMED))
        fault(
            f'Session "{name}" not found. The session may have expired or the ID is incorrect. '
            f"The latest sessions: {latest or '(none)'}"
        )
    return summary
