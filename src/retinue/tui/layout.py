"""Lay out the windows of runs: which fit, in which order and columns, and the lines of each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, zip_longest

from msgspec import Struct

from retinue.runtime.progress import CallProgress, RunState, RunView
from retinue.sessions.store import RunOutcome
from retinue.tui.headers import HeaderRenderer, render_sessions, render_status
from retinue.tui.renderer import StyledLine, StyledSpan, fit_line, pad_line
from retinue.tui.rows import INDENT, iter_lines_newest_first, make_line, render_error
from retinue.tui.tree import order_as_tree


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


TWO_COLUMNS_WIDTH = 160
"""Columns of a screen from which on windows are shown side by side."""
COLUMN_GAP = " │ "


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


def render_frame(
    progress: CallProgress, screen: ScreenSize, now: float, *, shown: Sequence[RunView] | None = None
) -> tuple[StyledLine, ...]:
    """Return the frame at a wall-clock time: status line, windows, and a footer once all runs have ended.

    `shown` are the runs that have windows, all by default.
    """
    views = order_as_tree(progress.runs.values() if shown is None else shown)
    head = [render_status(progress, now)] if screen.height > 1 else []
    tail = _render_footer(views, screen, screen.height - len(head))
    rows = screen.height - len(head) - len(tail)
    visible, hidden = _select_for_columns(views, rows, screen)
    foot = [(StyledSpan(f"… and {hidden} more", "muted"),)] if hidden and rows > 1 else []
    headers = HeaderRenderer(progress.runs.values(), now)
    windows = _render_columns(visible, headers, screen, rows - len(foot))
    return tuple(fit_line(line, screen.width) for line in (*head, *windows, *foot, *tail))


def render_closing(
    progress: CallProgress, screen: ScreenSize, now: float, *, results_printed: bool = True
) -> tuple[StyledLine, ...]:
    """Return the summary that stays on the screen: a header per run and the session ids.

    If the caller does not print the results of top-level runs, their failures are shown here, too. Of a cancelled run
    its header says enough.
    """
    views = order_as_tree(progress.runs.values())
    headers = HeaderRenderer(views, now)
    lines = [render_status(progress, now)]
    for view in views:
        is_explained = (results_printed and view.depth == 1) or view.outcome is RunOutcome.CANCELLED
        lines += [headers.render(view, screen.width), *render_error(view, screen.width, 0 if is_explained else 1)]
    lines += render_sessions(views, screen.width)
    return tuple(fit_line(line, screen.width) for line in lines)


# -- columns ---------------------------------------------------------------------------------------


def _select_for_columns(views: Sequence[RunView], rows: int, screen: ScreenSize) -> tuple[list[RunView], int]:
    """Return the runs that have a row in any column, and how many have none."""
    columns = 2 if screen.width >= TWO_COLUMNS_WIDTH else 1
    if len(views) <= columns * rows:
        return list(views), 0
    return select_visible(views, columns * max(rows - 1, 0) + 1, screen.selected)


def _render_columns(views: list[RunView], headers: HeaderRenderer, screen: ScreenSize, rows: int) -> list[StyledLine]:
    """Return the windows, in two columns where the screen is wide enough and there is more than one tree."""
    split = _find_split(views, rows) if screen.width >= TWO_COLUMNS_WIDTH else 0
    if not split:
        return _render_windows(views, headers, screen, screen.width, rows)
    width = (screen.width - len(COLUMN_GAP)) // 2
    left = _render_windows(views[:split], headers, screen, width, rows)
    right = _render_windows(views[split:], headers, screen, width, rows)
    gap = StyledSpan(COLUMN_GAP, "muted")
    return [
        (*pad_line(one, width), gap, *fit_line(other, width)) for one, other in zip_longest(left, right, fillvalue=())
    ]


def _find_split(views: list[RunView], rows: int) -> int:
    """Return how many runs are in the first of two columns: about half, without parting a tree; 0 for one column."""
    middle = -(-len(views) // 2)
    tops = [place for place, view in enumerate(views) if place and view.depth == 1]
    best = min(tops, key=lambda place: abs(place - middle), default=0)
    if max(best, len(views) - best) <= rows:
        return best
    return middle


def _render_windows(
    views: Sequence[RunView], headers: HeaderRenderer, screen: ScreenSize, width: int, rows: int
) -> list[StyledLine]:
    """Return the windows of the runs in one column of so many rows, each of at least its header."""
    margin = INDENT if screen.selected is not None else ""
    columns, room = width - len(margin), rows - len(views)
    bodies = [_render_body(view, screen, columns, room) for view in views]
    errors = [render_error(view, columns) for view in views]
    allocated = allocate_lines(views, [len(body) for body in bodies], [len(error) for error in errors], room)
    lines: list[StyledLine] = []
    for view, body, error, (of_body, of_error) in zip(views, bodies, errors, allocated, strict=True):
        mark = StyledSpan("› " if view.run == screen.selected else margin, "name")
        below = [*body[len(body) - of_body :], *error[:of_error]]
        lines += [(mark, *headers.render(view, columns)), *((StyledSpan(margin), *line) for line in below)]
    return lines


def _render_body(view: RunView, screen: ScreenSize, columns: int, room: int) -> list[StyledLine]:
    """Return the newest lines, oldest first."""
    max_lines = max(room if screen.expanded else min(screen.max_lines, room), 0)
    newest = list(islice(iter_lines_newest_first(view, columns, expanded=screen.expanded), max_lines))
    if not newest and view.phase is RunState.RUNNING:
        newest = [make_line(view, "(no output)" if screen.expanded else "(starting...)", "muted")][:max_lines]
    return newest[::-1]


def _render_footer(views: list[RunView], screen: ScreenSize, rows: int) -> list[StyledLine]:
    """Return the session ids once all runs have ended; none if they would take over half the screen."""
    if not views or any(view.is_active for view in views):
        return []
    lines = render_sessions(views, screen.width)
    return lines if len(lines) <= rows // 2 else []
