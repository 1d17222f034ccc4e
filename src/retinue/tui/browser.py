"""What someone looks at among runs, and what each key does about it: pure values, for any full screen.

All runs, one of them chosen; that one alone, as it goes on; or something to read, such as its transcript.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import TextIO

from msgspec import Struct, structs

from retinue.model.event_codec import EventRecord
from retinue.output.untrusted_text import strip_control_characters, to_one_line
from retinue.runtime.progress import CallProgress, RunState, RunView
from retinue.support.formatting import SHORT_ID_LENGTH
from retinue.support.stdio_streams import is_blocked
from retinue.tui.keys import KeyName
from retinue.tui.layout import (
    ScreenSize,
    iter_lines_newest_first,
    make_line,
    order_as_tree,
    render_closing,
    render_error,
    render_frame,
    render_header,
    render_sessions,
    render_status,
)
from retinue.tui.renderer import (
    END_UPDATE,
    LEAVE_SCREEN,
    SHOW_CURSOR,
    FullScreenRenderer,
    StyledLine,
    StyledSpan,
    fit_line,
    render_ansi,
    select_styles,
    terminal_size,
)
from retinue.tui.widths import wrap_text

MAX_PAGER_LINES = 5_000
"""Of a run that is scrolled through; its transcript has more."""
MAX_WRAPPED_LINES = 40
"""Rows one line may take when it is read whole."""
MAX_NAME_WIDTH = 40
"""Columns of a name in a sentence."""
NOTHING_RUNNING = "Nothing is running. What begins now is shown; q leaves."


class TextPager(Struct, frozen=True):
    """Lines that do not change while they are read."""

    title: str
    lines: tuple[StyledLine, ...]
    top: int = 0
    """The first line that is shown."""


class BrowserState(Struct, frozen=True):
    """What is looked at."""

    selected: str | None = None
    """A run."""
    single: bool = False
    """Whether only the chosen run is shown, as it goes on."""
    pager: TextPager | None = None
    """What is read instead."""
    confirming: str | None = None
    """The run that is to be cancelled, if the next key is y."""


class BrowserCommand(Struct, frozen=True):
    """What a key asks for that a look cannot do itself."""

    action: str
    """`cancel`, `read` or `quit`."""
    run: str = ""


def apply_key(
    state: BrowserState, key: str, progress: CallProgress, screen: ScreenSize
) -> tuple[BrowserState, BrowserCommand | None]:
    """What is looked at once a key was pressed, and what it asks for beyond that."""
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
            whole = structs.replace(state, pager=_open_full_log(progress.runs[state.selected], screen))
            return apply_key(whole, key, progress, screen)
        case _:
            return _move_selection(state, key, progress, screen), None


def select_default(state: BrowserState, progress: CallProgress) -> BrowserState:
    """The look with a run chosen, as soon as there is one: the first that is at work."""
    if state.selected in progress.runs or not progress.runs:
        return state
    views = order_as_tree(progress.runs.values())
    first = next((view for view in views if view.phase is RunState.RUNNING), views[0])
    return structs.replace(state, selected=first.run)


def render_browser(
    state: BrowserState, progress: CallProgress, screen: ScreenSize, now: float
) -> tuple[StyledLine, ...]:
    """What is seen, as tall as the screen: the last row says which keys there are."""
    state, rows = select_default(state, progress), max(screen.height - 1, 1)
    if state.pager:
        lines = _render_page(state.pager, rows)
    elif state.single and state.selected:
        lines = _render_single(progress, progress.runs[state.selected], screen, rows, now)
    elif progress.runs:
        seen = structs.replace(screen, height=rows, selected=state.selected)
        lines = list(render_frame(progress, seen, now))
    else:
        lines = [(StyledSpan(NOTHING_RUNNING, "muted"),)]
    lines = [*lines[:rows], *([()] * (rows - len(lines)))]
    return tuple(fit_line(line, screen.width) for line in (*lines, _render_key_help(state, progress)))[
        : screen.height
    ]


def open_transcript(view: RunView, lines_of_text: list[str], columns: int) -> TextPager:
    """The transcript of a run, to be read from its end."""
    lines = [
        (StyledSpan(piece),)
        for text in lines_of_text
        for row in text.split("\n")
        for piece in wrap_text(row, columns, MAX_WRAPPED_LINES * 10) or [""]
    ]
    return TextPager(
        f"Transcript of {to_one_line(view.name, MAX_NAME_WIDTH)} ({view.session[:SHORT_ID_LENGTH]})",
        tuple(lines),
        len(lines),
    )


# -- keys ------------------------------------------------------------------------------------------


def _move_selection(state: BrowserState, key: str, progress: CallProgress, screen: ScreenSize) -> BrowserState:
    """Another run chosen."""
    steps = {
        KeyName.TAB: 1,
        KeyName.DOWN: 1,
        "j": 1,
        KeyName.BACK_TAB: -1,
        KeyName.UP: -1,
        "k": -1,
        KeyName.PAGE_DOWN: screen.height - 3,
        KeyName.PAGE_UP: 3 - screen.height,
        KeyName.HOME: -len(progress.runs),
        KeyName.END: len(progress.runs),
    }
    if state.selected is None or key not in steps:
        return state
    order = [view.run for view in order_as_tree(progress.runs.values())]
    place = order.index(state.selected) + steps[key]
    # From the last on to the first with Tab, as everywhere; the arrows stay.
    place = place % len(order) if key in {KeyName.TAB, KeyName.BACK_TAB} else min(max(place, 0), len(order) - 1)
    return structs.replace(state, selected=order[place])


def _scroll_pager(state: BrowserState, pager: TextPager, key: str, screen: ScreenSize) -> BrowserState:
    """The pager scrolled, or left; at the end of a run that goes on it goes on, too."""
    rows = max(screen.height - 2, 1)
    last = max(len(pager.lines) - rows, 0)
    tops = {
        KeyName.UP: -1,
        "k": -1,
        KeyName.DOWN: 1,
        "j": 1,
        KeyName.PAGE_UP: -rows,
        KeyName.PAGE_DOWN: rows,
        " ": rows,
        KeyName.HOME: -len(pager.lines),
        KeyName.END: len(pager.lines),
    }
    if key in {"q", KeyName.ESCAPE, KeyName.ENTER, "t"}:
        return structs.replace(state, pager=None)
    top = min(max(min(pager.top, last) + tops.get(key, 0), 0), last)
    if state.single and top == last and tops.get(key, 0) > 0:
        return structs.replace(state, pager=None)
    return structs.replace(state, pager=structs.replace(pager, top=top))


# -- pictures --------------------------------------------------------------------------------------


def _render_single(
    progress: CallProgress, view: RunView, screen: ScreenSize, rows: int, now: float
) -> list[StyledLine]:
    """One run on the whole screen: its newest lines, its error beneath, its session once it has ended."""
    view = structs.replace(view, depth=1)
    errors = render_error(view, screen.width)
    foot = render_sessions([view], screen.width) if view.elapsed is not None else []
    room = max(rows - 2 - len(errors) - len(foot), 0)
    body = list(islice(iter_lines_newest_first(view, screen.width, expanded=True), room))[::-1]
    if not body:
        body = [make_line(view, "(no output)", "muted")]
    return [render_status(progress), render_header(view, now, with_id=True), *body, *errors, *foot]


def _open_full_log(view: RunView, screen: ScreenSize) -> TextPager:
    """All that is kept of a run, its lines broken instead of cut."""
    view = structs.replace(view, depth=1)
    newest = islice(iter_lines_newest_first(view, screen.width, expanded=True), MAX_PAGER_LINES)
    lines = (*reversed(list(newest)), *render_error(view, screen.width))
    return TextPager(
        f"All of {to_one_line(view.name, MAX_NAME_WIDTH)} ({view.session[:SHORT_ID_LENGTH]})", lines, len(lines)
    )


def _render_page(pager: TextPager, rows: int) -> list[StyledLine]:
    room = max(rows - 1, 1)
    top = min(pager.top, max(len(pager.lines) - room, 0))
    place = f" • {min(top + room, len(pager.lines))}/{len(pager.lines)}"
    return [(StyledSpan(pager.title, "name"), StyledSpan(place, "muted")), *pager.lines[top : top + room]]


def _render_key_help(state: BrowserState, progress: CallProgress) -> StyledLine:
    """What can be pressed."""
    if state.confirming and (view := progress.runs.get(state.confirming)):
        return (
            StyledSpan(
                f"Cancel {to_one_line(view.name, MAX_NAME_WIDTH)} ({view.run[:SHORT_ID_LENGTH]})? "
                "y, or any other key",
                "warning",
            ),
        )
    if state.pager:
        hints = "↑↓ PgUp PgDn Home End scroll • Esc back"
    elif state.single:
        hints = "↑ PgUp scroll • Tab next • Enter all runs • c cancel • t transcript • q quit"
    else:
        hints = "↑↓ Tab choose • Enter expand • c cancel • t transcript • q quit"
    return (StyledSpan(hints, "muted"),)


MESSAGE_SECONDS = 8.0
"""Seconds a word of our own stays on the screen."""
MAX_MESSAGE_CHARS = 300
EMPTY_SCREEN_DELAY = 0.5
"""Seconds before it is said that nothing runs: finding out takes some."""


class WatchView:
    """Runs on a screen of their own. What was seen last stays on the old one."""

    wants_deltas = True

    def __init__(self, stream: TextIO, max_lines: int, send_command: Callable[[BrowserCommand], None]) -> None:
        """`wish` is told what keys ask for that no screen can do."""
        self._stream = stream
        self._max_lines = max_lines
        self._send_command = send_command
        self._progress = CallProgress()
        self._state = BrowserState()
        self._styles = select_styles(os.environ)
        self._screen = FullScreenRenderer(stream, self._styles)
        self._message = ("", 0.0)
        self._started = time.monotonic()

    def add_event(self, stamped: EventRecord) -> None:
        self._progress = self._progress.apply(stamped)

    def show_message(self, text: str) -> None:
        self._message = (to_one_line(text, MAX_MESSAGE_CHARS), time.monotonic() + MESSAGE_SECONDS)

    def press(self, key: str) -> None:
        self._state, command = apply_key(self._state, key, self._progress, self._size()[1])
        if command:
            self._send_command(command)

    def open_transcript(self, run: str, lines: list[str]) -> None:
        """Opens the transcript of a run."""
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
            last = render_closing(self._progress, screen, time.time(), results_printed=False)
            self._stream.write("".join(f"{render_ansi(line, self._styles)}\n" for line in last))
            self._stream.flush()

    def restore(self) -> None:
        # A terminal that takes nothing now must not hold up whoever is leaving.
        if self._screen.is_started and not is_blocked(self._stream):
            with suppress(OSError, ValueError):
                os.write(self._stream.fileno(), f"{END_UPDATE}{SHOW_CURSOR}{LEAVE_SCREEN}".encode())

    def _size(self) -> tuple[tuple[int, int], ScreenSize]:
        columns, rows = terminal_size(self._stream, os.environ)
        return (columns, rows), ScreenSize(width=columns, height=rows, max_lines=self._max_lines)
