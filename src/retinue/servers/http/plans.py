"""A plan that runs or has ended, with the rows of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import anyio

from retinue.model.errors import Failure
from retinue.model.tasks import Mode, Plan
from retinue.servers.http.details import PlanState, PlanTask
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.schemas import RunRow
from retinue.sessions.store import SessionState

TaskState = Literal["waiting", "skipped", "queued", "running", "completed", "error"]
STATES: Mapping[SessionState, TaskState] = {
    SessionState.QUEUED: "queued",
    SessionState.RUNNING: "running",
    SessionState.COMPLETED: "completed",
    SessionState.ERROR: "error",
}


class RunningPlan:
    """The runs of a plan that have started, in the order of its tasks."""

    def __init__(self, plan: Plan, name: str, created: float) -> None:
        self.id = name
        self.refusal: Failure | None = None
        """The reason why nothing was started."""
        self.started, self.ended = anyio.Event(), anyio.Event()
        self._plan = plan
        self._created = created
        self._runs: list[str] = []
        self._rows: dict[str, RunRow] = {}

    @property
    def is_ended(self) -> bool:
        return self.ended.is_set()

    @property
    def has_started(self) -> bool:
        """Return whether a run of the plan was recorded."""
        return bool(self._rows)

    def set_runs(self, runs: Iterable[str]) -> None:
        """Set the ids of all runs of the plan."""
        self._runs = list(runs)

    def add_row(self, row: RunRow) -> None:
        """Add the row of a run that was recorded."""
        self._rows[row.run] = row
        if row.run not in self._runs:
            self._runs.append(row.run)
        self.started.set()

    def end(self) -> None:
        self.ended.set()
        self.started.set()

    def list_rows(self, feed: EventFeed) -> list[RunRow]:
        """Return the current rows of the runs that have started."""
        return [row for run in self._runs if (row := self._find_row(run, feed))]

    def to_state(self, feed: EventFeed) -> PlanState:
        """Return the state of the plan and of each task."""
        rows = [self._find_row(run, feed) for run in self._runs]
        tasks = []
        for number, task in enumerate(self._plan.tasks):
            row = rows[number] if number < len(rows) else None
            state: TaskState = STATES[row.state] if row else "skipped" if self.is_ended else "waiting"
            tasks.append(PlanTask(agent=task.agent, task=task.prompt, run=row.run if row else None, state=state))
        return PlanState(
            plan=self.id,
            mode="chain" if self._plan.mode is Mode.CHAIN else "parallel",
            state=self._overall_state(tasks),
            created=self._created,
            tasks=tuple(tasks),
        )

    def _overall_state(self, tasks: list[PlanTask]) -> Literal["running", "completed", "error"]:
        if not self.is_ended:
            return "running"
        return "completed" if all(task.state == "completed" for task in tasks) else "error"

    def _find_row(self, run: str, feed: EventFeed) -> RunRow | None:
        """Return the row of a run; the last known one if the feed has dropped it."""
        if row := feed.find_row(run):
            self._rows[run] = row
        return self._rows.get(run)
