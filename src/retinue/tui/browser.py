"""Browse runs on a full screen: a list with one run selected, one run alone, or a pager with its log or transcript.

State, keys and frames are pure functions of values; `WatchView` puts them on a terminal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TextIO

from msgspec import Struct, structs

from retinue.model.event_codec import EventRecord
from retinue.output.untrusted_text import strip_control_characters, to_one_line
from retinue.runtime.progress import CallProgress, RunState, RunView
from retinue.support.formatting import SHORT_ID_LENGTH
from retinue.tui.headers import HeaderRenderer, render_sessions, render_status
from retinue.tui.keys import KeyName
from retinue.tui.layout import ScreenSize, render_closing, render_frame
from retinue.tui.renderer import (
    FullScreenRenderer,
    StyledLine,
    StyledSpan,
    fit_line,
    render_ansi,
    select_styles,
    terminal_size,
)
from retinue.tui.rows import iter_lines_newest_first, make_line, render_error
from retinue.tui.tree import order_as_tree
from retinue.tui.widths import wrap_text

MAX_PAGER_LINES = 5_000
"""Lines of a run in the pager; its transcript has all of them."""
MAX_WRAPPED_LINES = 400
"""Rows of one wrapped line of a transcript."""
MAX_NAME_WIDTH = 40
"""Columns of a name within a sentence."""
NOTHING_RUNNING = "Nothing is running. What begins now is shown; q leaves."


class TextPager(Struct, frozen=True):
    """Lines that do not change while they are scrolled."""

    title: str
    lines: tuple[StyledLine, ...]
    top: int = 0
    """Index of the first visible line."""


class BrowserState(Struct, frozen=True):
    """The state of the browser: selection, pager and pending confirmation."""

    selected: str | None = None
    """Id of a run."""
    single: bool = False
    """Whether only the selected run is shown, live."""
    pager: TextPager | None = None
    """Shown instead of runs."""
    confirming: str | None = None
    """Id of the run that is cancelled if the next key is y."""


class BrowserCommand(Struct, frozen=True):
    """A request of the user that the browser cannot fulfil itself."""

    action: str
    """`cancel`, `read` or `quit`."""
    run: str = ""


def apply_key(
    state: BrowserState, key: str, progress: CallProgress, screen: ScreenSize
) -> tuple[BrowserState, BrowserCommand | None]:
    """Return the state after a key, and the command that the key requests, if any."""
    state = select_default(state, progress)
    if state.confirming:
        command = BrowserCommand("cancel", state.confirming) if key in {"y", "Y"} else None
        return structs.replace(state, confirming=None), command
    if state.pager:
        return _scroll_pager(state, state.pager, key, screen), None
    match key:
        case "q":
            return state, BrowserCommand("quit")
        case "c" if state.selected and progress.runs[state.selected].phase in {RunState.QUEUED, RunState.RUNNING}:
            return structs.replace(state, confirming=state.selected), None
        case "t" if state.selected:
            return state, BrowserCommand("read", state.selected)
        case KeyName.ENTER | KeyName.EXPAND if state.selected:
            return structs.replace(state, single=not state.single), None
        case KeyName.ESCAPE:
            return structs.replace(state, single=False), None
        case KeyName.UP | KeyName.PAGE_UP | KeyName.HOME if state.single and state.selected:
            with_log = structs.replace(state, pager=_open_full_log(progress.runs[state.selected], screen))
            return apply_key(with_log, key, progress, screen)
        case _:
            return _move_selection(state, key, progress, screen), None


def select_default(state: BrowserState, progress: CallProgress) -> BrowserState:
    """Return the state with a run selected if there is any: the first that is running."""
    if state.selected in progress.runs or not progress.runs:
        return state
    views = order_as_tree(progress.runs.values())
    first = next((view for view in views if view.phase is RunState.RUNNING), views[0])
    return structs.replace(state, selected=first.run)


def render_browser(
    state: BrowserState, progress: CallProgress, screen: ScreenSize, now: float
) -> tuple[StyledLine, ...]:
    """Return the frame, as tall as the screen; its last row shows the keys."""
    state, rows = select_default(state, progress), max(screen.height - 1, 1)
    if state.pager:
        lines = _render_page(state.pager, rows)
    elif state.single and state.selected:
        lines = _render_single(progress, progress.runs[state.selected], screen, rows, now)
    elif progress.runs:
        lines = list(render_frame(progress, structs.replace(screen, height=rows, selected=state.selected), now))
    else:
        lines = [(StyledSpan(NOTHING_RUNNING, "muted"),)]
    lines = [*lines[:rows], *([()] * (rows - len(lines)))]
    frame = [*lines, _render_key_help(state, progress)][: screen.height]
    return tuple(fit_line(line, screen.width) for line in frame)


def open_transcript(view: RunView, lines_of_text: list[str], columns: int) -> TextPager:
    """Return a pager with the transcript of a run, scrolled to its end."""
    lines = [
        (StyledSpan(piece),)
        for text in lines_of_text
        for row in text.split("\n")
        for piece in wrap_text(row, columns, MAX_WRAPPED_LINES) or [""]
    ]
    return _open_at_end("Transcript", view, lines)


def _open_at_end(title: str, view: RunView, lines: Sequence[StyledLine]) -> TextPager:
    name = to_one_line(view.name, MAX_NAME_WIDTH)
    return TextPager(f"{title} of {name} ({view.session[:SHORT_ID_LENGTH]})", tuple(lines), len(lines))


# -- keys ------------------------------------------------------------------------------------------


def _move_selection(state: BrowserState, key: str, progress: CallProgress, screen: ScreenSize) -> BrowserState:
    if state.selected is None:
        return state
    order = [view.run for view in order_as_tree(progress.runs.values())]
    index = order.index(state.selected)
    if key in {KeyName.TAB, KeyName.BACK_TAB}:  # Tab wraps around at the ends, arrows do not
        index = (index + (1 if key == KeyName.TAB else -1)) % len(order)
    else:
        index += _count_steps(key, screen.height - 3, len(order))
    return structs.replace(state, selected=order[min(max(index, 0), len(order) - 1)])


def _count_steps(key: str, page: int, total: int) -> int:
    """Return how many lines a key moves down, negative for up; 0 for other keys."""
    steps = {
        KeyName.UP: -1,
        "k": -1,
        KeyName.DOWN: 1,
        "j": 1,
        KeyName.PAGE_UP: -page,
        KeyName.PAGE_DOWN: page,
        KeyName.HOME: -total,
        KeyName.END: total,
    }
    return steps.get(key, 0)


def _scroll_pager(state: BrowserState, pager: TextPager, key: str, screen: ScreenSize) -> BrowserState:
    """Return the state with the pager scrolled or closed; at the end of a single run, that is live again."""
    rows = max(screen.height - 2, 1)
    last = max(len(pager.lines) - rows, 0)
    steps = _count_steps(KeyName.PAGE_DOWN if key == " " else key, rows, len(pager.lines))
    top = min(max(min(pager.top, last) + steps, 0), last)
    if key in {"q", KeyName.ESCAPE, KeyName.ENTER, "t"} or (state.single and top == last and steps > 0):
        return structs.replace(state, pager=None)
    return structs.replace(state, pager=structs.replace(pager, top=top))


# -- frames ----------------------------------------------------------------------------------------


def _render_single(
    progress: CallProgress, view: RunView, screen: ScreenSize, rows: int, now: float
) -> list[StyledLine]:
    """Return one run on the whole screen: its newest lines, its error below, its session once it has ended."""
    view = structs.replace(view, depth=1)
    errors = render_error(view, screen.width)
    foot = render_sessions([view], screen.width) if view.elapsed is not None else []
    room = max(rows - 2 - len(errors) - len(foot), 0)
    body = list(islice(iter_lines_newest_first(view, screen.width, expanded=True), room))[::-1]
    if not body:
        body = [make_line(view, "(no output)", "muted")]
    header = HeaderRenderer(progress.runs.values(), now).render(view, screen.width)
    return [render_status(progress, now), header, *body, *errors, *foot]


def _open_full_log(view: RunView, screen: ScreenSize) -> TextPager:
    """Return a pager with all lines of a run that are in memory, wrapped."""
    view = structs.replace(view, depth=1)
    newest = islice(iter_lines_newest_first(view, screen.width, expanded=True), MAX_PAGER_LINES)
    return _open_at_end("All", view, [*reversed(list(newest)), *render_error(view, screen.width)])


def _render_page(pager: TextPager, rows: int) -> list[StyledLine]:
    room = max(rows - 1, 1)
    top = min(pager.top, max(len(pager.lines) - room, 0))
    place = f" • {min(top + room, len(pager.lines))}/{len(pager.lines)}"
    return [(StyledSpan(pager.title, "name"), StyledSpan(place, "muted")), *pager.lines[top : top + room]]


def _render_key_help(state: BrowserState, progress: CallProgress) -> StyledLine:
    if state.confirming and (view := progress.runs.get(state.confirming)):
        name = to_one_line(view.name, MAX_NAME_WIDTH)
        return (StyledSpan(f"Cancel {name} ({view.run[:SHORT_ID_LENGTH]})? y, or any other key", "warning"),)
    if state.pager:
        hints = "↑↓ PgUp PgDn Home End scroll • Esc back"
    elif state.single:
        hints = "↑ PgUp scroll • Tab next • Enter all runs • c cancel • t transcript • q quit"
    else:
        hints = "↑↓ Tab choose • Enter expand • c cancel • t transcript • q quit"
    return (StyledSpan(hints, "muted"),)


MESSAGE_SECONDS = 8.0
"""Seconds for which a message of the program is shown."""
MAX_MESSAGE_CHARS = 300
EMPTY_SCREEN_DELAY = 0.5
"""Seconds before an empty list is shown: finding the runs takes a moment."""


class WatchView:
    """The browser on the alternate screen; a closing summary is printed on the normal one."""

    wants_deltas = True

    def __init__(self, stream: TextIO, max_lines: int, send_command: Callable[[BrowserCommand], None]) -> None:
        """Take the function that executes commands of the user."""
        self._stream = stream
        self._max_lines = max_lines
        self._send_command = send_command
        self._progress = CallProgress()
        self._state = BrowserState()
        self._styles = select_styles(os.environ)
        self._screen = FullScreenRenderer(stream, self._styles)
        self._message = ("", 0.0)
        self._started = time.monotonic()

    def add_event(self, record: EventRecord) -> None:
        self._progress = self._progress.apply(record)

    def show_message(self, text: str) -> None:
        self._message = (to_one_line(text, MAX_MESSAGE_CHARS), time.monotonic() + MESSAGE_SECONDS)

    def press(self, key: str) -> None:
        self._state, command = apply_key(self._state, key, self._progress, self._size()[1])
        if command:
            self._send_command(command)

    def open_transcript(self, run: str, lines: list[str]) -> None:
        if view := self._progress.runs.get(run):
            columns = self._size()[1].width
            pager = open_transcript(view, [strip_control_characters(text) for text in lines], columns)
            self._state = BrowserState(selected=run, single=self._state.single, pager=pager)

    def draw(self) -> None:
        if not self._progress.runs and time.monotonic() < self._started + EMPTY_SCREEN_DELAY:
            return
        size, screen = self._size()
        lines = list(render_browser(self._state, self._progress, screen, time.time()))
        text, until = self._message
        if text and time.monotonic() < until and not self._state.confirming:
            lines[-1] = fit_line((StyledSpan(text, "warning"),), screen.width)
        self._screen.show(lines, size)

    def close(self) -> None:
        self._screen.end()
        if self._progress.runs:
            _, screen = self._size()
            lines = render_closing(self._progress, screen, time.time(), results_printed=False)
            self._stream.write("".join(f"{render_ansi(line, self._styles)}\n" for line in lines))
            self._stream.flush()

    def restore(self) -> None:
        self._screen.restore()

    def _size(self) -> tuple[tuple[int, int], ScreenSize]:
        columns, rows = terminal_size(self._stream, os.environ)
        return (columns, rows), ScreenSize(width=columns, height=rows, max_lines=self._max_lines)
