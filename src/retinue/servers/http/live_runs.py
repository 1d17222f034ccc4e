"""Live runs: the state of each, folded from its events, and its row in lists."""

from __future__ import annotations

import os
from collections.abc import Container

from msgspec import Struct

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import EPHEMERAL_EVENTS, RunEnded, RunQueued, RunStarted
from retinue.output.untrusted_text import first_line, to_one_line
from retinue.runtime.progress import NoticeItem, RunState, RunView, TextItem, ToolCallItem
from retinue.servers.http.schemas import RunActions, RunOwner, RunRow, UsageTotals, copy_fields
from retinue.sessions.store import LeaseOwner, SessionState, SessionSummary
from retinue.tui.tool_lines import format_call

MAX_TASK_CHARS = 240
"""Characters of a task in a list."""
MAX_LINE_CHARS = 200
"""Characters of a preview and of the current activity."""

WAITING_TEXT, STARTING_TEXT, THINKING_TEXT = "waiting for a slot", "starting", "thinking"

STATES = {
    RunState.QUEUED: SessionState.QUEUED,
    RunState.RUNNING: SessionState.RUNNING,
    RunState.DONE: SessionState.COMPLETED,
    RunState.ERROR: SessionState.ERROR,
}


class LiveRunState:
    """One run, as far as its events are known."""

    def __init__(
        self,
        first: EventRecord,
        *,
        number: int,
        address: str,
        steerable_engines: Container[str] = frozenset(),
        continues: SessionSummary | None = None,
        parent_session: str | None = None,
    ) -> None:
        """Start with the first known event of the run.

        `number` is its place in its session, from 1; `address` the control socket of the process that reported it,
        empty for this process. A run that continues a session takes the place of that session in the tree.
        """
        self._steerable_engines = steerable_engines
        self._continues = continues
        self._parent_session = parent_session
        self.origin: EventSource = first.origin
        self.number = number
        self.address = address
        self.owner: LeaseOwner | None = None
        """The owner of a run of another process, once its lease has been read."""
        self.seq = 0
        """Sequence number of the last durable event."""
        self.updated = first.time
        self.ended: RunEnded | None = None
        self._view = RunView.of(first)
        self._queued: RunQueued | None = None
        self.started: float | None = None
        self._ended: float | None = None

    @property
    def is_own(self) -> bool:
        """Whether this process executes the run."""
        return not self.address

    def add_event(self, record: EventRecord) -> None:
        event = record.event
        self._view = self._view.apply(record)
        self.updated = record.time
        if not isinstance(event, EPHEMERAL_EVENTS):
            self.seq = record.seq
        match event:
            case RunQueued():
                self._queued = event
            case RunStarted():
                self.started = record.time
            case RunEnded():
                self.ended, self._ended = event, record.time
            case _:
                pass

    def to_row(self) -> RunRow:
        view, origin, queued, ended = self._view, self.origin, self._queued, self.ended
        usage, session = ended.usage if ended else view.usage, self._continues
        return RunRow(
            run=origin.run,
            session=origin.session,
            root=origin.root,
            parent_run=session.parent_run if session else origin.parent_run,
            parent_session=self._parent_session,
            parent_tool_use_id=(session.parent_call or None) if session else origin.parent_tool_use_id,
            depth=session.depth if session else origin.depth,
            name=view.name,
            agent=view.agent,
            engine=(ended and ended.actual.engine) or view.engine,
            model=(ended and ended.actual.model) or view.model,
            provider=view.provider,
            surface=queued.surface if queued else "",
            state=STATES[view.phase],
            task=view.task[:MAX_TASK_CHARS],
            doing=describe_activity(view),
            created=view.queued,
            started=self.started,
            ended=self._ended,
            elapsed=view.elapsed,
            timeout=view.timeout,
            tools=view.tools,
            turns=usage.turns or view.turns,
            usage=copy_fields(usage, UsageTotals),
            failure=view.failure,
            preview=self._preview_text(),
            cwd=queued.cwd if queued else "",
            session_runs=self.number,
            owner=None if ended else self._run_owner(),
            can=self._run_actions(),
        )

    def _run_actions(self) -> RunActions:
        if self.ended:
            return RunActions(resume=True)
        is_reachable = self.is_own or bool(self._control_address)
        is_running = is_reachable and self._view.phase is RunState.RUNNING
        return RunActions(
            cancel=is_reachable, steer=is_running and self._view.engine in self._steerable_engines, extend=is_running
        )

    @property
    def _control_address(self) -> str | None:
        return self.address or (self.owner.control if self.owner else None)

    def _run_owner(self) -> RunOwner | None:
        if self.is_own:
            return RunOwner(pid=os.getpid(), host=os.uname().nodename if hasattr(os, "uname") else "", here=True)
        return RunOwner(pid=self.owner.pid, host=self.owner.host, here=False) if self.owner else None

    def _preview_text(self) -> str:
        if self.ended:
            return preview_line(self.ended.failure.message if self.ended.failure else self.ended.text)
        return preview_line(
            next((item.text for item in reversed(self._view.items) if isinstance(item, TextItem)), "")
        )


class EndedRun(Struct, frozen=True):
    """The rest that is kept of a run that has ended."""

    seq: int
    row: RunRow


def preview_line(text: str) -> str:
    """Return the first line of a text, sanitized and shortened."""
    return to_one_line(first_line(text[: 8 * MAX_LINE_CHARS]), MAX_LINE_CHARS)


def describe_activity(view: RunView) -> str:
    """Return what the run is doing, in one line; empty once it has ended."""
    if view.phase is not RunState.RUNNING:
        return WAITING_TEXT if view.phase is RunState.QUEUED else ""
    if view.partial.strip():
        return to_one_line(view.partial.strip().rsplit("\n", 1)[-1], MAX_LINE_CHARS)
    for item in reversed(view.items):
        if isinstance(item, ToolCallItem) and item.result is None:
            return to_one_line(format_call(item.name, item.args).replace(" → ", " ", 1), MAX_LINE_CHARS)
        if not isinstance(item, ToolCallItem):
            break
    last = view.items[-1] if view.items else None
    match last:
        case TextItem(text=text) if text.strip():
            return to_one_line(text.strip().rsplit("\n", 1)[-1], MAX_LINE_CHARS)
        case NoticeItem(message=message):
            return to_one_line(first_line(message), MAX_LINE_CHARS)
        case None:
            return STARTING_TEXT
        case _:
            return THINKING_TEXT
