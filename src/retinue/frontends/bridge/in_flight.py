"""A call that has not been answered: what its runs do, as a host draws it and as it remembers it."""

from __future__ import annotations

import time

import anyio
from msgspec import UnsetType, structs

from retinue.events import RunEnded, RunQueued, Stamped
from retinue.frontends.bridge.protocol import Ended, Partial, Result, Started, View
from retinue.frontends.bridge.session_data import (
    MAX_CALL_BYTES,
    MAX_ERROR_BYTES,
    MAX_NAME_BYTES,
    MAX_PROMPT_BYTES,
    MAX_TASK_BYTES,
    PROMPT_SHARE,
    MessageLog,
    SessionData,
    cut,
    encoded_bytes,
)
from retinue.frontends.bridge.view_builder import ViewBuilder
from retinue.frontends.windows import NOBODY, SESSION_DIGITS
from retinue.progress import Progress
from retinue.surfaces.base import ToolResult, Toolset
from retinue.types import Call

STOPPING = 10.0
"""Seconds the runs of a cancelled call have to end, as long as a stubborn process tree takes; then it is left."""


class InFlight:
    """What is known of a call while its tool works."""

    def __init__(self, id_: str, call: Call, surface: Toolset, max_lines: int) -> None:
        self._id = id_
        self._call = call
        self._parent_call = call.lineage.parent_call
        self._surface = surface
        self._views = ViewBuilder(max_lines, surface.tool_session_id, verbatim=surface.name == "fanout")
        self._progress = Progress()
        self._queued: dict[str, RunQueued] = {}
        self._messages: dict[str, MessageLog] = {}
        """Of the runs that have not ended."""
        self._bytes_left = MAX_CALL_BYTES
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

    def take(self, stamped: Stamped) -> Started | Ended | None:
        """Take in an event of the runs of this call and below, and return the message to send of it, if any."""
        origin, event = stamped.origin, stamped.event
        is_own = origin.parent_tool_use_id == self._parent_call
        if not is_own and origin.parent_run not in self._progress.runs:
            return None
        if is_own and isinstance(event, RunEnded) and event.failure:
            message = self._surface.failure_text(event.failure, self._call)
            event = structs.replace(event, failure=structs.replace(event.failure, message=message))
        self._progress = self._progress.after(structs.replace(stamped, event=event))
        if is_own and isinstance(event, RunQueued):
            self._queued[origin.run] = event
            self._messages[origin.run] = MessageLog()
            return Started(id=self._id, session=self._session(origin.run))
        # A watcher that lagged behind may have missed the start: then there is too little to store.
        if origin.run in self._messages:
            if isinstance(event, RunEnded):
                return Ended(id=self._id, session=self._ended_session(origin.run, event))
            self._messages[origin.run].add(event)
        return None

    def partial(self) -> Partial:
        assert self.latest is not None
        return Partial(id=self._id, result=self.latest.as_json(), view=self._view())

    def result(self, result: ToolResult) -> Result:
        return Result(id=self._id, result=result.as_json(), view=self._view())

    def _view(self) -> View | UnsetType:
        return self._views.build(self._progress, time.time())

    def _session(self, run: str) -> SessionData:
        """Return the data of a run that has not ended."""
        view, queued = self._progress.runs[run], self._queued[run]
        data = SessionData(
            session_id=view.session[:SESSION_DIGITS],
            task_name=cut(view.name, MAX_NAME_BYTES),
            prompt=cut(view.task, min(MAX_PROMPT_BYTES, max(self._bytes_left, 0) // PROMPT_SHARE)),
            cwd=queued.cwd,
            profile_name=None if view.agent == NOBODY else cut(view.agent, MAX_NAME_BYTES),
            status="running",
            model=view.model,
            started_at=round((view.started or view.queued) * 1000),
        )
        self._bytes_left -= encoded_bytes(data)
        return data

    def _ended_session(self, run: str, ended: RunEnded) -> SessionData:
        """Return the data of a run that ended, its messages within its share of what one call may store."""
        view, messages = self._progress.runs[run], self._messages.pop(run)
        # Runs that have not ended, and one that may follow, keep a share.
        share = min(MAX_TASK_BYTES, max(self._bytes_left, 0) // (len(self._messages) + 2))
        data = structs.replace(
            self._session(run),
            status="error" if ended.failure else "completed",
            exit_code=ended.exit_code,
            model=ended.actual.model or view.model,
            stop_reason=view.stop_reason,
            error_message=cut(ended.failure.message, MAX_ERROR_BYTES) if ended.failure else None,
        )
        kept = messages.newest(ended, share - 2 * encoded_bytes(data))  # it is stored at the start, too
        self._bytes_left -= encoded_bytes(structs.replace(data, messages=kept)) - encoded_bytes(data)
        return structs.replace(data, messages=kept)
