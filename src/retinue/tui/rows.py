"""The lines below the header of a run: texts, tool calls with their results, and its failure."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct

from retinue.model.tool_names import FINALIZE_TOOL
from retinue.output.untrusted_text import to_one_line
from retinue.runtime.progress import NoticeItem, ProgressItem, RunView, SteeringItem, TextItem, ToolCallItem
from retinue.tui.event_lines import format_call, format_error, format_result
from retinue.tui.renderer import StyledLine, StyledSpan
from retinue.tui.widths import wrap_text

INDENT = "  "
"""Indent of a line below its header, and of a child run below its parent."""
MAX_LEVELS = 10
"""Levels of child runs that are indented; deeper runs show their depth."""
CHILD_MARK = "↳ "
"""Mark before a child run, within its indent."""
FAILURE_SIGN = "✗"
MAX_ERROR_LINES = 3
MAX_TEXT_CHARS = 8_000
"""Characters of one text, from its end: more than any window shows."""
MAX_TEXT_INDENT = 8
MAX_COLUMNS = 1_000
"""Columns of any other line: no screen is wider."""
MIN_WRAP_COLUMNS = 10
"""With fewer columns, lines are cut instead of wrapped."""


class Row(Struct, frozen=True):
    """One line of a run's text or tool calls, before it is fitted to a screen."""

    text: str
    style: str = ""
    indent: int = 0
    """Columns added to the indent of the run."""
    tool_length: int = 0
    """Characters at its start that name a tool."""

    @property
    def is_condensed(self) -> bool:
        """True if a collapsed window cuts the row to one line instead of wrapping it."""
        return self.style == "muted"


def item_rows(item: ProgressItem, *, max_chars: int = MAX_TEXT_CHARS) -> list[Row]:
    """Return the rows of an item, oldest first; of one text its last `max_chars` characters."""
    match item:
        case TextItem(text=text):
            return text_rows(text, max_chars=max_chars)
        case NoticeItem(message=message):
            return [Row(f"! {to_one_line(message, MAX_COLUMNS)}", "warning")]
        case SteeringItem(text=text):
            return [Row(f"» {to_one_line(text, MAX_COLUMNS)}", "name")]
        case ToolCallItem():
            return _call_rows(item, max_chars)


def text_rows(text: str, style: str = "", *, max_chars: int = MAX_TEXT_CHARS) -> list[Row]:
    """Return the lines of a text that are not blank, sanitized, with their indent."""
    return [
        Row(to_one_line(line, max_chars), style, indent=min(len(line) - len(line.lstrip(" ")), MAX_TEXT_INDENT))
        for line in text[-max_chars:].split("\n")
        if line.strip()
    ]


def iter_lines_newest_first(view: RunView, columns: int, *, expanded: bool = False) -> Iterator[StyledLine]:
    """Yield the lines of a run from the newest on, wrapped at the width.

    Tool calls are wrapped only if `expanded`. Read from the end, so that the cost does not grow with the run.
    """
    for row in reversed(text_rows(view.partial)):
        yield from reversed(_row_lines(view, row, columns, expanded))
    for item in reversed(view.items):
        for row in reversed(item_rows(item)):
            yield from reversed(_row_lines(view, row, columns, expanded))


def render_error(view: RunView, columns: int, max_lines: int = MAX_ERROR_LINES) -> list[StyledLine]:
    """Return the lines of the failure, shown below the lines of the run; none if the run did not fail."""
    failure: list[str] = []
    for sentence in view.failure.message.split("\n") if view.failure else ():
        if len(failure) < max_lines:
            failure += wrap_text(
                to_one_line(sentence, MAX_COLUMNS), available_columns(view, columns), max_lines - len(failure)
            )
    return [make_line(view, text, "error") for text in failure]


def make_line(view: RunView, text: str, style: str = "", *, indent: int = 0) -> StyledLine:
    """Return a line in the window of a run, sanitized."""
    return (StyledSpan(INDENT * indent_level(view) + " " * indent), StyledSpan(to_one_line(text, MAX_COLUMNS), style))


def available_columns(view: RunView, columns: int) -> int:
    """Return the columns beside the indent of a run."""
    return columns - len(INDENT) * indent_level(view)


def indent_level(view: RunView) -> int:
    """Return the level by which a run is indented; 1 means none."""
    return min(view.depth, MAX_LEVELS)


def header_prefix(view: RunView) -> str:
    """Return the indent and the mark before the header of a child run; empty for a top-level run."""
    if view.depth <= 1:
        return ""
    columns = len(INDENT) * (indent_level(view) - 2)
    return (f"…{view.depth}" if view.depth > MAX_LEVELS else "").ljust(columns) + CHILD_MARK


def _row_lines(view: RunView, row: Row, columns: int, expanded: bool) -> list[StyledLine]:
    """Return the row wrapped at the width, or to be cut; failures have a sign, as colors may be missing."""
    free = available_columns(view, columns) - row.indent
    text = f"{FAILURE_SIGN} {row.text}" if row.style == "error" else row.text
    is_cut = free < MIN_WRAP_COLUMNS or (row.is_condensed and not expanded)
    pieces = [text] if is_cut else wrap_text(text, free, len(text) + 1)
    before = StyledSpan(INDENT * indent_level(view) + " " * row.indent)
    lines: list[StyledLine] = []
    for number, piece in enumerate(pieces):
        tool = piece[: row.tool_length] if number == 0 else ""
        lines.append((before, StyledSpan(tool, "tool"), StyledSpan(piece[len(tool) :], row.style)))
    return lines


def _call_rows(called: ToolCallItem, max_chars: int) -> list[Row]:
    """Return the call with its result and error; of the finalize tool the answer of the run."""
    if called.name == FINALIZE_TOOL:
        rows = _finalized_rows(called, max_chars)
    else:
        rows = [_named_row(called.name, format_call(called.name, called.args))]
    if result := format_result(called):
        rows.append(Row(to_one_line(result, MAX_COLUMNS), "muted", indent=2))
    if error := format_error(called):
        rows.append(Row(to_one_line(error, MAX_COLUMNS), "error", indent=2))
    return rows


def _named_row(tool: str, text: str) -> Row:
    line, name = to_one_line(text, MAX_COLUMNS), to_one_line(tool, MAX_COLUMNS)
    return Row(line, "muted", tool_length=len(name) if line.startswith(name) else 0)


def _finalized_rows(called: ToolCallItem, max_chars: int) -> list[Row]:
    status, error, result = (called.args.get(name) for name in ("status", "error", "result"))
    rows = [_named_row(FINALIZE_TOOL, f"{FINALIZE_TOOL} → {status}")]
    if error:
        rows += text_rows(_as_text(error), "error", max_chars=max_chars)
    if result is not None and result != "":
        rows += text_rows(_as_text(result), max_chars=max_chars)
    return rows


def _as_text(value: object) -> str:
    """Return text unchanged and any other value as indented JSON: models also pass other types."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=repr)
    except (TypeError, ValueError, RecursionError):
        return "(value cannot be shown)"
