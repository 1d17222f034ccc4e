"""Extract endings, reports and answers from the events of a tree of runs."""

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
    """Return depth and error code of each ended run, in the order of their ends."""
    return [
        (record.origin.depth, record.event.failure.code if record.event.failure else None)
        for record in events
        if isinstance(record.event, RunEnded)
    ]


def actual(events: Iterable[EventRecord]) -> dict[int, ExecutionReport]:
    """Return the execution report of the last run at each depth."""
    return {record.origin.depth: record.event.actual for record in events if isinstance(record.event, RunEnded)}


def answers(events: Iterable[EventRecord]) -> list[str]:
    """Return the texts of delegation tools, in the order of their results."""
    return [
        record.event.text
        for record in events
        if isinstance(record.event, ToolReturned) and record.event.name == SPAWN
    ]
