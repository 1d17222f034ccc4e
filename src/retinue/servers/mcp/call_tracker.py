"""Progress of the runs of every call in flight, from one subscription to the event bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskStatus
from msgspec import Struct

from retinue.client import Retinue
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded, RunQueued, ToolCalled
from retinue.output.untrusted_text import to_one_line
from retinue.runtime.event_bus import EventSubscription, SubscriberLaggedError
from retinue.support.formatting import SHORT_ID_LENGTH
from retinue.tui.event_lines import format_event

MAX_RUN_STATUS_CHARS = 160
"""Of the status of one run."""
MAX_NAME_CHARS = 40
MAX_RUNS = 8
"""Runs listed one by one in a status line; the others are counted."""


class TrackedRun(Struct, kw_only=True):
    """The progress of one run."""

    run: str
    session: str
    name: str = ""
    agent: str = ""
    status: str = "queued"
    """A line about the latest event."""
    tools: int = 0
    ended: RunEnded | None = None


OnRunStarted = Callable[[TrackedRun], None]
"""Called with the first run of a call once the run is recorded."""


class TrackedCall:
    """The runs of one call."""

    def __init__(self, on_started: OnRunStarted | None = None) -> None:
        self.runs: dict[str, TrackedRun] = {}
        self.changes = 0
        """Number of updates so far."""
        self._on_started = on_started
        self._changed = anyio.Event()
        self._observers: set[TrackedCall] = set()

    def add_event(self, stamped: EventRecord) -> None:
        """Update the run that an event belongs to."""
        origin, event = stamped.origin, stamped.event
        run = self.runs.get(origin.run) or TrackedRun(run=origin.run, session=origin.session)
        match event:
            case RunQueued():
                run.name, run.agent = event.name, event.agent
            case ToolCalled():
                run.tools += 1
            case RunEnded():
                run.ended = event
        if line := format_event(event, origin.session[:SHORT_ID_LENGTH]):
            run.status = line
        self.update_run(run)

    def update_run(self, run: TrackedRun) -> None:
        """Store the progress of a run and notify waiters and observers."""
        is_first = not self.runs
        self.runs[run.run] = run
        if is_first and self._on_started:
            self._on_started(run)
        self.changes += 1
        self._changed.set()
        for observer in self._observers:
            observer.update_run(run)

    @contextmanager
    def share_with(self, observer: TrackedCall) -> Iterator[None]:
        """Pass the progress of the runs on to another call within the block."""
        self._observers.add(observer)
        try:
            for run in self.runs.values():
                observer.update_run(run)
            yield
        finally:
            self._observers.discard(observer)

    async def wait_changed(self) -> None:
        """Wait for the next update."""
        self._changed = anyio.Event()
        await self._changed.wait()

    def status_line(self) -> str:
        """Return one line with the status of each run."""
        runs = list(self.runs.values())
        if len(runs) == 1:
            return _format_run(runs[0])
        working = [_format_run(run) for run in runs if run.ended is None]
        more = [f"{len(working) - MAX_RUNS} more"] if len(working) > MAX_RUNS else []
        return "; ".join([f"{len(runs) - len(working)} of {len(runs)} done", *working[:MAX_RUNS], *more])

    def report_runs(self) -> list[dict[str, Any]]:
        """Return a report of each run that has ended: its result, and declared against actual execution."""
        return [_report_run(run) for run in self.runs.values() if run.ended]


def _format_run(run: TrackedRun) -> str:
    return f"{to_one_line(run.name, MAX_NAME_CHARS)}: {to_one_line(run.status, MAX_RUN_STATUS_CHARS)}"


def _report_run(run: TrackedRun) -> dict[str, Any]:
    ended = run.ended
    assert ended is not None
    return {
        "run": run.run,
        "session": run.session,
        "name": run.name,
        "agent": run.agent,
        "status": "failed" if ended.failure else "completed",
        "exitCode": ended.exit_code,
        "answer": str(ended.answer),
        "failure": msgspec.to_builtins(ended.failure),
        "usage": msgspec.to_builtins(ended.usage),
        "elapsed": round(ended.elapsed, 3),
        "actual": msgspec.to_builtins(ended.actual),
    }


class CallTracker:
    """The calls of a process that are in flight, updated by the events of their runs."""

    def __init__(self, retinue: Retinue) -> None:
        self._retinue = retinue
        self._subscription: EventSubscription | None = None
        self._calls: dict[str, TrackedCall] = {}

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow the event bus until cancelled."""
        while True:
            async with self._retinue.events(deltas=False) as self._subscription:
                task_status.started()
                task_status = anyio.TASK_STATUS_IGNORED
                try:
                    async for stamped in self._subscription:
                        self._add_event(stamped)
                except SubscriberLaggedError:
                    continue  # the missed events are in the store

    @contextmanager
    def track(self, call: str, on_started: OnRunStarted | None = None) -> Iterator[TrackedCall]:
        """Track the runs of a call within the block."""
        tracked_call = self._calls[call] = TrackedCall(on_started)
        try:
            yield tracked_call
        finally:
            del self._calls[call]

    def get(self, call: str) -> TrackedCall:
        """Return a call that is being tracked."""
        return self._calls[call]

    def catch_up(self) -> None:
        """Process the events that are already queued, so that the report of an ended call is complete."""
        try:
            for stamped in self._subscription.drain() if self._subscription else ():
                self._add_event(stamped)
        except SubscriberLaggedError:
            return

    def _add_event(self, stamped: EventRecord) -> None:
        if tracked_call := self._calls.get(stamped.origin.parent_tool_use_id):
            tracked_call.add_event(stamped)
