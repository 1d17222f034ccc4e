"""Event records of invented runs, for tests of views that need no engine."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import Event, RunQueued, RunStarted
from retinue.runtime.progress import CallProgress

START = 1000.0
"""Wall-clock time at which runs are accepted and start."""


class EventStory:
    """Collects the event records of runs, in order."""

    def __init__(self) -> None:
        self.records: list[EventRecord] = []

    def queue(self, run: str, *, parent: str | None = None, depth: int = 1, **fields: object) -> None:
        defaults = {"name": run, "agent": run, "task": "look", "cwd": "/", "surface": "fanout", "timeout": 600.0}
        self.add(run, RunQueued(**{**defaults, **fields}), parent=parent, depth=depth)  # type: ignore[arg-type]

    def start(self, run: str, *, parent: str | None = None, depth: int = 1, **fields: object) -> None:
        self.queue(run, parent=parent, depth=depth, **fields)
        self.add(run, RunStarted(), parent=parent, depth=depth)

    def add(self, run: str, *events: Event, parent: str | None = None, depth: int = 1) -> None:
        origin = EventSource(
            run=run, session=f"{run:0<32}", root="r", parent_run=parent, parent_tool_use_id="c", depth=depth
        )
        self.records += [EventRecord(origin, len(self.records) + 1, START, event) for event in events]

    def progress(self) -> CallProgress:
        return fold(self.records)


def fold(records: Iterable[EventRecord]) -> CallProgress:
    progress = CallProgress()
    for record in records:
        progress = progress.apply(record)
    return progress
