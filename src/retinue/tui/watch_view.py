"""The browser of runs on the alternate screen of a terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from msgspec import structs

from retinue.model.event_codec import EventRecord
from retinue.output.untrusted_text import strip_control_characters, to_one_line
from retinue.runtime.progress import CallProgress
from retinue.tui.browser import BrowserCommand, BrowserState, apply_key, open_transcript, render_browser
from retinue.tui.layout import ScreenSize, render_closing
from retinue.tui.renderer import FullScreenRenderer, StyledSpan, fit_line, render_ansi, select_styles, terminal_size

MESSAGE_SECONDS = 8.0
"""Seconds for which a message of the program is shown."""
MAX_MESSAGE_CHARS = 300
EMPTY_SCREEN_DELAY = 0.5
"""Seconds before an empty list is shown: finding the runs takes a moment."""


class WatchView:
    """The browser on the alternate screen; a closing summary is printed on the normal one."""

    wants_deltas = True

    def __init__(
        self,
        stream: TextIO,
        max_lines: int,
        send_command: Callable[[BrowserCommand], None],
        *,
        color: bool | None = None,
    ) -> None:
        """Take the function that executes commands of the user."""
        self._stream = stream
        self._max_lines = max_lines
        self._send_command = send_command
        self._progress = CallProgress()
        self._state = BrowserState()
        self._styles = select_styles(os.environ, color=color)
        self._screen = FullScreenRenderer(stream, self._styles)
        self._message = ("", 0.0)
        self._started = time.monotonic()

    def add_event(self, record: EventRecord) -> None:
        self._progress = self._progress.apply(record)

    def show_message(self, text: str) -> None:
        self._message = (to_one_line(text, MAX_MESSAGE_CHARS), time.monotonic() + MESSAGE_SECONDS)

    def press(self, key: str) -> None:
        self._message = ("", 0.0)
        self._state, command = apply_key(self._state, key, self._progress, self._size()[1])
        if command and command.action == "report":
            self.show_message(command.text)
        elif command:
            self._send_command(command)

    def open_transcript(self, run: str, lines: list[str]) -> None:
        if view := self._progress.runs.get(run):
            columns = self._size()[1].width
            pager = open_transcript(view, [strip_control_characters(text) for text in lines], columns)
            self._state = structs.replace(self._state, selected=run, pager=pager, typing=None, confirming=None)

    def draw(self) -> None:
        if not self._progress.runs and time.monotonic() < self._started + EMPTY_SCREEN_DELAY:
            return
        size, screen = self._size()
        lines = list(render_browser(self._state, self._progress, screen, time.time()))
        text, until = self._message
        if text and time.monotonic() < until and not self._state.confirming and not self._state.typing:
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
