"""Rows in columns, as wide as the terminal and no wider."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from retinue.frontends.cells import fit, pad, width
from retinue.output.frame import one_line

GAP = "  "
NARROWEST = 12
"""Columns the last cell gets at least; a terminal narrower than the rest wraps it."""
MOST = 1_000
"""Characters of a cell that are looked at."""


def table(rows: Sequence[Sequence[str]], *, columns: int | None = None) -> list[str]:
    """The rows as lines, cells made plain and put below each other; the last cell takes what is left."""
    if not rows:
        return []
    room = columns or shutil.get_terminal_size().columns
    cells = [[one_line(cell, MOST) for cell in row] for row in rows]
    widths = [max(width(row[index]) for row in cells) for index in range(len(cells[0]) - 1)]
    left = max(room - sum(widths) - len(GAP) * len(widths), NARROWEST)
    return [
        GAP.join([*(pad(cell, size) for cell, size in zip(row, widths, strict=False)), fit(row[-1], left)]).rstrip()
        for row in cells
    ]
