"""A terminal that only remembers what is on its screen: as much of one as our pictures use, and it refuses the rest."""

from __future__ import annotations

import io
import os
import re
import unicodedata

from retinue.tui.widths import text_width

WRAPS, CURSOR = "7", "25"
_PARTS = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|(.)", re.DOTALL)


class Emulator(io.StringIO):
    """A stream that is a screen. `size` is what a program would ask the terminal for."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        super().__init__()
        self.columns, self.rows = columns, rows
        self.cells: list[list[str]] = [[] for _ in range(rows)]
        """What each column of each row holds; nothing, the second one of a wide character."""
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
        for private, number, command, character in _PARTS.findall(text):
            if character:
                self._put(character)
            elif private:
                (self.modes.add if command == "h" else self.modes.discard)(number)
            else:
                self._obey(number, command)
        return len(text)

    def screen(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.cells).rstrip()

    def resize(self, columns: int, rows: int) -> None:
        """Breaks lines anew, as most terminals do; the cursor stays on its row, what is above the screen is lost."""
        kept: list[list[str]] = []
        cursor = 0
        for number, row in enumerate(self.cells):
            if number == self.row:
                cursor = len(kept)
            kept += [row[start : start + columns] for start in range(0, max(len(row), 1), columns)]
        extra = max(cursor - rows + 1, 0)
        self.cells = (kept[extra:] + [[] for _ in range(rows)])[:rows]
        self.row, self.columns, self.rows = cursor - extra, columns, rows

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            # As a terminal driver hands it on: with a carriage return.
            self.column = 0
            self._down()
        elif text_width(character):
            assert unicodedata.category(character) != "Cc", f"a screen would act on {character!r}"
            self._print(character)
        elif self.column:
            self.cells[self.row][self.column - 1] += character

    def _print(self, character: str) -> None:
        if self.column + text_width(character) > self.columns:
            assert WRAPS in self.modes, "a line of a picture is too long"
            self.column = 0
            self._down()
        row = self.cells[self.row]
        row += [" "] * (self.column - len(row))
        row[self.column : self.column + text_width(character)] = [character, ""][: text_width(character)]
        self.column += text_width(character)

    def _down(self) -> None:
        self.row += 1
        if self.row == self.rows:
            del self.cells[0]
            self.cells.append([])
            self.row -= 1

    def _obey(self, number: str, command: str) -> None:
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
