"""Rows in columns, as wide as the terminal and no wider."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from retinue.frontends.cells import fit, pad, width
from retinue.output.frame import one_line

GAP = "  "
NARROWEST = 12
"""Columns the last cell gets at least; a terminal narrower than the rest wraps it."""
MOST = 1_000
"""Characters of a cell that are looked at."""


Cell = str | tuple[str, str]
"""A text that is made plain; or one with what is drawn before it, as it is."""


def table(rows: Sequence[Sequence[Cell]], *, columns: int | None = None) -> list[str]:
    """The rows as lines, cells made plain and put below each other; the last cell takes what is left."""
    if not rows:
        return []
    room = columns or screen_columns()
    cells = [[_plain(cell) for cell in row] for row in rows]
    widths = [max(width(row[index]) for row in cells) for index in range(len(cells[0]) - 1)]
    left = max(room - sum(widths) - len(GAP) * len(widths), NARROWEST)
    return [
        GAP.join([*(pad(cell, size) for cell, size in zip(row, widths, strict=False)), fit(row[-1], left)]).rstrip()
        for row in cells
    ]


def _plain(cell: Cell) -> str:
    drawn, text = ("", cell) if isinstance(cell, str) else cell
    return drawn + one_line(text, MOST)


def screen_columns() -> int:
    """How wide stdout is; a pipe or a file has all the room in the world."""
    is_screen = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_screen or "COLUMNS" in os.environ else MOST
