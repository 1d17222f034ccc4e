"""Events as plain lines, for where no screen is: `12:34:56 explorer  → grep → /pattern/`."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.events import (
    UNSHOWN_NOTICES,
    AttemptStarted,
    DeadlineExtended,
    Event,
    ModelChanged,
    Notice,
    RunEnded,
    RunQueued,
    RunStarted,
    Stamped,
    Steered,
    Text,
    ToolCalled,
    ToolReturned,
)
from retinue.frontends.cells import pad, width, wrap
from retinue.frontends.tool_lines import call_line
from retinue.frontends.wording import SHORT, moment
from retinue.output.frame import one_line
from retinue.output.texts import first_line
from retinue.types import Failure

NAME = 12
"""Columns of a run's name; longer ones are cut, so that what follows stands in line."""
MOST = 200
"""Columns of a line."""
NOTICE_LINES = 10
"""Of a notice: it ends with what to do."""


class EventLines:
    """Tells the events of several runs, each under its run's name."""

    def __init__(self, *, is_told: bool = True) -> None:
        """What came of the runs at the top `is_told` by whoever asked for them; else it is told here, too."""
        self._is_told = is_told
        self._names: dict[str, str] = {}
        self._tops: dict[str, int] = {}
        """For each run, the depth of the highest above it: a session may be continued at any depth."""

    def __call__(self, stamped: Stamped) -> Iterator[str]:
        """The line of an event; none for one that says nothing new."""
        origin, event = stamped.origin, stamped.event
        if isinstance(event, RunQueued):
            self._names[origin.run] = event.name
            self._tops[origin.run] = self._tops.get(origin.parent_run, 1) if origin.parent_run else origin.depth
        if news := event_words(event, origin.session[:SHORT]):
            if isinstance(event, RunEnded) and event.failure and (origin.parent_run or not self._is_told):
                news += f": {first_line(event.failure.message)}"
            name = pad(one_line(self._names.get(origin.run, origin.run[:SHORT]), MOST), NAME)
            level = origin.depth - self._tops.get(origin.run, 1)
            before = f"{moment(stamped.time, '%H:%M:%S')} {'  ' * level}{name}  "
            most = NOTICE_LINES if isinstance(event, Notice) else 1
            for line in wrap(one_line(news, most * MOST), max(MOST - width(before), NAME), most):
                yield before + line
                before = " " * width(before)


def event_words(event: Event, session: str) -> str | None:
    """What an event says, on a line without its run's name; None if nothing new. Not yet made plain."""
    match event:
        case RunQueued(task=task):
            return f"○ {first_line(task)}"
        case RunStarted():
            return "started"
        case ToolCalled(name=name, args=args):
            return f"→ {call_line(name, args).replace(' → ', ' ', 1)}"
        case ToolReturned(name=name, is_error=True, text=text):
            return f"! {name}: {first_line(text) or 'failed'}"
        case Text(text=text) if text.strip():
            return f"“{first_line(text)}”"
        case RunEnded(failure=None, elapsed=elapsed):
            return f"✓ done in {elapsed:.1f}s (session {session})"
        case RunEnded(failure=Failure(code=code), elapsed=elapsed):
            return f"✗ {code} after {elapsed:.1f}s (session {session})"
        case _:
            return _changed(event)


def _changed(event: Event) -> str | None:
    match event:
        case AttemptStarted(number=number, reason=reason) if number > 1:
            return f"attempt {number} ({reason})"
        case ModelChanged(after=after, reason=reason):
            return f"model: {after} ({reason})"
        case Notice(code=code, message=message) if code not in UNSHOWN_NOTICES:
            return f"! {message}"
        case Steered(text=text):
            return f"» {first_line(text)}"
        case DeadlineExtended(seconds=seconds, timeout=timeout):
            return f"given {seconds:g}s more: its timeout is {timeout:g}s"
        case _:
            return None
