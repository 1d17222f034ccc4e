"""Answers that are printed while they are written: printed once, whole, and sanitized like the stored text."""

from __future__ import annotations

import io
import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.event_story import EventStory
from tests.support.terminal_emulator import TerminalEmulator

from retinue.model.events import (
    CONTINUED_NOTICE_CODE,
    AttemptStarted,
    MessageEnded,
    Notice,
    RunEnded,
    Text,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import AnswerStatus
from retinue.output.untrusted_text import strip_control_characters
from retinue.tui.answer_stream import NOT_THE_ANSWER, AnswerPrinter, AnswerStream
from retinue.tui.event_view import LinesView
from retinue.tui.live_view import LiveView

STOP = MessageEnded(stop_reason="stop")
TOOL_USE = MessageEnded(stop_reason="tool_use")
LOOKING = (
    TextDelta("I look "),
    Text("I look first."),
    ToolCalled("1", "ls", {}),
    TOOL_USE,
    ToolReturned("1", "ls", "app.py"),
)
RETRY = AttemptStarted(number=2, reason="retry")


def final(text: str) -> RunEnded:
    return RunEnded(text=text, answer=AnswerStatus.FINAL)


def list_records(*events):
    story = EventStory()
    story.start("explorer")
    story.add("explorer", *events)
    return story.records


def print_events(*events, whole_lines=False):
    """Return what is printed if every event is followed by a draw."""
    stream, answer = io.StringIO(), AnswerStream()
    view = LinesView(None, answer=AnswerPrinter(stream, answer, whole_lines=whole_lines))
    for record in list_records(*events):
        view.add_event(record)
        view.draw()
    return stream.getvalue()


ANSWERS = [
    pytest.param([TextDelta("Found "), TextDelta("it."), Text("Found it."), STOP, final("Found it.")], id="streamed"),
    pytest.param([Text("Found it."), STOP, final("Found it.")], id="not-streamed"),
    pytest.param([final("Found it.")], id="only-the-end"),
    pytest.param([TextDelta("Found it."), final("Found it.")], id="without-a-whole-block"),
]


@pytest.mark.parametrize("events", ANSWERS)
@pytest.mark.parametrize("whole_lines", [True, False])
def test_answer_is_printed_once(events, whole_lines):
    assert print_events(*events, whole_lines=whole_lines) == "Found it.\n"


def test_words_are_printed_when_they_are_complete():
    assert print_events(TextDelta("It is in app.p")) == "It is in "
    assert print_events(TextDelta("One\nline in app.p"), whole_lines=True) == "One\n"


def test_blocks_of_a_message_are_lines_of_one_answer():
    events = [TextDelta("One"), Text("One"), Text("  "), TextDelta("Two"), Text("Two"), STOP, final("One\nTwo")]
    assert print_events(*events) == "One\nTwo\n"


def test_text_before_a_tool_call_is_separated_from_the_answer():
    assert print_events(*LOOKING, Text("Found."), STOP, final("Found.")) == "I look first.\n\nFound.\n"


def test_text_that_is_replaced_between_two_draws_is_printed_to_its_end():
    stream, answer = io.StringIO(), AnswerStream()
    view = LinesView(None, answer=AnswerPrinter(stream, answer, whole_lines=False))
    for record in list_records(
        *LOOKING, TextDelta("Found it. "), Text("Found it. All."), STOP, final("Found it. All.")
    ):
        view.add_event(record)
        if isinstance(record.event, TextDelta):
            view.draw()
    view.close()
    assert stream.getvalue() == "I look first.\n\nFound it. All.\n"


def test_text_before_a_tool_call_is_the_answer_if_nothing_follows():
    assert print_events(*LOOKING, final("I look first.")) == "I look first.\n"


@pytest.mark.parametrize(
    "events",
    [
        [TextDelta("Half of "), RETRY, TextDelta("All of it"), final("All of it.")],
        [Text("Half of"), STOP, final("All of it.")],
        [TextDelta("Half of it"), Text("All of it."), STOP, final("All of it.")],
    ],
    ids=["retried", "finalized", "changed"],
)
def test_text_that_is_not_the_answer_is_marked_and_the_answer_printed_whole(events):
    printed = print_events(*events)
    before, after = printed.split(f"\n\n{NOT_THE_ANSWER}\n\n")
    assert before.startswith("Half of")
    assert after == "All of it.\n"


def test_answer_of_two_messages_is_printed_as_one():
    cut = [Text("One, "), MessageEnded(stop_reason="length"), Notice(CONTINUED_NOTICE_CODE, "goes on")]
    assert print_events(*cut, TextDelta("two."), Text("two."), STOP, final("One, two.")) == "One, two.\n"


def test_answers_of_child_runs_are_not_printed():
    stream, answer, story = io.StringIO(), AnswerStream(), EventStory()
    story.start("parent")
    story.start("child", parent="parent", depth=2)
    story.add("child", Text("of the child"), STOP, final("of the child"), parent="parent", depth=2)
    story.add("parent", Text("of the parent"), STOP, final("of the parent"))
    printer = AnswerPrinter(stream, answer, whole_lines=False)
    for record in story.records:
        printer.observe(record)
        printer.print_pending()
    assert stream.getvalue() == "of the parent\n"


HOSTILE = st.text(alphabet="a b\n\r\t\x1b[2J;\x07\u200d\ufe0f\U0001f469\U0001f466\u202e\ufeff]", max_size=60)


@example(text="\n\x1b", cuts=[], whole_lines=False)
@given(HOSTILE, st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_streamed_text_is_sanitized_as_the_whole_text(text: str, cuts: list[int], whole_lines: bool) -> None:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    deltas = [TextDelta(text[start:end]) for start, end in itertools.pairwise(places)]
    if text.strip():
        printed = print_events(*deltas, Text(text), STOP, final(text), whole_lines=whole_lines)
        assert printed.removesuffix("\n") == strip_control_characters(text).removesuffix("\n")


# -- beside the windows of a live view -----------------------------------------------------------------------


class FakeTerminal(TerminalEmulator):
    """A terminal of 40 columns and 14 rows that keeps what scrolls off."""

    def __init__(self):
        super().__init__(40, 14)
        self.scrolled = []

    def isatty(self):
        return True

    def fileno(self):
        raise OSError

    def flush(self):
        pass

    def _down(self):
        if self.row == self.rows - 1:
            self.scrolled.append("".join(self.cells[0]).rstrip())
        super()._down()

    def text(self):
        return "\n".join([*self.scrolled, *self.screen().split("\n")]).rstrip()


@pytest.fixture
def draw(monkeypatch):
    """Return a function that draws events and returns the whole text of the terminal."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "14")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*events, close=False):
        terminal = FakeTerminal()
        view = LiveView(terminal, 5, answer=AnswerStream())
        for record in list_records(*events):
            view.add_event(record)
            view.draw()
        if close:
            view.close()
        return terminal.text()

    return run


def test_answer_is_drawn_above_the_windows_while_it_is_written(draw):
    shown = draw(TextDelta("It is\n  in app.p"))
    assert shown.startswith("It is\n  in app.p\n\nSub-agents: 1 running •")


def test_text_before_a_tool_call_moves_from_the_answer_into_its_window(draw):
    assert draw(*LOOKING[:2]).startswith("I look first.\n\nSub-agents")
    shown = draw(*LOOKING)
    assert shown.startswith("Sub-agents")
    assert shown.count("I look first.") == 1


def test_long_answer_is_on_the_terminal_once_and_in_order(draw):
    text = "\n".join(f"line {number}" for number in range(40))
    deltas = [TextDelta(f"{line}\n") for line in text.split("\n")]
    shown = draw(*LOOKING, *deltas, Text(text), STOP, final(text), close=True)
    assert shown.startswith(f"{text}\n\nSub-agents: 1 done • 0.0s\n")
    assert shown.count("line 7\n") == 1


def test_failed_attempt_leaves_the_terminal_if_it_fits(draw):
    shown = draw(TextDelta("Half of"), RETRY, Text("All."), STOP, final("All."), close=True)
    assert shown.startswith("All.\n\nSub-agents: 1 done • 0.0s\n")
    assert "Half" not in shown


def test_printed_lines_of_a_failed_attempt_are_marked(draw):
    half = TextDelta("".join(f"half {number}\n" for number in range(20)))
    shown = draw(half, RETRY, Text("All."), STOP, final("All."), close=True)
    assert f"\n\n{NOT_THE_ANSWER}\n\nAll.\n\nSub-agents: 1 done • 0.0s\n" in shown


def test_prose_is_wrapped_between_words_and_code_and_tables_are_left_as_written(draw):
    prose = "- one item of a list with so many words that they need two rows"
    code = "    indented code with so many words that it needs two rows"
    fenced = "print('a line of code with so many words that it needs two rows')"
    table = "| a cell with so many words | that it needs two rows |"
    text = f"{prose}\n{code}\n```\n{fenced}\n```\n{table}\n" + "last line\n" * 12
    shown = draw(*(TextDelta(f"{line}\n") for line in text.split("\n")), Text(text), STOP, final(text), close=True)
    assert shown.split("\n")[:10] == [
        "- one item of a list with so many words",
        "that they need two rows",
        *(code[:40], code[40:]),
        "```",
        *(fenced[:40], fenced[40:]),
        "```",
        *(table[:40], table[40:]),
    ]
