"""What stands in a window: the lines of what a run said and did, newest first, and why it failed."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.frontends.cells import wrap
from retinue.frontends.spans import Line, Span
from retinue.frontends.tool_lines import call_line, error_line, result_line
from retinue.output.frame import one_line
from retinue.progress import Called, Noted, RunView, Said, Told

INDENT = "  "
"""Of a line below its header, and of a run below the one that asked for it."""
MOST_LEVELS = 10
"""Runs below one another that are drawn so; what stands deeper says how deep."""
BELOW = "↳ "
"""Before a run that another asked for, within its indent."""
ERROR_LINES = 3
NOTICE_LINES = 15
TEXT_CHARS = 8_000
"""Of one text, from its end: more than any window shows."""
MOST_INDENT = 8
MOST_COLUMNS = 1_000
"""Of anything: no screen is wider."""


def backwards(view: RunView, columns: int, *, most_chars: int = TEXT_CHARS) -> Iterator[Line]:
    """The lines of a run from the newest on. Read from the end, so that its cost does not grow with the run.

    `most_chars` are taken of one text, from its end.
    """
    yield from _said(view, view.partial, most_chars)
    for item in reversed(view.items):
        match item:
            case Said(text=text):
                yield from _said(view, text, most_chars)
            case Noted(message=message):
                told = wrap(f"! {one_line(message, MOST_COLUMNS)}", room(view, columns), NOTICE_LINES)
                yield from (line_of(view, line, "warning") for line in reversed(told))
            case Told(text=text):
                told = wrap(f"» {one_line(text, MOST_COLUMNS)}", room(view, columns), NOTICE_LINES)
                yield from (line_of(view, line, "name") for line in reversed(told))
            case Called():
                yield from _called(view, item)


def error_lines(view: RunView, columns: int, most: int = ERROR_LINES) -> list[Line]:
    """Why the run failed, to stand beneath its lines; none if it did not."""
    told: list[str] = []
    for sentence in view.failure.message.split("\n") if view.failure else ():
        if len(told) < most:
            told += wrap(one_line(sentence, MOST_COLUMNS), room(view, columns), most - len(told))
    return [line_of(view, text, "error") for text in told]


def line_of(view: RunView, text: str, style: str = "", *, indent: int = 0) -> Line:
    """A line in the window of a run, made plain."""
    return (Span(INDENT * level(view) + " " * indent), Span(one_line(text, MOST_COLUMNS), style))


def room(view: RunView, columns: int) -> int:
    """Columns beside the indent of a run."""
    return columns - len(INDENT) * level(view)


def level(view: RunView) -> int:
    """How far in a run is drawn; 1: not at all."""
    return min(view.depth, MOST_LEVELS)


def before_header(view: RunView) -> str:
    """What stands before the header of a run: nothing, or the indent and the sign of one that another asked for."""
    if view.depth <= 1:
        return ""
    columns = len(INDENT) * (level(view) - 2)
    return (f"…{view.depth}" if view.depth > MOST_LEVELS else "").ljust(columns) + BELOW


def _said(view: RunView, text: str, most_chars: int) -> Iterator[Line]:
    for line in reversed(text[-most_chars:].split("\n")):
        if said := line.strip():
            yield line_of(view, said, indent=min(len(line) - len(line.lstrip(" ")), MOST_INDENT))


def _called(view: RunView, called: Called) -> Iterator[Line]:
    if error := error_line(called):
        yield line_of(view, error, "error", indent=2)
    if result := result_line(called):
        yield line_of(view, result, "muted", indent=2)
    yield line_of(view, call_line(called.name, called.args), "muted")
