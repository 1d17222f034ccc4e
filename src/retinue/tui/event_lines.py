"""Events as plain lines, for output without a screen: `12:34:56 explorer  → grep /pattern/`."""

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
"""Columns of a run's name; longer names are cut to keep the columns aligned."""
MAX_LINE_CHARS = 200
"""Columns of a line."""
MAX_NOTICE_LINES = 10
"""Lines of a notice: its end says what to do."""


class EventLineFormatter:
    """Formats the events of several runs, each with the name of its run."""

    def __init__(self, *, results_printed: bool = True) -> None:
        """Take whether the caller prints the results of top-level runs; if not, their failures are lines, too."""
        self._results_printed = results_printed
        self._names: dict[str, str] = {}
        self._tops: dict[str, int] = {}
        """The depth of each run's topmost ancestor: a session may be continued at any depth."""

    def __call__(self, record: EventRecord) -> Iterator[str]:
        """Yield the lines of an event; none for an event without news."""
        origin, event = record.origin, record.event
        if isinstance(event, RunQueued):
            self._names[origin.run] = event.name
            self._tops[origin.run] = self._tops.get(origin.parent_run, 1) if origin.parent_run else origin.depth
        if news := format_event(event, origin.session[:SHORT_ID_LENGTH]):
            if isinstance(event, RunEnded) and event.failure and (origin.parent_run or not self._results_printed):
                news += f": {first_line(event.failure.message)}"
            name = to_one_line(self._names.get(origin.run, origin.run[:SHORT_ID_LENGTH]), MAX_LINE_CHARS)
            indent = "  " * (origin.depth - self._tops.get(origin.run, 1))
            prefix = f"{format_time(record.time, '%H:%M:%S')} {indent}{pad_text(name, NAME_WIDTH)}  "
            columns = max(MAX_LINE_CHARS - text_width(prefix), NAME_WIDTH)
            max_lines = MAX_NOTICE_LINES if isinstance(event, Notice) else 1
            for line in wrap_text(to_one_line(news, max_lines * MAX_LINE_CHARS), columns, max_lines):
                yield prefix + line
                prefix = " " * text_width(prefix)


def format_event(event: Event, session: str) -> str | None:
    """Return the line of an event without the name of its run, not sanitized; None for an event without news."""
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
