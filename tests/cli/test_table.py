"""Tests of tables: aligned columns on terminals of any width."""

from __future__ import annotations

import click
import pytest

from retinue.cli.printing import Cell, StyledCell, render_table
from retinue.tui.widths import text_width

ROWS: list[list[Cell]] = [
    ["SESSION", "STATE", "AGENT", "TASK"],
    ["84b9a903", "failed (unknown_tool)", ("└ ", "explorer"), "Where is the bus, and who listens?"],
]


def test_last_cell_takes_the_remaining_width():
    assert render_table(ROWS, columns=60) == [
        "SESSION   STATE                  AGENT       TASK",
        "84b9a903  failed (unknown_tool)  └ explorer  Where is the b…",
    ]


def test_cells_that_do_not_fit_are_indented_on_the_next_line():
    assert render_table(ROWS, columns=50) == [
        "SESSION   STATE                  AGENT",
        "    TASK",
        "84b9a903  failed (unknown_tool)  └ explorer",
        "    Where is the bus, and who listens?",
    ]
    assert render_table(ROWS, columns=34) == [
        "SESSION   STATE",
        "    AGENT       TASK",
        "84b9a903  failed (unknown_tool)",
        "    └ explorer  Where is the bus,…",
    ]


@pytest.mark.parametrize("columns", range(25, 81))
def test_no_table_line_is_wider_than_the_terminal(columns):
    rows: list[list[Cell]] = [*ROWS, ["0c57e2ab", "completed", "探索者", "日本語のテキスト" * 9]]
    assert max(map(text_width, render_table(rows, columns=columns))) <= columns


def test_table_in_a_pipe_is_not_cut():
    (line,) = render_table([["a", "b" * 500]])
    assert line == f"a  {'b' * 500}"


STYLED: list[list[Cell]] = [
    ["SESSION", "STATE", "TASK"],
    [StyledCell("84b9a903", "cyan"), StyledCell("error", "red", prefix="└ "), "Where is the bus, and who listens?"],
]


@pytest.mark.parametrize("columns", range(20, 81, 4))
def test_colors_do_not_change_the_columns(columns):
    plain = [
        [f"{cell.prefix}{cell.text}" if isinstance(cell, StyledCell) else cell for cell in row] for row in STYLED
    ]
    styled = render_table(STYLED, columns=columns, has_headings=True)
    assert [click.unstyle(line) for line in styled] == render_table(plain, columns=columns)


def test_only_the_text_of_a_cell_is_painted():
    assert render_table([[StyledCell("a", "red", prefix="└ "), "x"], ["longer", "y"]]) == [
        "└ \x1b[31ma\x1b[0m     x",
        "longer  y",
    ]


def test_last_cell_that_wraps_continues_below_itself():
    rows: list[list[Cell]] = [["explorer", StyledCell("Finds where something is, with evidence.", "green")]]
    assert [click.unstyle(line) for line in render_table(rows, columns=26, lines=9)] == [
        "explorer  Finds where",
        "          something is,",
        "          with evidence.",
    ]


def test_last_cell_is_cut_to_its_lines():
    rows: list[list[Cell]] = [["explorer", "Finds where something is, with evidence."]]
    assert render_table(rows, columns=26, lines=2) == ["explorer  Finds where", "          something is, w…"]


def test_control_characters_of_a_styled_cell_are_removed():
    assert render_table([[StyledCell("a\x1b[2Jb\n", "red"), ""]]) == ["\x1b[31mab\x1b[0m"]


@pytest.mark.parametrize(
    ("environ", "is_colored"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
@pytest.mark.parametrize("command", ["agents", "models", "doctor"])
def test_lists_have_colors_only_where_they_are_wanted(cli, command, environ, is_colored):
    assert ("\x1b[" in cli(command, **{"NO_COLOR": "", "FORCE_COLOR": "", **environ}).stdout) is is_colored


@pytest.mark.parametrize("columns", ["80", "120"])
def test_descriptions_of_agents_are_not_cut(cli, columns):
    shown = " ".join(cli("agents", COLUMNS=columns).stdout.split())
    assert "…" not in shown
    assert "with path:line evidence. Reads only." in shown
