"""Programs on a pseudo-terminal of a given size, such as the interactive pi: keyboard input and screen content."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from tests.support.terminal_emulator import TerminalEmulator
from wcwidth import iter_graphemes

SCREEN_TIMEOUT = 30
"""Seconds to wait for text on the screen."""
SYNCHRONIZED_OUTPUT = "2026"
"""The mode in which a terminal shows nothing until a frame is complete."""
ENTER, ESCAPE, EXPAND = "\r", "\x1b", "\x0f"
SET_CONTROLLING_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Makes stdin the controlling terminal of a program and executes it."""
_PARTS = re.compile(
    r"\x1b\[([<=>?]?)([\d;:]*)[ -/]*([@-~])"  # CSI
    r"|(\x1b[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\))"  # OSC, DCS and other strings
    r"|(\x1b[ -/]*[0-~])"
    r"|([\r\n]|[^\x1b\r\n]+|.)",
    re.DOTALL,
)
_OPEN = re.compile(r"\x1b(?:\[[<=>?\d;:]*[ -/]*|[\]P_^X][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
"""An escape sequence whose end has not been read yet."""


class LenientEmulator(TerminalEmulator):
    """A screen that supports the sequences pi writes, ignores others, and keeps the rows that scrolled off."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        self.scrolled: list[str] = []
        self._unread = ""

    def write(self, text: str) -> int:
        text = self._unread + text
        self._unread = found[0] if (found := _OPEN.search(text)) else ""
        for private, number, command, _, _, printed in _PARTS.findall(text.removesuffix(self._unread)):
            if printed:
                for cluster in iter_graphemes(printed):
                    self._put(cluster)
            elif private == "?" and command in {"h", "l"}:
                (self.modes.add if command == "h" else self.modes.discard)(number)
            elif command and not private:
                self._execute(number, command)
        return len(text)

    def _put(self, cluster: str) -> None:
        if cluster == "\n":
            self._down()
        elif cluster == "\t":
            self.column = min(self.column // 8 * 8 + 8, self.columns - 1)
        elif cluster >= " " or cluster == "\r":
            super()._put(cluster)

    def _down(self) -> None:
        if self.row == self.rows - 1:
            self.scrolled.append("".join(self.cells[0]).rstrip())
        super()._down()

    def _execute(self, number: str, command: str) -> None:
        count = int(number) if number.isdigit() else 0
        match command:
            case "B":
                self.row = min(self.row + (count or 1), self.rows - 1)
            case "C":
                self.column = min(self.column + (count or 1), self.columns - 1)
            case "D":
                self.column = max(self.column - (count or 1), 0)
            case "G":
                self.column = max(count, 1) - 1
            case "H":
                row, _, column = number.partition(";")
                self.row, self.column = int(row or 1) - 1, int(column or 1) - 1
            case "K" if count == 2:
                self.cells[self.row] = []
            case "K":
                del self.cells[self.row][self.column :]
            case "J" if count == 3:
                self.scrolled = []
            case "A" | "J":
                super()._execute(number, command)
            case _:
                pass


class Terminal:
    """A terminal on which a program runs, and its screen."""

    def __init__(self, keyboard: int, columns: int, rows: int) -> None:
        self._keyboard = keyboard
        self._screen = LenientEmulator(columns, rows)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def lines(self) -> list[str]:
        """The rows of the screen, below those that scrolled off its top."""
        return [*self._screen.scrolled, *self.screen]

    @property
    def screen(self) -> list[str]:
        return self._screen.screen().split("\n")

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    async def until(self, *texts: str, typing: str = "") -> list[str]:
        """Return the rows once they contain all these texts; types `typing` repeatedly until then."""
        with anyio.move_on_after(SCREEN_TIMEOUT):
            while not self._shows(texts):
                if typing:
                    self.type(typing)
                with anyio.move_on_after(1):
                    await self._read()
        assert self._shows(texts), f"{texts} did not appear on the screen:\n" + "\n".join(self.lines)
        return self.lines

    async def settle(self) -> list[str]:
        """Return the rows of the screen once the program has written nothing for half a second."""
        while True:
            with anyio.move_on_after(0.5) as scope:
                await self._read()
            if scope.cancelled_caught:
                return self.screen

    async def drain(self) -> None:
        """Read until no process has the terminal open: an unread terminal blocks the process that writes to it."""
        with suppress(OSError):
            while True:
                await self._read()

    def _shows(self, texts: Sequence[str]) -> bool:
        """Return whether the screen contains all these texts and no frame is incomplete."""
        screen = "\n".join(self.lines)
        return SYNCHRONIZED_OUTPUT not in self._screen.modes and all(text in screen for text in texts)

    async def _read(self) -> None:
        await anyio.wait_readable(self._keyboard)
        self._screen.write(self._decoder.decode(os.read(self._keyboard, 65536)))


@asynccontextmanager
async def on_terminal(
    command: Sequence[str], environ: Mapping[str, str], cwd: Path, columns: int, rows: int
) -> AsyncIterator[Terminal]:
    """Start a program on a terminal of this size; it is ended with SIGTERM."""
    keyboard, device = pty.openpty()
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = await anyio.open_process(
        [sys.executable, "-c", SET_CONTROLLING_TERMINAL, *command],
        cwd=cwd,
        env={**environ, "TERM": "xterm-256color"},
        stdin=device,
        stdout=device,
        stderr=device,
        start_new_session=True,
    )
    os.close(device)
    terminal = Terminal(keyboard, columns, rows)
    try:
        yield terminal
    finally:
        with suppress(ProcessLookupError):  # already ended
            process.terminate()
        with anyio.CancelScope(shield=True), anyio.move_on_after(SCREEN_TIMEOUT):
            await terminal.drain()
            await process.wait()
        os.close(keyboard)
