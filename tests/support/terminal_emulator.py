"""A terminal emulator that keeps the cells of its screen; it supports the sequences of our renderers and no others."""

from __future__ import annotations

import io
import os
import re
import unicodedata

from wcwidth import iter_graphemes

from retinue.tui.widths import text_width

WRAPS, CURSOR = "7", "25"
_PARTS = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|([\r\n]|[^\x1b\r\n]+|.)", re.DOTALL)


class TerminalEmulator(io.StringIO):
    """A text stream with the screen of a terminal; `size` is its answer to a program that asks for it."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        super().__init__()
        self.columns, self.rows = columns, rows
        self.cells: list[list[str]] = [[] for _ in range(rows)]
        """The text in each column of each row; empty in the second column of a wide cluster."""
        self.row = self.column = 0
        self.modes = {WRAPS, CURSOR}
        self.written = 0

    def isatty(self) -> bool:
        return True

    @property
    def size(self) -> os.terminal_size:
        return os.terminal_size((self.columns, self.rows))

    def write(self, text: str) -> int:
        self.written += len(text)
        for private, number, command, printed in _PARTS.findall(text):
            if printed:
                for cluster in iter_graphemes(printed):
                    self._put(cluster)
            elif private:
                (self.modes.add if command == "h" else self.modes.discard)(number)
            else:
                self._execute(number, command)
        return len(text)

    def screen(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.cells).rstrip()

    def resize(self, columns: int, rows: int) -> None:
        """Wrap lines again, as most terminals do; the cursor stays on its row, rows above the screen are lost."""
        kept: list[list[str]] = []
        cursor = 0
        for number, row in enumerate(self.cells):
            if number == self.row:
                cursor = len(kept)
            kept += [row[start : start + columns] for start in range(0, max(len(row), 1), columns)]
        extra = max(cursor - rows + 1, 0)
        self.cells = (kept[extra:] + [[] for _ in range(rows)])[:rows]
        self.row, self.columns, self.rows = cursor - extra, columns, rows

    def _put(self, cluster: str) -> None:
        if cluster == "\r":
            self.column = 0
        elif cluster == "\n":
            # As a terminal driver passes it on: with a carriage return.
            self.column = 0
            self._down()
        elif unicodedata.category(cluster[0]) == "Cc":
            raise AssertionError(f"a screen would act on {cluster!r}")
        elif text_width(cluster):
            self._print(cluster)
        elif self.column:
            self.cells[self.row][self.column - 1] += cluster

    def _print(self, cluster: str) -> None:
        width = text_width(cluster)
        if self.column + width > self.columns:
            assert WRAPS in self.modes, "a line of a frame is too long"
            self.column = 0
            self._down()
        row = self.cells[self.row]
        row += [" "] * (self.column - len(row))
        row[self.column : self.column + width] = [cluster, ""][:width]
        self.column += width

    def _down(self) -> None:
        self.row += 1
        if self.row == self.rows:
            del self.cells[0]
            self.cells.append([])
            self.row -= 1

    def _execute(self, number: str, command: str) -> None:
        match command:
            case "A":
                self.row = max(self.row - int(number or 1), 0)
            case "K":
                assert self.column < self.columns, "the last character of a full line was erased"
                del self.cells[self.row][self.column :]
            case "J" if number == "2":
                self.cells = [[] for _ in range(self.rows)]
            case "J":
                del self.cells[self.row][self.column :]
                self.cells[self.row + 1 :] = [[] for _ in range(self.rows - self.row - 1)]
            case "H":
                row, column = number.split(";")
                self.row, self.column = int(row) - 1, int(column) - 1
            case "m":
                pass
            case _:
                raise AssertionError(f"unknown: {command}")
