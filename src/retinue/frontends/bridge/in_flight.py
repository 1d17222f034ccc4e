"""A call that has not been answered: what its runs do, as a host draws it and as it remembers it."""

from __future__ import annotations

import time

import anyio
from msgspec import UNSET, UnsetType

from retinue.events import RunEnded, RunQueued, Stamped
from retinue.frontends.bridge.protocol import Drawn, Partial, Result, Session, View
from retinue.frontends.spans import Line
from retinue.frontends.windows import NOBODY, SESSION_DIGITS, Screen, frame
from retinue.progress import Progress
from retinue.surfaces.base import ToolResult
from retinue.types import Call

COLUMNS = 1_000
"""Wider than any screen: the host breaks or cuts lines at its own."""
EXPANDED = 500
"""Lines, as seed 003 has them."""
STOPPING = 10.0
"""Seconds the runs of a cancelled call have to end, as long as a stubborn process tree takes; then it is left."""


class InFlight:
    """What is known of a call while its tool works."""

    def __init__(self, id_: str, call: Call, max_lines: int) -> None:
        self._id = id_
        self._parent_call = call.lineage.parent_call
        self._max_lines = max_lines
        self._progress = Progress()
        self._queued: dict[str, RunQueued] = {}
        self.scope = anyio.CancelScope()
        self.is_cancelled = False
        self.latest: ToolResult | None = None
        """What the tool had to show last."""

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that the call itself asked for."""
        return tuple(self._queued)

    def cancel(self) -> None:
        """Gives what is still to be said a bound; stopping the runs is for whoever has them."""
        self.is_cancelled = True
        self.scope.deadline = anyio.current_time() + STOPPING

    def take(self, stamped: Stamped) -> Session | None:
        """Takes in an event, if it is of a run of this call or below; of one that ended, what is to be remembered."""
        origin, event = stamped.origin, stamped.event
        is_own = origin.parent_tool_use_id == self._parent_call
        if not is_own and origin.parent_run not in self._progress.runs:
            return None
        self._progress = self._progress.after(stamped)
        if is_own and isinstance(event, RunQueued):
            self._queued[origin.run] = event
        # Whoever lagged behind may not have heard of its beginning: then there is too little to remember.
        is_known = origin.run in self._queued
        return self._session(origin.run, event) if is_known and isinstance(event, RunEnded) else None

    def partial(self) -> Partial:
        assert self.latest is not None
        return Partial(id=self._id, result=self.latest.as_json(), view=self._view())

    def result(self, result: ToolResult) -> Result:
        return Result(id=self._id, result=result.as_json(), view=self._view())

    def _view(self) -> View | UnsetType:
        """The picture of its runs; none of a call without any."""
        runs = len(self._progress.runs)
        if not runs:
            return UNSET
        # The status above, the sessions below, a header for each, and for all together what one alone may have.
        height = 2 + runs + max(self._max_lines, runs)
        now = time.time()
        compact = Screen(width=COLUMNS, height=height, max_lines=self._max_lines)
        whole = Screen(width=COLUMNS, height=max(EXPANDED, height), expanded=True)
        return View(
            lines=_drawn(frame(self._progress, compact, now)), expanded=_drawn(frame(self._progress, whole, now))
        )

    def _session(self, run: str, ended: RunEnded) -> Session:
        view, queued = self._progress.runs[run], self._queued[run]
        return Session(
            session_id=view.session[:SESSION_DIGITS],
            task_name=view.name,
            prompt=view.task,
            cwd=queued.cwd,
            profile_name=None if view.agent == NOBODY else view.agent,
            status="error" if ended.failure else "completed",
            exit_code=ended.exit_code,
            model=ended.actual.model or view.model,
            stop_reason=view.stop_reason,
            error_message=ended.failure.message if ended.failure else None,
            started_at=round((view.started or view.queued) * 1000),
        )


def _drawn(lines: tuple[Line, ...]) -> Drawn:
    return [[(span.text, span.style) for span in line if span.text] for line in lines]
