"""The full screen of `retinue watch`: runs to look at, to scroll through, to cancel, to read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from retinue.events import Stamped
from retinue.frontends.browsing import Look, Wish, after, picture, transcript
from retinue.frontends.drawing import END, LEAVE_SCREEN, SHOW_CURSOR, FullScreen, painted, size_of, styles_for
from retinue.frontends.spans import Span, fitted
from retinue.frontends.streams import is_stuck
from retinue.frontends.windows import Screen, closing
from retinue.output.frame import one_line, plain
from retinue.progress import Progress

SAID = 8.0
"""Seconds a word of our own stays on the screen."""
MOST_SAID = 300
FIRST_LOOK = 0.5
"""Seconds before it is said that nothing runs: finding out takes some."""


class WatchView:
    """Runs on a screen of their own. What was seen last stays on the old one."""

    wants_deltas = True

    def __init__(self, stream: TextIO, max_lines: int, wish: Callable[[Wish], None]) -> None:
        """`wish` is told what keys ask for that no screen can do."""
        self._stream = stream
        self._max_lines = max_lines
        self._wish = wish
        self._progress = Progress()
        self._look = Look()
        self._styles = styles_for(os.environ)
        self._screen = FullScreen(stream, self._styles)
        self._said = ("", 0.0)
        self._begun = time.monotonic()

    def take(self, stamped: Stamped) -> None:
        self._progress = self._progress.after(stamped)

    def say(self, text: str) -> None:
        self._said = (one_line(text, MOST_SAID), time.monotonic() + SAID)

    def press(self, key: str) -> None:
        self._look, wish = after(self._look, key, self._progress, self._size()[1])
        if wish:
            self._wish(wish)

    def read(self, run: str, told: list[str]) -> None:
        """Opens the transcript of a run."""
        if view := self._progress.runs.get(run):
            columns = self._size()[1].width
            pager = transcript(view, [plain(text) for text in told], columns)
            self._look = Look(chosen=run, alone=self._look.alone, pager=pager)

    def draw(self) -> None:
        if not self._progress.runs and time.monotonic() < self._begun + FIRST_LOOK:
            return
        size, screen = self._size()
        lines = list(picture(self._look, self._progress, screen, time.time()))
        text, until = self._said
        if text and time.monotonic() < until and not self._look.asks:
            lines[-1] = fitted((Span(text, "warning"),), screen.width)
        self._screen.show(lines, size)

    def close(self) -> None:
        self._screen.end()
        if self._progress.runs:
            _, screen = self._size()
            last = closing(self._progress, screen, time.time(), is_told=False)
            self._stream.write("".join(f"{painted(line, self._styles)}\n" for line in last))
            self._stream.flush()

    def restore(self) -> None:
        # A terminal that takes nothing now must not hold up whoever is leaving.
        if self._screen.is_begun and not is_stuck(self._stream):
            with suppress(OSError, ValueError):
                os.write(self._stream.fileno(), f"{END}{SHOW_CURSOR}{LEAVE_SCREEN}".encode())

    def _size(self) -> tuple[tuple[int, int], Screen]:
        columns, rows = size_of(self._stream, os.environ)
        return (columns, rows), Screen(width=columns, height=rows, max_lines=self._max_lines)
