"""The terminal view: rolling windows beneath what was printed before, at most ten times a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from retinue.events import Stamped
from retinue.frontends.drawing import END, RESET, SHOW_CURSOR, Rolling, size_of, styles_for
from retinue.frontends.keys import Key
from retinue.frontends.spans import Line
from retinue.frontends.streams import is_stuck
from retinue.frontends.views import Teller
from retinue.frontends.windows import Screen, closing, frame
from retinue.output.frame import plain
from retinue.progress import Progress


class LiveView:
    """Rolling windows on a screen. Ctrl+O shows more of each run, and less again."""

    wants_deltas = True

    def __init__(self, stream: TextIO, max_lines: int, *tellers: Teller) -> None:
        self._stream = stream
        self._max_lines = max_lines
        self._tellers = tellers
        self._progress = Progress()
        self._notes: list[str] = []
        self._expanded = False
        self._styles = styles_for(os.environ)
        self._picture = Rolling(stream, self._styles)

    def take(self, stamped: Stamped) -> None:
        self._progress = self._progress.after(stamped)
        for tell in self._tellers:
            self._notes += tell(stamped)

    def say(self, text: str) -> None:
        self._notes.append(text)

    def press(self, key: str) -> None:
        if key == Key.EXPAND:
            self._expanded = not self._expanded

    def draw(self) -> None:
        self._show(frame)

    def close(self) -> None:
        self._show(closing)
        if self._picture.is_begun:
            self._picture.end()
            self._stream.write("\n")
            self._stream.flush()

    def restore(self) -> None:
        # A terminal that takes nothing now must not hold up whoever is leaving.
        if self._picture.is_begun and not is_stuck(self._stream):
            with suppress(OSError, ValueError):
                os.write(self._stream.fileno(), f"{END}{SHOW_CURSOR}\n".encode())

    def _show(self, picture: Callable[[Progress, Screen, float], Sequence[Line]]) -> None:
        notes, self._notes = self._notes, []
        muted = self._styles.get("muted")
        said = [f"\x1b[{muted}m{plain(note)}{RESET}" if muted else plain(note) for note in notes]
        if not self._progress.runs:
            self._stream.write("".join(f"{note}\n" for note in said))
            self._stream.flush()
            return
        size = columns, rows = size_of(self._stream, os.environ)
        # One row is the cursor's: a picture as tall as the screen would scroll at every change.
        screen = Screen(width=columns, height=max(rows - 1, 1), max_lines=self._max_lines, expanded=self._expanded)
        self._picture.show(picture(self._progress, screen, time.time()), size, above=said)
