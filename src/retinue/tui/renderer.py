"""Draw frames on a terminal and rewrite only the lines that changed, in one write.

`InlineRenderer` draws below earlier output and leaves its last frame there; `FullScreenRenderer` uses the alternate
screen. The text of a line is sanitized before: the only escape sequences that reach the terminal are those from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import TextIO

from msgspec import Struct

from retinue.support.own_process import is_blocked
from retinue.tui.widths import fit_text, text_width


class StyledSpan(Struct, frozen=True):
    """Text in one style: `name`, `muted`, `tool`, `running`, `good`, `error`, `warning`, `key`, or none."""

    text: str
    style: str = ""


StyledLine = tuple[StyledSpan, ...]

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
# A terminal marks what is pasted, so that it is not taken for keys.
MARK_PASTES, UNMARK_PASTES = "\x1b[?2004h", "\x1b[?2004l"
# Synchronized output shows a frame at once; terminals without it ignore the sequence. Auto-wrap is off: where a
# terminal measures a character wider than we do, its line is cut instead of moving all lines below.
BEGIN_UPDATE, END_UPDATE = "\x1b[?2026h\x1b[?7l", "\x1b[?7h\x1b[?2026l"
ERASE_LINE, ERASE_SCREEN, CLEAR_SCREEN = "\x1b[K", "\x1b[J", "\x1b[2J"
RESET = "\x1b[0m"

COLOR_STYLES: Mapping[str, str] = {
    "name": "1",
    "muted": "90",
    "tool": "36",
    "running": "36",
    "good": "32",
    "error": "31",
    "warning": "33",
    "key": "7",
}
"""SGR parameters of the styles."""
PLAIN_STYLES: Mapping[str, str] = {"name": "1", "key": "7"}


def fit_line(line: StyledLine, columns: int) -> StyledLine:
    """Return the line cut to the columns."""
    spans: list[StyledSpan] = []
    for span in line:
        text = fit_text(span.text, columns)
        spans.append(StyledSpan(text, span.style))
        columns -= text_width(text)
    return tuple(spans)


def pad_line(line: StyledLine, columns: int) -> StyledLine:
    """Return the line cut to the columns and padded with blanks."""
    fitted = fit_line(line, columns)
    return (*fitted, StyledSpan(" " * (columns - text_width(plain_text(fitted)))))


def plain_text(line: StyledLine) -> str:
    return "".join(span.text for span in line)


def render_ansi(line: StyledLine, styles: Mapping[str, str]) -> str:
    """Return the line with the escape sequences of its styles."""
    return "".join(
        f"\x1b[{styles[span.style]}m{span.text}{RESET}" if span.style in styles and span.text else span.text
        for span in line
    )


def select_styles(environ: Mapping[str, str], *, color: bool | None = None) -> Mapping[str, str]:
    """Return the styles of a terminal, with colors as the user chose, else unless NO_COLOR is set."""
    has_color = not environ.get("NO_COLOR") if color is None else color
    return COLOR_STYLES if has_color else PLAIN_STYLES


def terminal_size(stream: TextIO, environ: Mapping[str, str]) -> tuple[int, int]:
    """Return columns and rows of a terminal; if unknown, those of the environment, else 80 and 24."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    return size.columns or _read_number(environ, "COLUMNS", 80), size.lines or _read_number(environ, "LINES", 24)


def _read_number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default


class TerminalRenderer:
    """The output of one terminal, serialized: a thread may still draw a frame when the last one is drawn."""

    end_sequence = SHOW_CURSOR

    def __init__(self, stream: TextIO, styles: Mapping[str, str]) -> None:
        self._stream = stream
        self._styles = styles
        self._lock = Lock()
        self._shown: list[str] = []
        self._size = (0, 0)
        self.is_started = False
        """Whether the terminal must be restored."""

    def end(self) -> None:
        """Restore the terminal and leave the last frame, or the screen before it."""
        with self._lock:
            if self.is_started:
                self._write(self.end_sequence)
                self.is_started = False

    def restore(self, after: str = "") -> None:
        """Restore the terminal at any moment without waiting for the lock or for a reader that does not read."""
        if self.is_started and not is_blocked(self._stream):
            with suppress(OSError, ValueError):
                os.write(self._stream.fileno(), f"{END_UPDATE}{self.end_sequence}{after}".encode())

    def _write(self, text: str) -> None:
        self.is_started = True
        self._stream.write(text)
        self._stream.flush()


class InlineRenderer(TerminalRenderer):
    """A frame below all earlier output. The cursor rests on the row beneath."""

    def __init__(self, stream: TextIO, styles: Mapping[str, str]) -> None:
        super().__init__(stream, styles)
        self._widths: list[int] = []

    def show(self, lines: Sequence[StyledLine], size: tuple[int, int], *, messages: Iterable[str] = ()) -> None:
        """Draw the lines in place of the last frame; print the messages above it, to stay."""
        printed = "".join(f"{text}\r\n" for text in messages)
        with self._lock:
            change = self._move_to_top(size[0])
            if printed or size != self._size:
                # The frame moves, or the terminal has wrapped it again: nothing on the screen can be reused.
                erase = self._erase_frame() if size == self._size else ERASE_SCREEN
                change += erase + END_UPDATE + printed + BEGIN_UPDATE
                self._shown = []
            change += self._diff_lines(lines, size[0])
            self._size = size
            self._write(f"{'' if self.is_started else HIDE_CURSOR}{BEGIN_UPDATE}{change}{END_UPDATE}")

    def _move_to_top(self, columns: int) -> str:
        """Return the cursor movement to the first row; a narrower terminal has wrapped lines into more rows."""
        rows = sum(max(-(-width // columns), 1) for width in self._widths)
        return f"\x1b[{rows}A\r" if rows else "\r"

    def _erase_frame(self) -> str:
        """Return the sequence that erases all rows from the first on, where the cursor stays.

        Some terminals, such as tmux, take an erasure from the top left corner for a cleared screen and copy the frame
        into their history: the first row is erased by itself.
        """
        return f"{ERASE_LINE}\n{ERASE_SCREEN}\x1b[A" if self._widths else ERASE_SCREEN

    def _diff_lines(self, lines: Sequence[StyledLine], columns: int) -> str:
        new = [render_ansi(line, self._styles) for line in lines]
        widths = [text_width(plain_text(line)) for line in lines]
        change = []
        for row, line in enumerate(new):
            if row < len(self._shown) and line == self._shown[row]:
                change.append("\n")
            else:
                # After a full line the cursor is on its last character, which must not be erased.
                change.append(line + (ERASE_LINE if widths[row] < columns else "") + "\r\n")
        self._shown, self._widths = new, widths
        return "".join(change) + ERASE_SCREEN


class FullScreenRenderer(TerminalRenderer):
    """A frame on the alternate screen."""

    end_sequence = UNMARK_PASTES + SHOW_CURSOR + LEAVE_SCREEN

    def show(self, lines: Sequence[StyledLine], size: tuple[int, int]) -> None:
        """Draw the lines from the first row on; the rest of the screen is empty."""
        new = [render_ansi(line, self._styles) for line in lines[: size[1]]]
        with self._lock:
            change = "" if self.is_started else ENTER_SCREEN + HIDE_CURSOR + MARK_PASTES
            if size != self._size:
                change += CLEAR_SCREEN
                self._shown = []
            change += BEGIN_UPDATE
            for row in range(max(len(new), len(self._shown))):
                line = new[row] if row < len(new) else ""
                if row >= len(self._shown) or line != self._shown[row]:
                    change += f"\x1b[{row + 1};1H{ERASE_LINE}{line}"
            self._shown, self._size = new, size
            self._write(change + END_UPDATE)
