"""Tests of tables: aligned columns on terminals of any width."""

from __future__ import annotations

import pytest

from retinue.cli.printing import Cell, render_table
from retinue.tui.widths import text_width

ROWS: list[list[Cell]] = [
    ["SESSION", "STATE", "AGENT", "TASK"],
    ["84b9a903", "error (unknown_agent)", ("└ ", "explorer"), "Where is the bus, and who listens?"],
]


def test_last_cell_takes_the_remaining_width():
    assert render_table(ROWS, columns=60) == [
        "SESSION   STATE                  AGENT       TASK",
        "84b9a903  error (unknown_agent)  └ explorer  Where is the b…",
    ]


def test_cells_that_do_not_fit_are_indented_on_the_next_line():
    assert render_table(ROWS, columns=50) == [
        "SESSION   STATE                  AGENT",
        "    TASK",
        "84b9a903  error (unknown_agent)  └ explorer",
        "    Where is the bus, and who listens?",
    ]
    assert render_table(ROWS, columns=34) == [
        "SESSION   STATE",
        "    AGENT       TASK",
        "84b9a903  error (unknown_agent)",
        "    └ explorer  Where is the bus,…",
    ]


@pytest.mark.parametrize("columns", range(25, 81))
def test_no_table_line_is_wider_than_the_terminal(columns):
    rows: list[list[Cell]] = [*ROWS, ["0c57e2ab", "completed", "探索者", "日本語のテキスト" * 9]]
    assert max(map(text_width, render_table(rows, columns=columns))) <= columns


def test_table_in_a_pipe_is_not_cut():
    (line,) = render_table([["a", "b" * 500]])
    assert line == f"a  {'b' * 500}"
