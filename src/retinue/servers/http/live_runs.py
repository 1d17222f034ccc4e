"""Runs while they go on: one fold of their events, and the row a list shows of each."""

from __future__ import annotations

import os
from collections.abc import Container

from msgspec import Struct

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import EPHEMERAL_EVENTS, RunEnded, RunQueued, RunStarted
from retinue.output.untrusted_text import first_line, to_one_line
from retinue.runtime.progress import CallProgress, NoticeItem, RunState, RunView, TextItem, ToolCallItem
from retinue.servers.http.schemas import RunActions, RunOwner, RunRow, UsageTotals
from retinue.sessions.store import LeaseOwner, SessionState, SessionSummary
from retinue.tui.tool_lines import format_call

MAX_TASK_CHARS = 240
"""Characters of a task in a list."""
MAX_LINE_CHARS = 200
"""Characters of a preview, and of what a run does."""

WAITING_TEXT, STARTING_TEXT, THINKING_TEXT = "waiting for a slot", "starting", "thinking"

STATES = {
    RunState.QUEUED: SessionState.QUEUED,
    RunState.RUNNING: SessionState.RUNNING,
    RunState.DONE: SessionState.COMPLETED,
    RunState.ERROR: SessionState.ERROR,
}


class LiveRunState:
    """One run, as far as its events have told."""

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
        """Takes which run of its session it is, from 1, and the socket of the process that told of it.

        An empty address is this process. `steering` are the engines whose agents hear while they work. A run that
        continues a session stands in the tree where that does, whoever asked for it. `parent_session` is what it
        stands below.
        """
        self._steerable_engines = steerable_engines
        self._continues = continues
        self._parent_session = parent_session
        self.origin: EventSource = first.origin
        self.number = number
        self.address = address
        self.owner: LeaseOwner | None = None
        """Of a run of another process, once its lease was looked at."""
        self.seq = 0
        """Of the last durable event."""
        self.updated = first.time
        self.ended: RunEnded | None = None
        self._view = RunView(run=self.origin.run, session=self.origin.session, name=self.origin.run[:8])
        self._queued: RunQueued | None = None
        self.started: float | None = None
        self._ended: float | None = None

    @property
    def is_own(self) -> bool:
        """Whether this process carries it out."""
        return not self.address

    def add_event(self, stamped: EventRecord) -> None:
        """Folds one more event."""
        run, event = self.origin.run, stamped.event
        seen = {run: self._view} if self.seq else {}
        self._view = CallProgress(seen).apply(stamped).runs[run]
        self.updated = stamped.time
        if not isinstance(event, EPHEMERAL_EVENTS):
            self.seq = stamped.seq
        match event:
            case RunQueued():
                self._queued = event
            case RunStarted():
                self.started = stamped.time
            case RunEnded():
                self.ended, self._ended = event, stamped.time
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
            usage=UsageTotals.from_usage(usage),
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
        is_reached = self.is_own or bool(self._control_address)
        works = is_reached and self._view.phase is RunState.RUNNING
        return RunActions(
            cancel=is_reached, steer=works and self._view.engine in self._steerable_engines, extend=works
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
    """A run that has ended: what is left of it here."""

    seq: int
    row: RunRow


def preview_line(text: str) -> str:
    """The first line of a text."""
    return to_one_line(first_line(text[: 8 * MAX_LINE_CHARS]), MAX_LINE_CHARS)


def describe_activity(view: RunView) -> str:
    """What a run does, in one line; empty once it has ended."""
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
