"""The terminal view: rolling windows beneath what was printed before, at most ten times a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TextIO

import anyio
import anyio.lowlevel
import anyio.to_thread

from retinue.model.event_codec import EventRecord
from retinue.model.events import Notice, RunQueued
from retinue.output.untrusted_text import strip_control_characters
from retinue.runtime.event_bus import SubscriberLaggedError
from retinue.runtime.progress import CallProgress
from retinue.support.stdio_streams import is_blocked
from retinue.tui.keys import KeyName
from retinue.tui.layout import ScreenSize, render_closing, render_frame
from retinue.tui.renderer import (
    END_UPDATE,
    RESET,
    SHOW_CURSOR,
    InlineRenderer,
    StyledLine,
    select_styles,
    terminal_size,
)

MIN_UPDATE_INTERVAL = 0.1
"""Seconds between two looks: ten pictures a second are enough for any eye."""
CHECKPOINT_EVERY = 500
"""Events taken in before others have their turn."""
CLOSE_TIMEOUT = 2.0
"""Seconds the last state may take to be drawn: the answer waits for it."""
NoteSource = Callable[[EventRecord], Iterable[str]]
"""Makes lines of an event; none of one that is not its matter."""

LAGGED_MESSAGE = "More happened than could be shown; the runs go on. All of it is kept: retinue events"


class PendingEvents(Protocol):
    """Where events come from."""

    def drain(self) -> tuple[EventRecord, ...]:
        """Takes what has arrived, without waiting.

        Raises:
            Lagged: not all of it could be kept.
        """


class EventView(Protocol):
    """What is done with events. `draw` and `close` are called in a thread."""

    wants_deltas: bool
    """Whether text is shown while it is being written."""

    def add_event(self, stamped: EventRecord) -> None: ...

    def show_message(self, text: str) -> None:
        """Shows a line of the program's own with the next drawing."""

    def draw(self) -> None: ...

    def close(self) -> None:
        """Draws the last state, to stay."""

    def restore(self) -> None:
        """Leaves the terminal usable; for an end without `close`, at any moment."""


async def run_view(source: PendingEvents, view: EventView) -> None:
    """Shows what comes from the source until it is cancelled, and then the last state.

    A fault costs one event or one picture, never the rest: nobody's work depends on being looked at. Returns early if
    the source was cut off, once that is said.
    """
    try:
        while await _drain_into(source, view):
            await _run_in_thread(view.draw)
            await anyio.sleep(MIN_UPDATE_INTERVAL)
        await _close_view(view)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _drain_into(source, view)
            await _close_view(view)
        raise


async def _drain_into(source: PendingEvents, view: EventView) -> bool:
    """Hands on what has happened; false if not all of it could be seen."""
    try:
        pending = source.drain()
    except SubscriberLaggedError:
        view.show_message(LAGGED_MESSAGE)
        return False
    for number, stamped in enumerate(pending, 1):
        with suppress(Exception):
            view.add_event(stamped)
        if number % CHECKPOINT_EVERY == 0:
            await anyio.lowlevel.checkpoint()
    return True


async def _close_view(view: EventView) -> None:
    is_closed = False
    with anyio.move_on_after(CLOSE_TIMEOUT):
        is_closed = await _run_in_thread(view.close)
    if not is_closed:
        view.restore()


async def _run_in_thread(work: Callable[[], None]) -> bool:
    """Whether it could be done. In a thread, and left behind there if it waits for a reader who does not read."""
    with suppress(Exception):
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        return True
    return False


def is_screen(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Whether pictures can be drawn on a stream."""
    return stream is not None and stream.isatty() and environ.get("TERM", "dumb") not in {"dumb", "unknown", ""}


class EngineNote:
    """Says once which engine `auto` chose."""

    def __init__(self, about: Mapping[str, str]) -> None:
        """Takes what there is to say of each engine; nothing, where the choice was the user's own."""
        self._about = dict(about)

    def __call__(self, stamped: EventRecord) -> Iterator[str]:
        if isinstance(stamped.event, RunQueued) and (about := self._about.pop(stamped.event.engine, "")):
            yield f"engine: {stamped.event.engine} ({about})"


def storage_losses(stamped: EventRecord) -> Iterator[str]:
    """Says what of a run is not being stored, and what to do about it: something is lost, so nothing silences it."""
    if isinstance(stamped.event, Notice) and stamped.event.code == "storage":
        yield stamped.event.message


class LinesView:
    """Lines, as what happens makes someone say them."""

    wants_deltas = False

    def __init__(self, stream: TextIO | None, *note_sources: NoteSource) -> None:
        self._stream = stream
        self._note_sources = note_sources
        self._pending: list[str] = []

    def add_event(self, stamped: EventRecord) -> None:
        for note_source in self._note_sources:
            self._pending += note_source(stamped)

    def show_message(self, text: str) -> None:
        self._pending.append(text)

    def draw(self) -> None:
        waiting, self._pending = self._pending, []
        if waiting and self._stream is not None:
            self._stream.write("".join(f"{line}\n" for line in waiting))
            self._stream.flush()

    def close(self) -> None:
        self.draw()

    def restore(self) -> None:
        """Lines leave nothing to restore."""


class LiveView:
    """Rolling windows on a screen. Ctrl+O shows more of each run, and less again."""

    wants_deltas = True

    def __init__(self, stream: TextIO, max_lines: int, *note_sources: NoteSource) -> None:
        self._stream = stream
        self._max_lines = max_lines
        self._note_sources = note_sources
        self._progress = CallProgress()
        self._notes: list[str] = []
        self._expanded = False
        self._styles = select_styles(os.environ)
        self._renderer = InlineRenderer(stream, self._styles)

    def add_event(self, stamped: EventRecord) -> None:
        self._progress = self._progress.apply(stamped)
        for note_source in self._note_sources:
            self._notes += note_source(stamped)

    def show_message(self, text: str) -> None:
        self._notes.append(text)

    def press(self, key: str) -> None:
        if key == KeyName.EXPAND:
            self._expanded = not self._expanded

    def draw(self) -> None:
        self._show(render_frame)

    def close(self) -> None:
        self._show(render_closing)
        if self._renderer.is_started:
            self._renderer.end()
            self._stream.write("\n")
            self._stream.flush()

    def restore(self) -> None:
        # A terminal that takes nothing now must not hold up whoever is leaving.
        if self._renderer.is_started and not is_blocked(self._stream):
            with suppress(OSError, ValueError):
                os.write(self._stream.fileno(), f"{END_UPDATE}{SHOW_CURSOR}\n".encode())

    def _show(self, render: Callable[[CallProgress, ScreenSize, float], Sequence[StyledLine]]) -> None:
        notes, self._notes = self._notes, []
        muted = self._styles.get("muted")
        messages = [
            f"\x1b[{muted}m{strip_control_characters(note)}{RESET}" if muted else strip_control_characters(note)
            for note in notes
        ]
        if not self._progress.runs:
            self._stream.write("".join(f"{note}\n" for note in messages))
            self._stream.flush()
            return
        size = columns, rows = terminal_size(self._stream, os.environ)
        # One row is the cursor's: a picture as tall as the screen would scroll at every change.
        screen = ScreenSize(
            width=columns, height=max(rows - 1, 1), max_lines=self._max_lines, expanded=self._expanded
        )
        self._renderer.show(render(self._progress, screen, time.time()), size, messages=messages)
