"""The terminal view: rolling windows drawn with rich, at most ten times a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text
from rich.theme import Theme

from retinue.events import Stamped
from retinue.frontends.streams import is_stuck
from retinue.frontends.views import Teller
from retinue.frontends.windows import Line, Screen, closing, frame
from retinue.progress import Progress

SHOW_CURSOR = "\x1b[?25h"

STYLES: Mapping[str, str] = {
    "name": "bold",
    "muted": "bright_black",
    "running": "cyan",
    "good": "green",
    "error": "red",
    "warning": "yellow",
}


class LiveView:
    """Rolling windows on a screen."""

    wants_deltas = True

    def __init__(self, stream: TextIO, max_lines: int, *tellers: Teller) -> None:
        self._console = Console(file=stream, theme=Theme(dict(STYLES)), highlight=False, markup=False, emoji=False)
        self._stream = stream
        self._max_lines = max_lines
        self._tellers = tellers
        self._progress = Progress()
        self._notes: list[str] = []
        # Not redirected: everyone else keeps writing to the streams they have.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def take(self, stamped: Stamped) -> None:
        self._progress = self._progress.after(stamped)
        for tell in self._tellers:
            self._notes += tell(stamped)

    def say(self, text: str) -> None:
        self._notes.append(text)

    def draw(self) -> None:
        self._print_notes()
        if self._progress.runs:
            self._live.start()
            self._live.update(self._drawn(frame), refresh=True)

    def close(self) -> None:
        self._print_notes()
        if self._progress.runs:
            self._live.start()
            self._live.update(self._drawn(closing))
            self._live.stop()
            self._console.print()

    def restore(self) -> None:
        # A terminal that takes nothing now must not hold up whoever is leaving.
        if self._live.is_started and not is_stuck(self._stream):
            with suppress(OSError):
                os.write(self._stream.fileno(), f"{SHOW_CURSOR}\n".encode())

    def _print_notes(self) -> None:
        notes, self._notes = self._notes, []
        for note in notes:
            self._console.print(Text(note, style="muted"))

    def _drawn(self, picture: Callable[[Progress, Screen, float], Sequence[Line]]) -> Text:
        size = self._console.size
        # One row is the cursor's: a picture as tall as the screen would scroll at every change.
        screen = Screen(width=size.width, height=max(size.height - 1, 1), max_lines=self._max_lines)
        return _joined(picture(self._progress, screen, time.time()))


def _joined(lines: Iterable[Line]) -> Text:
    text = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for span in line:
            text.append(span.text, style=span.style or None)
    return text
