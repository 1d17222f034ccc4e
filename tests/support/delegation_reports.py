"""What events of a tree of runs say."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.model.errors import ErrorCode
from retinue.model.event_codec import EventRecord
from retinue.model.events import Event, RunEnded, ToolReturned
from retinue.model.results import ExecutionReport

SPAWN = "spawn_subagent"


def is_end(event: Event) -> bool:
    return isinstance(event, RunEnded)


def ends(events: Iterable[EventRecord]) -> list[tuple[int, ErrorCode | None]]:
    """How runs ended, in the order they did: depth and code."""
    return [
        (one.origin.depth, one.event.failure.code if one.event.failure else None)
        for one in events
        if isinstance(one.event, RunEnded)
    ]


def actual(events: Iterable[EventRecord]) -> dict[int, ExecutionReport]:
    """What the last run at each depth really was."""
    return {one.origin.depth: one.event.actual for one in events if isinstance(one.event, RunEnded)}


def answers(events: Iterable[EventRecord]) -> list[str]:
    """What delegation tools answered, in the order they did."""
    return [one.event.text for one in events if isinstance(one.event, ToolReturned) and one.event.name == SPAWN]
