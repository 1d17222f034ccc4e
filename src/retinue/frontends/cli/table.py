"""Rows in columns, as wide as the terminal and no wider."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

from retinue.frontends.cells import fit, pad, width
from retinue.output.frame import one_line

GAP = "  "
INDENT = "    "
"""Before what has no room beside the rest of its row."""
NARROWEST = 12
"""Columns the last cell gets at least."""
MOST = 1_000
"""Characters of a cell that are looked at."""


Cell = str | tuple[str, str]
"""A text that is made plain; or one with what is drawn before it, as it is."""


def table(rows: Sequence[Sequence[Cell]], *, columns: int | None = None) -> list[str]:
    """The rows as lines, cells made plain and put below each other; the last cell takes what is left.

    What a narrow terminal has no room for beside the rest stands below it.
    """
    if not rows:
        return []
    room = columns or screen_columns()
    cells = [[_plain(cell) for cell in row] for row in rows]
    widths = [max(width(row[index]) for row in cells) for index in range(len(cells[0]) - 1)]
    shape = _shape([*widths, NARROWEST], room)
    return [line for row in cells for line in _lines(row, widths, shape, room)]


def _shape(widths: Sequence[int], room: int) -> list[range]:
    """Which cells of a row stand beside each other."""
    starts, used = [0], widths[0]
    for index, size in enumerate(widths[1:], 1):
        used += len(GAP) + size
        if used > room:
            starts.append(index)
            used = len(INDENT) + size
    return [range(*ends) for ends in pairwise([*starts, len(widths)])]


def _lines(row: Sequence[str], widths: Sequence[int], shape: Sequence[range], room: int) -> Iterator[str]:
    for beside in shape:
        line = GAP.join(pad(row[index], widths[index]) for index in beside if index < len(widths))
        line = (INDENT if beside.start else "") + line
        if len(widths) in beside:
            line += GAP if len(beside) > 1 else ""
            line += fit(row[-1], max(room - width(line), 1))
        yield line.rstrip()


def _plain(cell: Cell) -> str:
    drawn, text = ("", cell) if isinstance(cell, str) else cell
    return drawn + one_line(text, MOST)


def screen_columns() -> int:
    """How wide stdout is; a pipe or a file has all the room in the world."""
    is_screen = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_screen or "COLUMNS" in os.environ else MOST
