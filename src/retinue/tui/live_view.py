"""The live view of a command: windows of runs below earlier output, redrawn at most ten times a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from retinue.model.event_codec import EventRecord
from retinue.output.untrusted_text import strip_control_characters
from retinue.runtime.progress import CallProgress
from retinue.tui.answer_stream import AnswerScreen, AnswerStream
from retinue.tui.event_view import NoteSource
from retinue.tui.keys import KeyName
from retinue.tui.layout import ScreenSize, render_closing, render_frame
from retinue.tui.renderer import InlineRenderer, StyledLine, StyledSpan, render_ansi, select_styles, terminal_size

MIN_FRAME_ROWS = 8
"""Rows of the windows below an answer, where the screen has as many."""
FrameRenderer = Callable[[CallProgress, ScreenSize, float], Sequence[StyledLine]]
"""Returns the lines of the windows of runs."""


class LiveView:
    """Windows of runs on a terminal, below the answer that one of them writes. Ctrl+O expands and collapses them."""

    wants_deltas = True

    def __init__(
        self,
        stream: TextIO,
        max_lines: int,
        *note_sources: NoteSource,
        answer: AnswerStream | None = None,
        color: bool | None = None,
    ) -> None:
        self._stream = stream
        self._max_lines = max_lines
        self._note_sources = note_sources
        self._answer = AnswerScreen(answer) if answer else None
        self._progress = CallProgress()
        self._notes: list[str] = []
        self._expanded = False
        self._styles = select_styles(os.environ, color=color)
        self._renderer = InlineRenderer(stream, self._styles)

    def add_event(self, record: EventRecord) -> None:
        self._progress = self._progress.apply(record)
        if self._answer:
            self._answer.answer.observe(record)
        for note_source in self._note_sources:
            self._notes += note_source(record)

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
        self._renderer.restore("\n")

    def _show(self, render: FrameRenderer) -> None:
        notes, self._notes = self._notes, []
        messages = [
            render_ansi((StyledSpan(strip_control_characters(note), "muted"),), self._styles) for note in notes
        ]
        if not self._progress.runs:
            self._stream.write("".join(f"{note}\n" for note in messages))
            self._stream.flush()
            return
        size = terminal_size(self._stream, os.environ)
        if self._answer is None:
            self._draw_frame(render, self._progress, size, messages, [])
            return
        with self._answer.answer.lock:
            self._show_answer(self._answer, render, size, messages)

    def _show_answer(
        self, screen: AnswerScreen, render: FrameRenderer, size: tuple[int, int], messages: list[str]
    ) -> None:
        """Print the lines of the answer that leave the frame, and draw the newest ones above the windows."""
        printed, drawn = screen.split(size[0], size[1] - MIN_FRAME_ROWS)
        messages += screen.render_printed(printed, size[0])
        is_last = screen.answer.is_final and not screen.answer.is_printed
        if is_last and printed:
            messages.append("")
        head = [*drawn, ()] if drawn else []
        self._draw_frame(render, screen.without_answer(self._progress), size, messages, head)
        screen.answer.mark_printed(printed)
        screen.answer.is_printed = screen.answer.is_printed or is_last

    def _draw_frame(
        self,
        render: FrameRenderer,
        progress: CallProgress,
        size: tuple[int, int],
        messages: Sequence[str],
        head: Sequence[StyledLine],
    ) -> None:
        # One row is the cursor's: a frame as tall as the screen would scroll with every change.
        height = max(size[1] - 1 - len(head), 1)
        screen = ScreenSize(width=size[0], height=height, max_lines=self._max_lines, expanded=self._expanded)
        self._renderer.show([*head, *render(progress, screen, time.time())], size, messages=messages)
