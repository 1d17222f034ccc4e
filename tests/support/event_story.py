"""Progress made of events, without anything that runs."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import Event, RunQueued, RunStarted
from retinue.runtime.progress import CallProgress

START = 1000.0
"""Wall clock at which runs are accepted and start."""


class Story:
    """Tells what happens in runs, one event after the other."""

    def __init__(self) -> None:
        self.told: list[EventRecord] = []

    def queued(self, run: str, *, parent: str | None = None, depth: int = 1, **facts: object) -> None:
        known = {"name": run, "agent": run, "task": "look", "cwd": "/", "surface": "fanout", "timeout": 600.0}
        self.happens(run, RunQueued(**{**known, **facts}), parent=parent, depth=depth)  # type: ignore[arg-type]

    def begins(self, run: str, *, parent: str | None = None, depth: int = 1, **facts: object) -> None:
        self.queued(run, parent=parent, depth=depth, **facts)
        self.happens(run, RunStarted(), parent=parent, depth=depth)

    def happens(self, run: str, *events: Event, parent: str | None = None, depth: int = 1) -> None:
        origin = EventSource(
            run=run, session=f"{run:0<32}", root="r", parent_run=parent, parent_tool_use_id="c", depth=depth
        )
        self.told += [EventRecord(origin, len(self.told) + 1, START, event) for event in events]

    def progress(self) -> CallProgress:
        return fold(self.told)


def fold(events: Iterable[EventRecord]) -> CallProgress:
    progress = CallProgress()
    for stamped in events:
        progress = progress.apply(stamped)
    return progress
