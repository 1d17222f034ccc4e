"""The run browser: keys, selection, pager and cancelling."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.event_story import START, EventStory

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import RunEnded, Text
from retinue.tui.browser import BrowserCommand, BrowserState, apply_key, open_transcript, render_browser
from retinue.tui.keys import KeyName
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
        "↑↓ Tab choose • Enter expand • c cancel • t transcript • q…",
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
    assert browser.lines[-1] == "Cancel one (one)? y, or any other key"
    assert browser.press("n") is None
    assert browser.press("y") is None
    assert browser.press("c", "y") == BrowserCommand("cancel", "one")
    browser.events.add("one", RunEnded())
    assert browser.press("c", "y") is None


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


def test_empty_browser_shows_a_message_and_accepts_only_quit(events):
    browser = BrowserDriver(events)
    assert browser.lines[0] == "Nothing is running. What begins now is shown; q leaves."
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
    st.lists(st.sampled_from([*KeyName, *"qctyjk x"]), max_size=12),
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
