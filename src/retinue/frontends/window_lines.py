"""What stands in a window: the lines of what a run said and did, newest first, and why it failed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct

from retinue.frontends.cells import wrap
from retinue.frontends.spans import Line, Span
from retinue.frontends.tool_lines import call_line, error_line, result_line
from retinue.output.frame import one_line
from retinue.progress import Called, Item, Noted, RunView, Said, Told
from retinue.tool_names import FINALIZE

INDENT = "  "
"""Of a line below its header, and of a run below the one that asked for it."""
MOST_LEVELS = 10
"""Runs below one another that are drawn so; what stands deeper says how deep."""
BELOW = "↳ "
"""Before a run that another asked for, within its indent."""
ERROR_LINES = 3
TEXT_CHARS = 8_000
"""Of one text, from its end: more than any window shows."""
MOST_INDENT = 8
MOST_COLUMNS = 1_000
"""Of anything but text: no screen is wider."""
MIN_WRAP_COLUMNS = 10
"""A narrower room shows the beginning of a line instead of wrapping it."""


class Row(Struct, frozen=True):
    """One line of what a run said or did, not yet fitted to a screen."""

    text: str
    style: str = ""
    indent: int = 0
    """Columns beyond the indent of the run."""

    @property
    def is_condensed(self) -> bool:
        """Whether a window that is not expanded shows only as much of the row as fits on one line."""
        return self.style == "muted"


def item_rows(item: Item, *, max_chars: int = TEXT_CHARS) -> list[Row]:
    """Return the rows of an item, oldest first; of one text its last `max_chars` characters."""
    match item:
        case Said(text=text):
            return text_rows(text, max_chars=max_chars)
        case Noted(message=message):
            return [Row(f"! {one_line(message, MOST_COLUMNS)}", "warning")]
        case Told(text=text):
            return [Row(f"» {one_line(text, MOST_COLUMNS)}", "name")]
        case Called():
            return _call_rows(item, max_chars)


def text_rows(text: str, style: str = "", *, max_chars: int = TEXT_CHARS) -> list[Row]:
    """Return the lines of a text that are not blank, plain and with their indent."""
    return [
        Row(one_line(line, max_chars), style, indent=min(len(line) - len(line.lstrip(" ")), MOST_INDENT))
        for line in text[-max_chars:].split("\n")
        if line.strip()
    ]


def backwards(view: RunView, columns: int, *, expanded: bool = False) -> Iterator[Line]:
    """Yield the lines of a run from the newest on, wrapped at the width.

    Tool calls are wrapped only if `expanded`. Read from the end, so that the cost does not grow with the run.
    """
    for row in reversed(text_rows(view.partial)):
        yield from reversed(_row_lines(view, row, columns, expanded))
    for item in reversed(view.items):
        for row in reversed(item_rows(item)):
            yield from reversed(_row_lines(view, row, columns, expanded))


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


def _row_lines(view: RunView, row: Row, columns: int, expanded: bool) -> list[Line]:
    free = room(view, columns) - row.indent
    if free < MIN_WRAP_COLUMNS or (row.is_condensed and not expanded):
        return [line_of(view, row.text, row.style, indent=row.indent)]
    before = Span(INDENT * level(view) + " " * row.indent)
    return [(before, Span(piece, row.style)) for piece in wrap(row.text, free, len(row.text) + 1)]


def _call_rows(called: Called, max_chars: int) -> list[Row]:
    """Return the call, what came of it and its error; of a finalized run the text it answers with."""
    if called.name == FINALIZE:
        rows = _finalized_rows(called, max_chars)
    else:
        rows = [Row(one_line(call_line(called.name, called.args), MOST_COLUMNS), "muted")]
    if result := result_line(called):
        rows.append(Row(one_line(result, MOST_COLUMNS), "muted", indent=2))
    if error := error_line(called):
        rows.append(Row(one_line(error, MOST_COLUMNS), "error", indent=2))
    return rows


def _finalized_rows(called: Called, max_chars: int) -> list[Row]:
    status, error, result = (called.args.get(name) for name in ("status", "error", "result"))
    rows = [Row(one_line(f"{FINALIZE} → {status}", MOST_COLUMNS), "muted")]
    if error:
        rows += text_rows(_as_text(error), "error", max_chars=max_chars)
    if result:
        rows += text_rows(_as_text(result), max_chars=max_chars)
    return rows


def _as_text(value: object) -> str:
    """Return text as it is, and anything else as indented JSON: models give other things than text, too."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=repr)
    except (TypeError, ValueError, RecursionError):
        return "(a value that cannot be shown)"
