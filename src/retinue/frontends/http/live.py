"""Runs while they go on: one fold of their events, and the row a list shows of each."""

from __future__ import annotations

import os
from collections.abc import Container

from msgspec import Struct

from retinue.events import LIVE, Origin, RunEnded, RunQueued, RunStarted, Stamped
from retinue.frontends.http.values import Can, Carrier, RunRow, Used
from retinue.frontends.tool_lines import call_line
from retinue.output.frame import one_line
from retinue.output.texts import first_line
from retinue.progress import Called, Noted, Phase, Progress, RunView, Said
from retinue.sessions.owner import Owner
from retinue.sessions.store import SessionSummary, State

TASK = 240
"""Characters of a task in a list."""
LINE = 200
"""Characters of a preview, and of what a run does."""

WAITS, BEGINS, THINKS = "waiting for a slot", "starting", "thinking"

STATES = {
    Phase.QUEUED: State.QUEUED,
    Phase.RUNNING: State.RUNNING,
    Phase.DONE: State.COMPLETED,
    Phase.ERROR: State.ERROR,
}


class LiveRun:
    """One run, as far as its events have told."""

    def __init__(
        self,
        first: Stamped,
        *,
        number: int,
        address: str,
        steering: Container[str] = frozenset(),
        continues: SessionSummary | None = None,
        parent_session: str | None = None,
    ) -> None:
        """Takes which run of its session it is, from 1, and the socket of the process that told of it.

        An empty address is this process. `steering` are the engines whose agents hear while they work. A run that
        continues a session stands in the tree where that does, whoever asked for it. `parent_session` is what it
        stands below.
        """
        self._steering = steering
        self._continues = continues
        self._parent_session = parent_session
        self.origin: Origin = first.origin
        self.number = number
        self.address = address
        self.owner: Owner | None = None
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

    def take(self, stamped: Stamped) -> None:
        """Folds one more event."""
        run, event = self.origin.run, stamped.event
        seen = {run: self._view} if self.seq else {}
        self._view = Progress(seen).after(stamped).runs[run]
        self.updated = stamped.time
        if not isinstance(event, LIVE):
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

    def row(self) -> RunRow:
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
            task=view.task[:TASK],
            doing=doing(view),
            created=view.queued,
            started=self.started,
            ended=self._ended,
            elapsed=view.elapsed,
            timeout=view.timeout,
            tools=view.tools,
            turns=usage.turns or view.turns,
            usage=Used.of(usage),
            failure=view.failure,
            preview=self._preview(),
            cwd=queued.cwd if queued else "",
            session_runs=self.number,
            owner=None if ended else self._carrier(),
            can=self._can(),
        )

    def _can(self) -> Can:
        if self.ended:
            return Can(resume=True)
        is_reached = self.is_own or bool(self._control)
        works = is_reached and self._view.phase is Phase.RUNNING
        return Can(cancel=is_reached, steer=works and self._view.engine in self._steering, extend=works)

    @property
    def _control(self) -> str | None:
        return self.address or (self.owner.control if self.owner else None)

    def _carrier(self) -> Carrier | None:
        if self.is_own:
            return Carrier(pid=os.getpid(), host=os.uname().nodename if hasattr(os, "uname") else "", here=True)
        return Carrier(pid=self.owner.pid, host=self.owner.host, here=False) if self.owner else None

    def _preview(self) -> str:
        if self.ended:
            return preview(self.ended.failure.message if self.ended.failure else self.ended.text)
        return preview(next((item.text for item in reversed(self._view.items) if isinstance(item, Said)), ""))


class Past(Struct, frozen=True):
    """A run that has ended: what is left of it here."""

    seq: int
    row: RunRow


def preview(text: str) -> str:
    """The first line of a text."""
    return one_line(first_line(text[: 8 * LINE]), LINE)


def doing(view: RunView) -> str:
    """What a run does, in one line; empty once it has ended."""
    if view.phase is not Phase.RUNNING:
        return WAITS if view.phase is Phase.QUEUED else ""
    if view.partial.strip():
        return one_line(view.partial.strip().rsplit("\n", 1)[-1], LINE)
    for item in reversed(view.items):
        if isinstance(item, Called) and item.result is None:
            return one_line(call_line(item.name, item.args).replace(" → ", " ", 1), LINE)
        if not isinstance(item, Called):
            break
    last = view.items[-1] if view.items else None
    match last:
        case Said(text=text) if text.strip():
            return one_line(text.strip().rsplit("\n", 1)[-1], LINE)
        case Noted(message=message):
            return one_line(first_line(message), LINE)
        case None:
            return BEGINS
        case _:
            return THINKS
