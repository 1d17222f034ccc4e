"""What someone looks at among runs, key by key."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.event_story import START, Story

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import RunEnded, Text
from retinue.tui.browser import BrowserCommand, BrowserState, apply_key, open_transcript, render_browser
from retinue.tui.keys import KeyName
from retinue.tui.layout import ScreenSize
from retinue.tui.renderer import plain_text
from retinue.tui.widths import text_width

SCREEN = ScreenSize(width=60, height=10)


class Seat:
    """Someone in front of a screen."""

    def __init__(self, story: Story, screen: ScreenSize = SCREEN) -> None:
        self.story, self.screen, self.look = story, screen, BrowserState()

    def press(self, *keys: str) -> BrowserCommand | None:
        wish = None
        for key in keys:
            self.look, wish = apply_key(self.look, key, self.story.progress(), self.screen)
        return wish

    @property
    def sees(self) -> list[str]:
        return [plain_text(line) for line in render_browser(self.look, self.story.progress(), self.screen, START)]


@pytest.fixture
def seat(story):
    for run in ("one", "two", "three"):
        story.begins(run)
        story.happens(run, *(Text(f"{run} says {number}") for number in range(40)))
    return Seat(story)


def test_all_runs_are_shown_with_one_chosen_and_the_keys_there_are(seat):
    assert seat.sees == [
        "Sub-agents: 3 running",
        "› ⠋ one • one00000 • 0 tools • 0s/600s",
        "    one says 38",
        "    one says 39",
        "  ⠋ two • two00000 • 0 tools • 0s/600s",
        "    two says 38",
        "    two says 39",
        "  ⠋ three • three000 • 0 tools • 0s/600s",
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
def test_keys_choose_another_run(seat, keys, run):
    seat.press(*keys)
    assert any(line.startswith(f"› ⠋ {run}") for line in seat.sees)


@pytest.mark.parametrize("key", [KeyName.ENTER, KeyName.EXPAND])
def test_the_chosen_run_is_shown_alone_and_follows_what_it_does(seat, key):
    seat.press(KeyName.TAB, key)
    assert seat.sees[:3] == ["Sub-agents: 3 running", "⠋ two • two00000 • 0 tools • 0s/600s", "  two says 33"]
    seat.story.happens("two", Text("new"))
    assert seat.sees[8] == "  new"
    seat.press(key)
    assert seat.sees[4].startswith("› ⠋ two")


def test_all_of_a_run_can_be_scrolled_through_and_its_end_goes_on(seat):
    seat.press(KeyName.ENTER, KeyName.UP)
    assert seat.sees[0] == "All of one (one00000) • 39/40"
    assert seat.sees[1:9] == [f"  one says {number}" for number in range(31, 39)]
    seat.story.happens("one", Text("new"))
    assert "  new" not in seat.sees
    seat.press(KeyName.HOME)
    assert seat.sees[1] == "  one says 0"
    seat.press(KeyName.PAGE_DOWN)
    assert seat.sees[1] == "  one says 8"
    seat.press(KeyName.END)
    assert seat.sees[8] == "  new"


def test_a_run_is_cancelled_only_after_a_yes(seat):
    assert seat.press("c") is None
    assert seat.sees[-1] == "Cancel one (one)? y, or any other key"
    assert seat.press("n") is None
    assert seat.press("y") is None
    assert seat.press("c", "y") == BrowserCommand("cancel", "one")
    seat.story.happens("one", RunEnded())
    assert seat.press("c", "y") is None


def test_a_transcript_is_read_like_a_page_and_left(seat):
    assert seat.press("t") == BrowserCommand("read", "one")
    view = seat.story.progress().runs["one"]
    seat.look = BrowserState(
        selected="one", pager=open_transcript(view, [f"line {n}" for n in range(30)] + ["x" * 90], 60)
    )
    assert seat.sees[0] == "Transcript of one (one00000) • 32/32"
    assert seat.sees[7:9] == ["x" * 60, "x" * 30]
    seat.press(KeyName.HOME)
    assert seat.sees[1] == "line 0"
    assert seat.press("q") is None
    assert seat.sees[0] == "Sub-agents: 3 running"
    assert seat.press("q") == BrowserCommand("quit")


def test_where_nothing_runs_it_says_so_and_every_key_but_one_does_nothing(story):
    seat = Seat(story)
    assert seat.sees[0] == "Nothing is running. What begins now is shown; q leaves."
    assert seat.press("c", "t", KeyName.ENTER, KeyName.UP, KeyName.TAB) is None
    assert seat.press("q") == BrowserCommand("quit")


def test_a_run_alone_shows_why_it_failed_and_where_its_session_is(story):
    story.begins("one")
    story.happens("one", RunEnded(failure=Failure(ErrorCode.TIMEOUT, "Timed out after 5s."), elapsed=5.0))
    seat = Seat(story)
    seat.press(KeyName.ENTER)
    assert seat.sees[1:5] == [
        "✗ one • one00000 • 0 tools • 5s/600s",
        "  (no output)",
        "  Timed out after 5s.",
        "Session: one0000000000000",
    ]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([*KeyName, *"qctyjk x"]), max_size=12),
    st.integers(1, 40),
    st.integers(1, 12),
    st.text(max_size=200),
)
def test_no_keys_make_a_picture_larger_than_its_screen_or_let_text_out(keys, columns, rows, said):
    story = Story()
    for run in "abc":
        story.begins(run, name=f"{run}\x1b[2J")
        story.happens(run, Text(said), Text("\x1b]0;x\x07wide 日本語 e\u0301"))
    seat = Seat(story, ScreenSize(width=columns, height=rows))
    seat.press(*keys)
    assert len(seat.sees) == rows
    assert all(text_width(line) <= columns for line in seat.sees)
    assert not any(unicodedata.category(character) == "Cc" for line in seat.sees for character in line)
