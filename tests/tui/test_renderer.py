"""Renderers: the content of a terminal's screen after frames were drawn."""

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


def make_inline(columns=20, rows=6):
    terminal = TerminalEmulator(columns, rows)
    return terminal, InlineRenderer(terminal, COLOR_STYLES)


def test_frame_replaces_the_last_frame():
    terminal, renderer = make_inline()
    terminal.write("$ retinue run\r\n")
    renderer.show(lines("one", "two", "three"), terminal.size)
    renderer.show(lines("one", "2"), terminal.size)
    assert terminal.screen() == "$ retinue run\none\n2"
    renderer.end()
    terminal.write("done")
    assert terminal.screen() == "$ retinue run\none\n2\ndone"


def test_messages_stay_above_the_frame():
    terminal, renderer = make_inline()
    renderer.show(lines("one", "two"), terminal.size)
    renderer.show(lines("one", "2"), terminal.size, messages=["a message", "a sentence longer than a line"])
    assert terminal.screen() == "a message\na sentence longer th\nan a line\none\n2"


class HistoryTerminal(TerminalEmulator):
    """A terminal with a history; as in tmux, a screen that is erased from its top left corner goes there, too."""

    def __init__(self, columns, rows):
        super().__init__(columns, rows)
        self.history = []

    def _down(self):
        if self.row == self.rows - 1:
            self.history.append("".join(self.cells[0]))
        super()._down()

    def _execute(self, number, command):
        if (self.row, self.column, number, command) == (0, 0, "", "J"):
            self.history += ["".join(row) for row in self.cells if row]
        super()._execute(number, command)


def test_messages_leave_no_copy_of_a_frame_of_the_whole_screen_in_the_history():
    terminal = HistoryTerminal(20, 4)
    renderer = InlineRenderer(terminal, COLOR_STYLES)
    for number in range(4):
        renderer.show(lines("one", "two", "three"), terminal.size, messages=[f"message {number}"])
    assert terminal.screen() == "one\ntwo\nthree"
    assert terminal.history == ["message 0", "message 1", "message 2", "message 3"]


def test_only_changed_lines_are_written():
    terminal, renderer = make_inline(80, 24)
    renderer.show(lines(*(f"line {number} {'x' * 60}" for number in range(20))), terminal.size)
    before = terminal.written
    renderer.show(lines(*(f"line {number} {'x' * 60}" for number in range(19)), "new"), terminal.size)
    assert terminal.written - before < 120


def test_cursor_is_hidden_while_drawing_and_visible_after_the_end():
    for renderer_class in (InlineRenderer, FullScreenRenderer):
        terminal = TerminalEmulator()
        renderer = renderer_class(terminal, COLOR_STYLES)
        terminal.modes.add("25")
        renderer.show(lines("one"), terminal.size)
        assert "25" not in terminal.modes
        renderer.end()
        assert "25" in terminal.modes


def test_full_line_loses_no_character():
    terminal, renderer = make_inline(5, 4)
    for text in ("abcde", "ABCDE"):
        renderer.show(lines(text, text, columns=5), terminal.size)
        assert terminal.screen() == f"{text}\n{text}"


@pytest.mark.parametrize("size", [(10, 6), (40, 6), (20, 3), (13, 12)])
def test_frame_is_drawn_correctly_after_a_resize(size):
    terminal, renderer = make_inline(20, 6)
    terminal.write("$ before\r\n")
    renderer.show(lines("a" * 20, "b" * 15, "c"), terminal.size)
    terminal.resize(*size)
    new = lines("A" * 8, "B", columns=size[0])
    renderer.show(new, terminal.size)
    assert terminal.screen().split("\n")[-2:] == ["A" * 8, "B"]
    assert not any(letter in terminal.screen() for letter in "bc") or "before" in terminal.screen()
    assert "aaaa" not in terminal.screen()


def test_full_screen_renderer_leaves_the_alternate_screen():
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


def test_no_color_leaves_out_colors():
    line = (StyledSpan("name", "name"), StyledSpan(" facts", "muted"), StyledSpan("!"))
    for environ in ({}, {"NO_COLOR": ""}):
        assert render_ansi(line, select_styles(environ)) == "\x1b[1mname\x1b[0m\x1b[90m facts\x1b[0m!"
    assert render_ansi(line, select_styles({"NO_COLOR": "1"})) == "\x1b[1mname\x1b[0m facts!"


def test_terminal_size_falls_back_to_the_environment():
    assert terminal_size(TerminalEmulator(), {"COLUMNS": "60", "LINES": "x"}) == (60, 24)
    assert terminal_size(TerminalEmulator(), {}) == (80, 24)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(st.text(alphabet="ab日\u0301🎉 ", max_size=12), max_size=5), min_size=1, max_size=6),
    st.integers(4, 12),
)
def test_screen_shows_only_the_last_frame(frames, columns):
    terminal, renderer = make_inline(columns, 8)
    for texts in frames:
        renderer.show([fit_line((StyledSpan(text),), columns) for text in texts], terminal.size)
    fresh, only = make_inline(columns, 8)
    only.show([fit_line((StyledSpan(text),), columns) for text in frames[-1]], fresh.size)
    assert terminal.screen() == fresh.screen()


class SlowTerminal(TerminalEmulator):
    """A terminal whose writes wait for an event."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written_to, self.may_continue = Event(), Event()

    def write(self, text: str) -> int:
        self.is_written_to.set()
        self.may_continue.wait(20)
        return super().write(text)


@pytest.mark.parametrize("kind", [InlineRenderer, FullScreenRenderer])
def test_end_during_the_first_frame_restores_the_terminal(kind):
    terminal = SlowTerminal()
    before = set(terminal.modes)
    renderer = kind(terminal, COLOR_STYLES)
    drawing = Thread(target=renderer.show, args=(lines("one"), terminal.size))
    drawing.start()
    terminal.is_written_to.wait(20)
    ending = Thread(target=renderer.end)
    ending.start()
    terminal.may_continue.set()
    for thread in (drawing, ending):
        thread.join(20)
    assert terminal.modes == before
