"""Events as plain lines, for where no screen is: `12:34:56 explorer  → grep → /pattern/`."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.model.errors import Failure
from retinue.model.event_codec import EventRecord
from retinue.model.events import (
    HIDDEN_NOTICE_CODES,
    AttemptStarted,
    DeadlineExtended,
    Event,
    ModelChanged,
    Notice,
    RunEnded,
    RunQueued,
    RunStarted,
    SteeringDelivered,
    Text,
    ToolCalled,
    ToolReturned,
)
from retinue.output.untrusted_text import first_line, to_one_line
from retinue.support.formatting import SHORT_ID_LENGTH, format_time
from retinue.tui.tool_lines import format_call
from retinue.tui.widths import pad_text, text_width, wrap_text

NAME_WIDTH = 12
"""Columns of a run's name; longer ones are cut, so that what follows stands in line."""
MAX_LINE_CHARS = 200
"""Columns of a line."""
MAX_NOTICE_LINES = 10
"""Of a notice: it ends with what to do."""


class EventLineFormatter:
    """Tells the events of several runs, each under its run's name."""

    def __init__(self, *, results_printed: bool = True) -> None:
        """What came of the runs at the top `is_told` by whoever asked for them; else it is told here, too."""
        self._results_printed = results_printed
        self._names: dict[str, str] = {}
        self._tops: dict[str, int] = {}
        """For each run, the depth of the highest above it: a session may be continued at any depth."""

    def __call__(self, stamped: EventRecord) -> Iterator[str]:
        """The line of an event; none for one that says nothing new."""
        origin, event = stamped.origin, stamped.event
        if isinstance(event, RunQueued):
            self._names[origin.run] = event.name
            self._tops[origin.run] = self._tops.get(origin.parent_run, 1) if origin.parent_run else origin.depth
        if news := format_event(event, origin.session[:SHORT_ID_LENGTH]):
            if isinstance(event, RunEnded) and event.failure and (origin.parent_run or not self._results_printed):
                news += f": {first_line(event.failure.message)}"
            name = pad_text(
                to_one_line(self._names.get(origin.run, origin.run[:SHORT_ID_LENGTH]), MAX_LINE_CHARS), NAME_WIDTH
            )
            level = origin.depth - self._tops.get(origin.run, 1)
            before = f"{format_time(stamped.time, '%H:%M:%S')} {'  ' * level}{name}  "
            most = MAX_NOTICE_LINES if isinstance(event, Notice) else 1
            for line in wrap_text(
                to_one_line(news, most * MAX_LINE_CHARS), max(MAX_LINE_CHARS - text_width(before), NAME_WIDTH), most
            ):
                yield before + line
                before = " " * text_width(before)


def format_event(event: Event, session: str) -> str | None:
    """What an event says, on a line without its run's name; None if nothing new. Not yet made plain."""
    match event:
        case RunQueued(task=task):
            return f"○ {first_line(task)}"
        case RunStarted():
            return "started"
        case ToolCalled(name=name, args=args):
            return f"→ {format_call(name, args).replace(' → ', ' ', 1)}"
        case ToolReturned(name=name, is_error=True, text=text):
            return f"! {name}: {first_line(text) or 'failed'}"
        case Text(text=text) if text.strip():
            return f"“{first_line(text)}”"
        case RunEnded(failure=None, elapsed=elapsed):
            return f"✓ done in {elapsed:.1f}s (session {session})"
        case RunEnded(failure=Failure(code=code), elapsed=elapsed):
            return f"✗ {code} after {elapsed:.1f}s (session {session})"
        case _:
            return _format_change(event)


def _format_change(event: Event) -> str | None:
    match event:
        case AttemptStarted(number=number, reason=reason) if number > 1:
            return f"attempt {number} ({reason})"
        case ModelChanged(after=after, reason=reason):
            return f"model: {after} ({reason})"
        case Notice(code=code, message=message) if code not in HIDDEN_NOTICE_CODES:
            return f"! {message}"
        case SteeringDelivered(text=text):
            return f"» {first_line(text)}"
        case DeadlineExtended(seconds=seconds, timeout=timeout):
            return f"given {seconds:g}s more: its timeout is {timeout:g}s"
        case _:
            return None
