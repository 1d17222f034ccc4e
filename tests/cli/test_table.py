"""Rows in columns: whatever the terminal, each row can be told from the next."""

from __future__ import annotations

import pytest

from retinue.cli.printing import Cell, render_table
from retinue.tui.widths import text_width

ROWS: list[list[Cell]] = [
    ["SESSION", "STATE", "AGENT", "TASK"],
    ["84b9a903", "error (unknown_agent)", ("└ ", "explorer"), "Where is the bus, and who listens?"],
]


def test_the_last_cell_takes_what_is_left():
    assert render_table(ROWS, columns=60) == [
        "SESSION   STATE                  AGENT       TASK",
        "84b9a903  error (unknown_agent)  └ explorer  Where is the b…",
    ]


def test_what_has_no_room_stands_below_and_further_in():
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
def test_no_line_is_wider_than_the_terminal(columns):
    rows: list[list[Cell]] = [*ROWS, ["0c57e2ab", "completed", "探索者", "日本語のテキスト" * 9]]
    assert max(map(text_width, render_table(rows, columns=columns))) <= columns


def test_a_pipe_has_all_the_room_in_the_world():
    (line,) = render_table([["a", "b" * 500]])
    assert line == f"a  {'b' * 500}"
