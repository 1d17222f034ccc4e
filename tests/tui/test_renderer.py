"""Pictures on a terminal: what is on its screen after what was written, whatever happened before."""

from __future__ import annotations

from threading import Event, Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.terminal_emulator import TerminalEmulator

from retinue.tui.renderer import (
    COLOR_STYLES,
    FullScreenRenderer,
    InlineRenderer,
    StyledSpan,
    fit_line,
    render_ansi,
    select_styles,
    terminal_size,
)


def lines(*texts, columns=80):
    return [fit_line((StyledSpan(text, "muted"),), columns) for text in texts]


def rolling(columns=20, rows=6):
    terminal = TerminalEmulator(columns, rows)
    return terminal, InlineRenderer(terminal, COLOR_STYLES)


def test_a_picture_takes_the_place_of_the_last_one():
    terminal, picture = rolling()
    terminal.write("$ retinue run\r\n")
    picture.show(lines("one", "two", "three"), terminal.size)
    picture.show(lines("one", "2"), terminal.size)
    assert terminal.screen() == "$ retinue run\none\n2"
    picture.end()
    terminal.write("done")
    assert terminal.screen() == "$ retinue run\none\n2\ndone"


def test_what_is_said_meanwhile_stays_above_the_picture():
    terminal, picture = rolling()
    picture.show(lines("one", "two"), terminal.size)
    picture.show(lines("one", "2"), terminal.size, messages=["a word", "a sentence longer than a line"])
    assert terminal.screen() == "a word\na sentence longer th\nan a line\none\n2"


def test_only_lines_that_differ_are_written():
    terminal, picture = rolling(80, 24)
    picture.show(lines(*(f"line {number} {'x' * 60}" for number in range(20))), terminal.size)
    before = terminal.written
    picture.show(lines(*(f"line {number} {'x' * 60}" for number in range(19)), "new"), terminal.size)
    assert terminal.written - before < 120


def test_the_cursor_is_hidden_while_there_is_a_picture_and_shown_at_the_end():
    for picture_of in (InlineRenderer, FullScreenRenderer):
        terminal = TerminalEmulator()
        picture = picture_of(terminal, COLOR_STYLES)
        terminal.modes.add("25")
        picture.show(lines("one"), terminal.size)
        assert "25" not in terminal.modes
        picture.end()
        assert "25" in terminal.modes


def test_a_full_line_loses_no_character():
    terminal, picture = rolling(5, 4)
    for text in ("abcde", "ABCDE"):
        picture.show(lines(text, text, columns=5), terminal.size)
        assert terminal.screen() == f"{text}\n{text}"


@pytest.mark.parametrize("size", [(10, 6), (40, 6), (20, 3), (13, 12)])
def test_a_picture_survives_that_the_terminal_changes_its_size(size):
    terminal, picture = rolling(20, 6)
    terminal.write("$ before\r\n")
    picture.show(lines("a" * 20, "b" * 15, "c"), terminal.size)
    terminal.resize(*size)
    new = lines("A" * 8, "B", columns=size[0])
    picture.show(new, terminal.size)
    assert terminal.screen().split("\n")[-2:] == ["A" * 8, "B"]
    assert not any(letter in terminal.screen() for letter in "bc") or "before" in terminal.screen()
    assert "aaaa" not in terminal.screen()


def test_a_screen_of_its_own_is_given_back():
    terminal = TerminalEmulator(20, 4)
    screen = FullScreenRenderer(terminal, COLOR_STYLES)
    screen.show(lines("one", "two", "three"), terminal.size)
    assert "1049" in terminal.modes
    screen.show(lines("one", "2"), terminal.size)
    assert terminal.screen() == "one\n2"
    terminal.resize(10, 3)
    screen.show(lines("1", "2", "3", "4"), terminal.size)
    assert terminal.screen() == "1\n2\n3"
    screen.end()
    assert "1049" not in terminal.modes


def test_colors_are_left_out_where_nobody_wants_them():
    line = (StyledSpan("name", "name"), StyledSpan(" facts", "muted"), StyledSpan("!"))
    assert render_ansi(line, select_styles({})) == "\x1b[1mname\x1b[0m\x1b[90m facts\x1b[0m!"
    assert render_ansi(line, select_styles({"NO_COLOR": ""})) == "\x1b[1mname\x1b[0m facts!"


def test_where_a_terminal_does_not_say_its_size_the_environment_does():
    assert terminal_size(TerminalEmulator(), {"COLUMNS": "60", "LINES": "x"}) == (60, 24)
    assert terminal_size(TerminalEmulator(), {}) == (80, 24)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(st.text(alphabet="ab日\u0301🎉 ", max_size=12), max_size=5), min_size=1, max_size=6),
    st.integers(4, 12),
)
def test_whatever_came_before_the_last_picture_is_what_one_sees(pictures, columns):
    terminal, picture = rolling(columns, 8)
    for texts in pictures:
        picture.show([fit_line((StyledSpan(text),), columns) for text in texts], terminal.size)
    fresh, only = rolling(columns, 8)
    only.show([fit_line((StyledSpan(text),), columns) for text in pictures[-1]], fresh.size)
    assert terminal.screen() == fresh.screen()


class Slow(TerminalEmulator):
    """A terminal that takes its time until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written_to, self.goes_on = Event(), Event()

    def write(self, text: str) -> int:
        self.is_written_to.set()
        self.goes_on.wait(20)
        return super().write(text)


@pytest.mark.parametrize("kind", [InlineRenderer, FullScreenRenderer])
def test_an_end_that_comes_while_the_first_picture_is_drawn_gives_the_terminal_back(kind):
    terminal = Slow()
    before = set(terminal.modes)
    picture = kind(terminal, COLOR_STYLES)
    drawing = Thread(target=picture.show, args=(lines("one"), terminal.size))
    drawing.start()
    terminal.is_written_to.wait(20)
    ending = Thread(target=picture.end)
    ending.start()
    terminal.goes_on.set()
    for thread in (drawing, ending):
        thread.join(20)
    assert terminal.modes == before
