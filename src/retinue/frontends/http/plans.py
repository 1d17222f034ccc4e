"""A plan while it is carried out, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import anyio

from retinue.frontends.http.hub import Hub
from retinue.frontends.http.outcomes import PlanState, PlanTask
from retinue.frontends.http.values import RunRow
from retinue.sessions.store import State
from retinue.types import Failure, Mode, Plan

TaskState = Literal["waiting", "skipped", "queued", "running", "completed", "error"]
STATES: Mapping[State, TaskState] = {
    State.QUEUED: "queued",
    State.RUNNING: "running",
    State.COMPLETED: "completed",
    State.ERROR: "error",
}


class RunningPlan:
    """The runs of a plan, in the order of its tasks, as far as they have begun."""

    def __init__(self, plan: Plan, name: str, created: float) -> None:
        self.id = name
        self.refusal: Failure | None = None
        """Why nothing was started."""
        self.begun, self.over = anyio.Event(), anyio.Event()
        self._plan = plan
        self._created = created
        self._runs: list[str] = []
        self._rows: dict[str, RunRow] = {}

    @property
    def is_over(self) -> bool:
        return self.over.is_set()

    @property
    def has_begun(self) -> bool:
        """Whether one of its runs was told of."""
        return bool(self._rows)

    def note(self, runs: Iterable[str]) -> None:
        """Says the ids of all its runs."""
        self._runs = list(runs)

    def met(self, row: RunRow) -> None:
        """One of its runs was told of."""
        self._rows[row.run] = row
        if row.run not in self._runs:
            self._runs.append(row.run)
        self.begun.set()

    def end(self) -> None:
        self.over.set()
        self.begun.set()

    def rows(self, hub: Hub) -> list[RunRow]:
        """The rows of the runs that have begun, as they are now."""
        return [row for run in self._runs if (row := self._row(run, hub))]

    def state(self, hub: Hub) -> PlanState:
        """How far it has come."""
        rows = [self._row(run, hub) for run in self._runs]
        tasks = []
        for number, task in enumerate(self._plan.tasks):
            row = rows[number] if number < len(rows) else None
            state: TaskState = STATES[row.state] if row else "skipped" if self.is_over else "waiting"
            tasks.append(PlanTask(agent=task.agent, task=task.prompt, run=row.run if row else None, state=state))
        return PlanState(
            plan=self.id,
            mode="chain" if self._plan.mode is Mode.CHAIN else "parallel",
            state=self._whole(tasks),
            created=self._created,
            tasks=tuple(tasks),
        )

    def _whole(self, tasks: list[PlanTask]) -> Literal["running", "completed", "error"]:
        if not self.is_over:
            return "running"
        return "completed" if all(task.state == "completed" for task in tasks) else "error"

    def _row(self, run: str, hub: Hub) -> RunRow | None:
        """The row of a run; the last that was known, where the hub has forgotten it."""
        if row := hub.row(run):
            self._rows[run] = row
        return self._rows.get(run)
