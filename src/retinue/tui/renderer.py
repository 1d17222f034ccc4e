"""Pictures on a terminal, changed in place: only what differs from the last one is written, in one go.

`Rolling` stands below what was printed before and leaves its last picture there; `FullScreen` has a screen of its own
and gives the old one back. Text in the lines is plain already; the only escapes a terminal sees are those from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import TextIO

from msgspec import Struct

from retinue.tui.widths import fit_text, text_width


class StyledSpan(Struct, frozen=True):
    """Text in one style: `name`, `muted`, `running`, `good`, `error`, `warning`, or none."""

    text: str
    style: str = ""


StyledLine = tuple[StyledSpan, ...]


def fit_line(line: StyledLine, columns: int) -> StyledLine:
    """The line in at most so many columns."""
    spans: list[StyledSpan] = []
    for span in line:
        text = fit_text(span.text, columns)
        spans.append(StyledSpan(text, span.style))
        columns -= text_width(text)
    return tuple(spans)


def plain_text(line: StyledLine) -> str:
    return "".join(span.text for span in line)


HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
# A terminal that knows how shows a picture at once, and no torn one; one that does not passes over it. Lines are not
# broken: where a terminal takes a character for wider than we do, its line is cut instead of moving all others.
BEGIN_UPDATE, END_UPDATE = "\x1b[?2026h\x1b[?7l", "\x1b[?7h\x1b[?2026l"
ERASE_LINE, ERASE_SCREEN = "\x1b[K", "\x1b[J"
RESET = "\x1b[0m"

COLOR_STYLES: Mapping[str, str] = {
    "name": "1",
    "muted": "90",
    "running": "36",
    "good": "32",
    "error": "31",
    "warning": "33",
    "key": "7",
}
"""How a terminal is told of the styles."""
PLAIN_STYLES: Mapping[str, str] = {"name": "1", "key": "7"}


def render_ansi(line: StyledLine, styles: Mapping[str, str]) -> str:
    """The line as it is written to a terminal."""
    return "".join(
        f"\x1b[{styles[span.style]}m{span.text}{RESET}" if span.style in styles and span.text else span.text
        for span in line
    )


def select_styles(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The styles a user wants to see."""
    return PLAIN_STYLES if "NO_COLOR" in environ else COLOR_STYLES


def terminal_size(stream: TextIO, environ: Mapping[str, str]) -> tuple[int, int]:
    """Columns and rows of a terminal; where it does not say, what the environment does, else 80 and 24."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    return size.columns or _read_number(environ, "COLUMNS", 80), size.lines or _read_number(environ, "LINES", 24)


class TerminalRenderer:
    """What is written to one terminal, in turn: a thread may still be at the last picture when the end is drawn."""

    def __init__(self, stream: TextIO, styles: Mapping[str, str]) -> None:
        self._stream = stream
        self._styles = styles
        self._lock = Lock()
        self.is_started = False
        """Whether the terminal must be given back."""

    def _write(self, text: str) -> None:
        self.is_started = True
        self._stream.write(text)
        self._stream.flush()

    def _end(self, text: str) -> None:
        with self._lock:
            if self.is_started:
                self._write(text)
                self.is_started = False


class InlineRenderer(TerminalRenderer):
    """A picture below everything printed before it. The cursor rests on the row beneath."""

    def __init__(self, stream: TextIO, styles: Mapping[str, str]) -> None:
        super().__init__(stream, styles)
        self._shown: list[str] = []
        self._widths: list[int] = []
        self._size = (0, 0)

    def show(self, lines: Sequence[StyledLine], size: tuple[int, int], *, messages: Iterable[str] = ()) -> None:
        """Draws the lines in the place of the last ones; what is said `above` stays, before the picture."""
        printed = "".join(f"{text}\r\n" for text in messages)
        with self._lock:
            change = self._move_to_top(size[0])
            if printed or size != self._size:
                # Elsewhere than before, or broken anew by the terminal: nothing on the screen can be relied on.
                change += ERASE_SCREEN + END_UPDATE + printed + BEGIN_UPDATE
                self._shown = []
            change += self._diff_lines(lines, size[0])
            self._size = size
            self._write(f"{'' if self.is_started else HIDE_CURSOR}{BEGIN_UPDATE}{change}{END_UPDATE}")

    def end(self) -> None:
        """Leaves the picture where it is."""
        self._end(SHOW_CURSOR)

    def _move_to_top(self, columns: int) -> str:
        """Moves the cursor to where the picture begins; a narrower terminal has broken its lines into more rows."""
        rows = sum(max(-(-one // columns), 1) for one in self._widths)
        return f"\x1b[{rows}A\r" if rows else "\r"

    def _diff_lines(self, lines: Sequence[StyledLine], columns: int) -> str:
        new = [render_ansi(line, self._styles) for line in lines]
        widths = [text_width(plain_text(line)) for line in lines]
        change = []
        for place, line in enumerate(new):
            if place < len(self._shown) and line == self._shown[place]:
                change.append("\n")
            else:
                # Behind a full line the cursor stands on its last character, which must not be erased.
                change.append(line + (ERASE_LINE if widths[place] < columns else "") + "\r\n")
        self._shown, self._widths = new, widths
        return "".join(change) + ERASE_SCREEN


class FullScreenRenderer(TerminalRenderer):
    """A screen of its own, given back at the end."""

    def __init__(self, stream: TextIO, styles: Mapping[str, str]) -> None:
        super().__init__(stream, styles)
        self._shown: list[str] = []
        self._size = (0, 0)

    def show(self, lines: Sequence[StyledLine], size: tuple[int, int]) -> None:
        """Draws the lines from the first row on; the rest of the screen is empty."""
        new = [render_ansi(line, self._styles) for line in lines[: size[1]]]
        with self._lock:
            change = "" if self.is_started else ENTER_SCREEN + HIDE_CURSOR
            if size != self._size:
                change += "\x1b[2J"
                self._shown = []
            change += BEGIN_UPDATE
            for row in range(max(len(new), len(self._shown))):
                line = new[row] if row < len(new) else ""
                if row >= len(self._shown) or line != self._shown[row]:
                    change += f"\x1b[{row + 1};1H{ERASE_LINE}{line}"
            self._shown, self._size = new, size
            self._write(change + END_UPDATE)

    def end(self) -> None:
        """Gives the old screen back."""
        self._end(SHOW_CURSOR + LEAVE_SCREEN)


def _read_number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default
