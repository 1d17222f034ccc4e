"""The run browser: keys, selection, pager and cancelling."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.event_story import START, EventStory

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import RunEnded, Text
from retinue.tui.browser import BrowserCommand, BrowserState, apply_key, fold_output, open_transcript, render_browser
from retinue.tui.keys import KeyName, PastedText
from retinue.tui.layout import ScreenSize
from retinue.tui.renderer import plain_text
from retinue.tui.widths import text_width

SCREEN = ScreenSize(width=60, height=10)


class BrowserDriver:
    """Presses keys in the browser and reads its frame."""

    def __init__(self, events: EventStory, screen: ScreenSize = SCREEN) -> None:
        self.events, self.screen, self.state = events, screen, BrowserState()

    def press(self, *keys: str) -> BrowserCommand | None:
        command = None
        for key in keys:
            self.state, command = apply_key(self.state, key, self.events.progress(), self.screen)
        return command

    @property
    def lines(self) -> list[str]:
        return [plain_text(line) for line in render_browser(self.state, self.events.progress(), self.screen, START)]


@pytest.fixture
def browser(events):
    for run in ("one", "two", "three"):
        events.start(run)
        events.add(run, *(Text(f"{run} says {number}") for number in range(40)))
    return BrowserDriver(events)


def test_browser_lists_all_runs_with_one_selected_and_the_keys(browser):
    assert browser.lines == [
        "Sub-agents: 3 running • 0s",
        "› ⠋ one: look • 0 tools • 0s / 10m • one00000",
        "    one says 38",
        "    one says 39",
        "  ⠋ two: look • 0 tools • 0s / 10m • two00000",
        "    two says 38",
        "    two says 39",
        "  ⠋ three: look • 0 tools • 0s / 10m • three000",
        "    three says 39",
        "↑↓ select  Enter open  s steer  e extend  ? keys  q quit",
    ]


@pytest.mark.parametrize(
    ("keys", "run"),
    [
        ([KeyName.TAB], "two"),
        ([KeyName.DOWN, KeyName.DOWN], "three"),
        ([KeyName.TAB, KeyName.TAB, KeyName.TAB], "one"),
        ([KeyName.BACK_TAB], "three"),
        ([KeyName.UP], "one"),
        ([KeyName.END, KeyName.UP], "two"),
        ([KeyName.PAGE_DOWN, "x", KeyName.HOME], "one"),
    ],
)
def test_navigation_keys_select_another_run(browser, keys, run):
    browser.press(*keys)
    assert any(line.startswith(f"› ⠋ {run}") for line in browser.lines)


@pytest.mark.parametrize("key", [KeyName.ENTER, KeyName.EXPAND])
def test_selected_run_can_be_shown_alone_and_live(browser, key):
    browser.press(KeyName.TAB, key)
    assert browser.lines[:3] == [
        "Sub-agents: 3 running • 0s",
        "⠋ two: look • 0 tools • 0s / 10m • two00000",
        "  two says 33",
    ]
    browser.events.add("two", Text("new"))
    assert browser.lines[8] == "  new"
    browser.press(key)
    assert browser.lines[4].startswith("› ⠋ two")


def test_log_of_a_run_can_be_scrolled_and_is_live_again_at_its_end(browser):
    browser.press(KeyName.ENTER, KeyName.UP)
    assert browser.lines[0] == "All of one (one00000) • 39/40"
    assert browser.lines[1:9] == [f"  one says {number}" for number in range(31, 39)]
    browser.events.add("one", Text("new"))
    assert "  new" not in browser.lines
    browser.press(KeyName.HOME)
    assert browser.lines[1] == "  one says 0"
    browser.press(KeyName.PAGE_DOWN)
    assert browser.lines[1] == "  one says 8"
    browser.press(KeyName.END)
    assert browser.lines[8] == "  new"


def test_run_is_cancelled_only_after_confirmation(browser):
    assert browser.press("c") is None
    assert browser.lines[-1] == "Cancel one (one00000)? y, or any other key"
    assert browser.press("n") is None
    assert browser.press("y") is None
    assert browser.press("c", "y") == BrowserCommand("cancel", "one")
    browser.events.add("one", RunEnded())
    assert browser.press("c", "y") is None
    assert browser.press("c") == BrowserCommand("report", "one", "one (one00000) has ended.")


@pytest.mark.parametrize(
    ("key", "action", "label"),
    [("s", "steer", "Message to one (one00000):"), ("e", "extend", "Extend one (one00000) by (90, 15m, 2h):")],
)
def test_line_typed_for_a_run_is_sent_with_enter_and_dropped_with_escape(browser, key, action, label):
    assert browser.press(key, *"no, 5mx", KeyName.BACKSPACE) is None
    assert browser.lines[-1] == f"{label} no, 5m "
    assert browser.press(KeyName.DELETE_WORD, "q", KeyName.CLEAR_LINE, *"5m") is None
    assert browser.press(KeyName.ENTER) == BrowserCommand(action, "one", "5m")
    assert browser.press(key, "x", KeyName.ESCAPE, KeyName.ENTER) is None
    assert browser.press(KeyName.ENTER, key, " ", KeyName.ENTER) is None


def test_pasted_text_is_typed_in_one_line_and_never_a_command(browser):
    assert browser.press(PastedText("q"), PastedText("c"), PastedText("y")) is None
    browser.press("s", PastedText("first\nsecond\x1b[2J"), PastedText("escape"))
    assert browser.press(KeyName.ENTER) == BrowserCommand("steer", "one", "first secondescape")


def test_end_of_a_long_input_is_visible(browser):
    browser.press("s", *("word " * 30), *"end")
    assert browser.lines[-1].endswith("word word end ")
    assert browser.lines[-1].startswith("Message to one (one00000): ")


def test_filter_lists_matching_runs_while_it_is_typed(browser):
    browser.press("/", *"TW")
    assert [line for line in browser.lines if "0s / 10m" in line] == ["› ⠋ two: look • 0 tools • 0s / 10m • two00000"]
    browser.press(KeyName.ENTER)
    assert browser.lines[-1] == "Filter “TW”: 1 of 3 runs  Esc all runs  ? keys  q quit"
    assert browser.press("t") == BrowserCommand("read", "two")
    browser.press("/", KeyName.CLEAR_LINE, *"none", KeyName.ENTER)
    assert [line for line in browser.lines if "0s / 10m" in line] == []
    assert browser.press("s", "c", "t", KeyName.DOWN, KeyName.ENTER) is None
    browser.press(KeyName.ESCAPE)
    assert len([line for line in browser.lines if "0s / 10m" in line]) == 3


def test_question_mark_lists_the_keys_and_wraps_what_they_do(browser):
    browser.press("?")
    assert browser.lines[0] == "Keys • 8/17"
    assert browser.lines[2:4] == [
        "  Tab, Shift+Tab      select the next or previous run, from",
        "                      the last to the first",
    ]
    browser.press(KeyName.ESCAPE)
    assert browser.lines[0] == "Sub-agents: 3 running • 0s"


def test_transcript_is_scrolled_in_a_pager_and_closed(browser):
    assert browser.press("t") == BrowserCommand("read", "one")
    view = browser.events.progress().runs["one"]
    browser.state = BrowserState(
        selected="one", pager=open_transcript(view, [f"line {n}" for n in range(30)] + ["x" * 90], 60)
    )
    assert browser.lines[0] == "Transcript of one (one00000) • 32/32"
    assert browser.lines[7:9] == ["x" * 60, "x" * 30]
    browser.press(KeyName.HOME)
    assert browser.lines[1] == "line 0"
    assert browser.press("q") is None
    assert browser.lines[0] == "Sub-agents: 3 running • 0s"
    assert browser.press("q") == BrowserCommand("quit")


def test_long_output_of_a_tool_is_folded_in_a_transcript():
    output = "\n".join(f"x={number}" for number in range(40))
    assert fold_output(output).split("\n") == [*(f"x={number}" for number in range(8)), "… 32 more lines"]
    nine = output[: output.index("\nx=9")]
    assert fold_output(nine) == nine


def test_empty_browser_shows_a_message_and_accepts_only_quit(events):
    browser = BrowserDriver(events)
    assert browser.lines[0] == "Nothing is running. New runs appear here; q quits."
    assert browser.press("c", "t", KeyName.ENTER, KeyName.UP, KeyName.TAB) is None
    assert browser.press("q") == BrowserCommand("quit")


def test_single_run_shows_its_failure_and_session(events):
    events.start("one")
    events.add("one", RunEnded(failure=Failure(ErrorCode.TIMEOUT, "Timed out after 5s."), elapsed=5.0))
    browser = BrowserDriver(events)
    browser.press(KeyName.ENTER)
    assert browser.lines[1:5] == [
        "✗ one: look • 0 tools • timed out • 5.0s • one00000",
        "  (no output)",
        "  Timed out after 5s.",
        "Session: one00000",
    ]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([*KeyName, *"qctyjk xse/?", PastedText("a\nb\x1b")]), max_size=12),
    st.integers(1, 40),
    st.integers(1, 12),
    st.text(max_size=200),
)
def test_browser_frame_fits_the_screen_without_control_characters_for_any_keys(keys, columns, rows, text):
    events = EventStory()
    for run in "abc":
        events.start(run, name=f"{run}\x1b[2J")
        events.add(run, Text(text), Text("\x1b]0;x\x07wide 日本語 e\u0301"))
    browser = BrowserDriver(events, ScreenSize(width=columns, height=rows))
    browser.press(*keys)
    assert len(browser.lines) == rows
    assert all(text_width(line) <= columns for line in browser.lines)
    assert not any(unicodedata.category(character) == "Cc" for line in browser.lines for character in line)
