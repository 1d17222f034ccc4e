"""Build the view of a call for a host that knows its own width: lines that it wraps or cuts, and the run of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import UNSET, UnsetType

from retinue.ipc.messages import BodyRange, DrawnLine, RenderedView, StyledRows
from retinue.runtime.progress import CallProgress, ProgressItem, RunState, RunView
from retinue.tui.layout import (
    INDENT,
    MAX_COLUMNS,
    MAX_ERROR_LINES,
    Row,
    indent_level,
    item_rows,
    order_as_tree,
    render_error,
    render_header,
    render_status,
    session_list,
    text_rows,
)
from retinue.tui.renderer import StyledLine, StyledSpan

EXPANDED_LINES = 500
"""Lines of one run in the expanded view."""
EXPANDED_CHARS = 2**16
"""Characters of one run in the expanded view: every partial result repeats them."""

DrawnItems = dict[int, tuple[ProgressItem, StyledRows]]
"""By the id of an item, which is kept so that no other item gets the same id."""
SpellSession = Callable[[str], str | None]
"""Returns the id by which tools find a session; None if no tool takes one."""


class ViewBuilder:
    """The view of one call, built repeatedly while its runs continue; each item of a run is drawn once."""

    def __init__(self, max_lines: int, spell_session: SpellSession, *, verbatim: bool) -> None:
        """`verbatim` selects the header form of the `fanout` toolset."""
        self._max_lines = max_lines
        self._spell_session = spell_session
        self._verbatim = verbatim
        self._drawn: DrawnItems = {}

    def build(self, progress: CallProgress, now: float) -> RenderedView | UnsetType:
        """Return the view; unset for a call without runs."""
        views = order_as_tree(progress.runs.values())
        if not views:
            return UNSET
        lines: list[DrawnLine] = [_draw_line(render_status(progress))]
        expanded, bodies = list(lines), []
        drawn: DrawnItems = {}
        for view in views:
            kept = self._draw_body(view, drawn)
            newest = kept[-self._max_lines :]
            head = _draw_line(render_header(view, now, verbatim=self._verbatim))
            bodies.append(
                BodyRange(start=len(lines) + 1, end=len(lines) + 1 + len(newest), earlier=len(kept) - len(newest))
            )
            lines += [
                head,
                *(newest or _draw_hint(view, "(starting...)")),
                *_draw_errors(view, MAX_ERROR_LINES),
            ]
            expanded += [
                head,
                *(kept or _draw_hint(view, "(no output)")),
                *_draw_errors(view, self._max_lines),
            ]
        self._drawn = drawn
        footer = self._draw_footer(views)
        return RenderedView(
            lines=[*lines, *footer], expanded=[*expanded, *footer], bodies=bodies, max_lines=self._max_lines
        )

    def _draw_body(self, view: RunView, drawn: DrawnItems) -> list[DrawnLine]:
        """Return the newest lines of a run, oldest first; `drawn` takes the items they are from."""
        kept: list[DrawnLine] = []
        chars = 0
        for line in self._iterate_backwards(view, drawn):
            chars += sum(len(text) for text, _ in line)
            if len(kept) >= EXPANDED_LINES or (kept and chars > EXPANDED_CHARS):
                break
            kept.append(line)
        return kept[::-1]

    def _iterate_backwards(self, view: RunView, drawn: DrawnItems) -> Iterator[DrawnLine]:
        yield from reversed(_draw_rows(view, text_rows(view.partial)))
        for item in reversed(view.items):
            found = self._draw_item(view, item)
            drawn[id(item)] = (item, found)
            yield from reversed(found)

    def _draw_item(self, view: RunView, item: ProgressItem) -> StyledRows:
        if known := self._drawn.get(id(item)):
            return known[1]
        return _draw_rows(view, item_rows(item, max_chars=EXPANDED_CHARS))

    def _draw_footer(self, views: list[RunView]) -> list[DrawnLine]:
        """Return the ids of the sessions once nothing runs any more, where the toolset has tools that take them."""
        if any(view.phase in {RunState.QUEUED, RunState.RUNNING} for view in views):
            return []
        spelled = (self._spell_session(view.session) for view in views if view.depth == 1)
        ids = dict.fromkeys(session for session in spelled if session)
        return [_draw_line((StyledSpan(session_list(ids), "muted"),))] if ids else []


def _draw_rows(view: RunView, rows: list[Row]) -> StyledRows:
    before = len(INDENT) * indent_level(view)
    return [[(" " * (before + row.indent), ""), (row.text, row.style)] for row in rows]


def _draw_hint(view: RunView, text: str) -> StyledRows:
    return _draw_rows(view, [Row(text, "muted")]) if view.phase is RunState.RUNNING else []


def _draw_errors(view: RunView, most: int) -> StyledRows:
    return [_draw_line(line) for line in render_error(view, MAX_COLUMNS, most)]


def _draw_line(line: StyledLine) -> DrawnLine:
    return [(span.text, span.style) for span in line if span.text]
