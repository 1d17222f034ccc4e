"""Lay out the windows of runs: which fit, in which order, and the lines of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from msgspec import Struct, structs

from retinue.model.tool_names import FINALIZE_TOOL
from retinue.output.untrusted_text import to_one_line
from retinue.runtime.progress import (
    CallProgress,
    NoticeItem,
    ProgressItem,
    RunState,
    RunView,
    SteeringItem,
    TextItem,
    ToolCallItem,
)
from retinue.support.formatting import SHORT_ID_LENGTH, pluralize
from retinue.tui.event_lines import format_call, format_error, format_result
from retinue.tui.renderer import StyledLine, StyledSpan, fit_line
from retinue.tui.widths import wrap_text

T = TypeVar("T")

MAX_GUIDE_WIDTH = 24
"""Columns of the guide before an item; deeper items show their level instead."""


class TreeNode(Struct, Generic[T], frozen=True):
    """An item and its place in a tree."""

    item: T
    level: int
    """1 at the top."""
    guide: str = ""
    """Lines that connect the item with its parent: `│ └ `."""


def build_tree(items: Iterable[T], name: Callable[[T], str], parent: Callable[[T], str | None]) -> list[TreeNode[T]]:
    """Return each item right after its parent, else in the given order; items with unknown parents are at the top."""
    items_by_name = {name(item): item for item in items}
    children: dict[str | None, list[str]] = {}
    for own, item in items_by_name.items():
        above = parent(item)
        children.setdefault(above if above in items_by_name else None, []).append(own)
    nodes: dict[str, TreeNode[T]] = {}
    stack = [(own, 1, "", "") for own in reversed(children.get(None, []))]
    while stack:
        own, level, guide, inner = stack.pop()
        nodes[own] = TreeNode(items_by_name[own], level, _limit_guide(guide, level))
        *others, last = children.get(own) or [""]
        if last:
            stack.append((last, level + 1, inner + "└ ", inner + "  "))
        stack += [(child, level + 1, inner + "├ ", inner + "│ ") for child in reversed(others)]
    # An item that is its own ancestor is in no tree: events of other processes may contain anything.
    cyclic = [TreeNode(item, 1) for own, item in items_by_name.items() if own not in nodes]
    return [*nodes.values(), *cyclic]


def _limit_guide(guide: str, level: int) -> str:
    if len(guide) <= MAX_GUIDE_WIDTH:
        return guide
    depth = f"…{level} "
    return depth + guide[len(depth) - MAX_GUIDE_WIDTH :]


def order_as_tree(views: Iterable[RunView]) -> list[RunView]:
    """Return child runs right after their parents, with their depth counted from the topmost run shown."""
    nodes = build_tree(views, lambda view: view.run, lambda view: view.parent_run)
    return [
        node.item if node.item.depth == node.level else structs.replace(node.item, depth=node.level) for node in nodes
    ]


def select_visible(views: Sequence[RunView], rows: int, selected: str | None = None) -> tuple[list[RunView], int]:
    """Return the runs that have a row, and how many have none: running and failed runs are preferred.

    With a selected run, that run and its neighbors are visible: moving the selection scrolls.
    """
    if len(views) <= rows:
        return list(views), 0
    order = [RunState.RUNNING, RunState.ERROR, RunState.QUEUED, RunState.DONE]
    places = {view.run: place for place, view in enumerate(views)}
    if selected in places:
        first = min(max(places[selected] - (rows - 1) // 2, 0), max(len(views) - (rows - 1), 0))
        visible = {view.run for view in views[first : first + max(rows - 1, 1)]}
    else:
        visible = {view.run for view in sorted(views, key=lambda view: order.index(view.phase))[: max(rows - 1, 0)]}
    return [view for view in views if view.run in visible], len(views) - len(visible)


def allocate_lines(
    views: Sequence[RunView], bodies: list[int], errors: list[int], room: int
) -> list[tuple[int, int]]:
    """Return for each run how many lines of its body and of its error are shown.

    Errors are served first, then running runs, then the others.
    """
    is_live = [view.phase is RunState.RUNNING for view in views]
    error_lines = _share_evenly(errors, room)
    room -= sum(error_lines)
    running = _share_evenly([lines * live for lines, live in zip(bodies, is_live, strict=True)], room)
    room -= sum(running)
    ended = _share_evenly([lines * (not live) for lines, live in zip(bodies, is_live, strict=True)], room)
    return [(a + b, error) for a, b, error in zip(running, ended, error_lines, strict=True)]


def _share_evenly(wanted: list[int], room: int) -> list[int]:
    """Return as many lines as each wants or, where room is short, an equal share for all that want more."""
    allocated = [0] * len(wanted)
    while room > 0 and (unserved := [i for i, want in enumerate(wanted) if allocated[i] < want]):
        share = max(room // len(unserved), 1)
        for i in unserved[:room]:
            more = min(share, wanted[i] - allocated[i])
            allocated[i] += more
            room -= more
    return allocated


INDENT = "  "
"""Indent of a line below its header, and of a child run below its parent."""
MAX_LEVELS = 10
"""Levels of child runs that are indented; deeper runs show their depth."""
CHILD_MARK = "↳ "
"""Mark before a child run, within its indent."""
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
    free = available_columns(view, columns) - row.indent
    if free < MIN_WRAP_COLUMNS or (row.is_condensed and not expanded):
        return [make_line(view, row.text, row.style, indent=row.indent)]
    before = StyledSpan(INDENT * indent_level(view) + " " * row.indent)
    return [(before, StyledSpan(piece, row.style)) for piece in wrap_text(row.text, free, len(row.text) + 1)]


def _call_rows(called: ToolCallItem, max_chars: int) -> list[Row]:
    """Return the call with its result and error; of the finalize tool the answer of the run."""
    if called.name == FINALIZE_TOOL:
        rows = _finalized_rows(called, max_chars)
    else:
        rows = [Row(to_one_line(format_call(called.name, called.args), MAX_COLUMNS), "muted")]
    if result := format_result(called):
        rows.append(Row(to_one_line(result, MAX_COLUMNS), "muted", indent=2))
    if error := format_error(called):
        rows.append(Row(to_one_line(error, MAX_COLUMNS), "error", indent=2))
    return rows


def _finalized_rows(called: ToolCallItem, max_chars: int) -> list[Row]:
    status, error, result = (called.args.get(name) for name in ("status", "error", "result"))
    rows = [Row(to_one_line(f"{FINALIZE_TOOL} → {status}", MAX_COLUMNS), "muted")]
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
        return "(a value that cannot be shown)"


SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_RATE = 10.0
"""Spinner frames per second."""
SHOWN_ID_LENGTH = 16
"""Digits of a session id, as the system of the `fanout` toolset shows it."""
DEFAULT_AGENT = "default"
"""The agent of a task that names none; not shown."""

_ICONS = {RunState.QUEUED: "○", RunState.DONE: "✓", RunState.ERROR: "✗"}
_STYLES = {RunState.QUEUED: "muted", RunState.RUNNING: "running", RunState.DONE: "good", RunState.ERROR: "error"}


class ScreenSize(Struct, frozen=True):
    """The limits of a frame."""

    width: int = 80
    height: int = 24
    max_lines: int = 15
    """Lines of one window, without header and error."""
    expanded: bool = False
    """Whether windows use all the room there is, not only `max_lines`."""
    selected: str | None = None
    """Id of the selected run, which is marked and always visible."""


def render_frame(progress: CallProgress, screen: ScreenSize, now: float) -> tuple[StyledLine, ...]:
    """Return the frame at a wall-clock time: status line, windows, and a footer once all runs have ended."""
    views = order_as_tree(progress.runs.values())
    head = [render_status(progress)] if screen.height > 1 else []
    tail = _render_footer(views, screen, screen.height - len(head))
    rows = screen.height - len(head) - len(tail)
    shown, hidden = select_visible(views, rows, screen.selected)
    foot = [(StyledSpan(f"… and {hidden} more", "muted"),)] if hidden and rows > len(shown) else []
    room = rows - len(shown) - len(foot)
    margin = INDENT if screen.selected is not None else ""
    columns = screen.width - len(margin)
    bodies = [_render_body(view, screen, columns, room) for view in shown]
    errors = [render_error(view, columns) for view in shown]
    allocated = allocate_lines(shown, [len(body) for body in bodies], [len(error) for error in errors], room)
    windows: list[StyledLine] = []
    for view, body, error, (of_body, of_error) in zip(shown, bodies, errors, allocated, strict=True):
        below = [*body[len(body) - of_body :], *error[:of_error]]
        windows += [_selectable_header(view, screen, now), *((StyledSpan(margin), *line) for line in below)]
    return tuple(fit_line(line, screen.width) for line in (*head, *windows, *foot, *tail))


def render_closing(
    progress: CallProgress, screen: ScreenSize, now: float, *, results_printed: bool = True
) -> tuple[StyledLine, ...]:
    """Return the summary that stays on the screen: a header per run and the session ids.

    If the caller does not print the results of top-level runs, their failures are shown here, too.
    """
    views = order_as_tree(progress.runs.values())
    lines = [render_status(progress)]
    for view in views:
        max_lines = 0 if results_printed and view.depth == 1 else 1
        lines += [render_header(view, now), *render_error(view, screen.width, max_lines)]
    lines += render_sessions(views, screen.width)
    return tuple(fit_line(line, screen.width) for line in lines)


def render_status(progress: CallProgress) -> StyledLine:
    """Return `Sub-agents: 2 running, 1 done, 1 error`; queued runs are counted while there are any."""
    names = {RunState.RUNNING: "running", RunState.QUEUED: "queued", RunState.DONE: "done", RunState.ERROR: "error"}
    counts = [f"{count} {name}" for phase, name in names.items() if (count := progress.count(phase))]
    return (StyledSpan(f"Sub-agents: {', '.join(counts)}", "name"),)


def render_header(view: RunView, now: float, *, with_id: bool = False, verbatim: bool = False) -> StyledLine:
    """Return the run in one line: name, agent, model, tool count, time; `with_id` adds the short session id.

    `verbatim` is the form of the `fanout` toolset's own system: `{name} • {profile} … • {n} tools`, also where the
    task is called like its profile and where it has used one tool.
    """
    own = f" • {view.session[:SHORT_ID_LENGTH]}" if with_id else ""
    # A task without a name of its own has the name of its agent, which is not repeated.
    unnamed = {DEFAULT_AGENT, ""} if verbatim else {DEFAULT_AGENT, "", view.name}
    agent = f" • {view.agent}" if view.agent not in unnamed else ""
    facts = to_one_line(
        f"{own}{agent}{_describe_model(view)}{_describe_progress(view, verbatim)}{_format_time(view, now)}",
        MAX_COLUMNS,
    )
    return (
        StyledSpan(header_prefix(view), "muted"),
        StyledSpan(f"{_state_icon(view, now)} ", _STYLES[view.phase]),
        StyledSpan(to_one_line(view.name, MAX_COLUMNS), "name"),
        StyledSpan(f" {facts}" if facts else "", "muted"),
    )


def render_sessions(views: Iterable[RunView], columns: int) -> list[StyledLine]:
    """Return the session ids of top-level runs, wrapped and never cut: part of an id finds nothing."""
    ids = dict.fromkeys(view.session[:SHOWN_ID_LENGTH] for view in views if view.depth == 1)
    return [(StyledSpan(line, "muted"),) for line in wrap_text(session_list(ids), columns, lines=len(ids) + 1)]


def session_list(ids: Collection[str]) -> str:
    """Return `Session: {id}` or `Sessions: {id}, {id}`."""
    return f"{'Session' if len(ids) == 1 else 'Sessions'}: {', '.join(ids)}"


def elapsed_seconds(view: RunView, now: float) -> float:
    """Return the seconds since the start of the run, up to its end; 0 before it started."""
    if view.elapsed is not None:
        return view.elapsed
    return max(now - view.started, 0.0) if view.started is not None else 0.0


# -- the parts of a header -------------------------------------------------------------------------


def _state_icon(view: RunView, now: float) -> str:
    return _ICONS.get(view.phase) or SPINNER[int(now * SPINNER_RATE) % len(SPINNER)]


def _describe_model(view: RunView) -> str:
    """Return the model with provider and thinking level, or else the engine; for a child run both."""
    model = view.model or ""
    # An engine may report the model together with its provider.
    if view.provider and not model.startswith(f"{view.provider}/"):
        model = f"{view.provider}/{model}" if model else view.provider
    engine = view.engine if not model or (view.depth > 1 and view.engine != model) else ""
    answering = " ".join(filter(None, (engine, model, view.thinking)))
    return f" ({answering})" if answering else ""


def _describe_progress(view: RunView, verbatim: bool) -> str:
    """Return the number of tool calls, and of todos while some are open."""
    if view.started is None:
        return ""
    todos = f" • [{view.todos.completed_count}/{view.todos.total}]" if view.todos.has_open_items else ""
    tools = f"{view.tools} tools" if verbatim else pluralize(view.tools, "tool")
    return f" • {tools}{todos}"


def _format_time(view: RunView, now: float) -> str:
    if view.phase is RunState.QUEUED:
        return " • queued"
    limit = f"/{view.timeout:.0f}s" if view.timeout else ""
    # Whole seconds. A run that failed before it started has no time.
    return f" • {int(elapsed_seconds(view, now))}s{limit}" if view.started is not None else ""


def _selectable_header(view: RunView, screen: ScreenSize, now: float) -> StyledLine:
    """Return the header; where a run can be selected, with its id and a mark."""
    if screen.selected is None:
        return render_header(view, now)
    return (
        StyledSpan("› " if view.run == screen.selected else INDENT, "name"),
        *render_header(view, now, with_id=True),
    )


# -- the parts of a frame --------------------------------------------------------------------------


def _render_body(view: RunView, screen: ScreenSize, columns: int, room: int) -> list[StyledLine]:
    """Return the newest lines, oldest first."""
    max_lines = room if screen.expanded else min(screen.max_lines, room)
    newest = list(islice(iter_lines_newest_first(view, columns, expanded=screen.expanded), max_lines))
    if not newest and view.phase is RunState.RUNNING:
        newest = [make_line(view, "(no output)" if screen.expanded else "(starting...)", "muted")][:max_lines]
    return newest[::-1]


def _render_footer(views: list[RunView], screen: ScreenSize, rows: int) -> list[StyledLine]:
    """Return the session ids once all runs have ended; none if they would take over half the screen."""
    if not views or any(view.phase in {RunState.QUEUED, RunState.RUNNING} for view in views):
        return []
    lines = render_sessions(views, screen.width)
    return lines if len(lines) <= rows // 2 else []
