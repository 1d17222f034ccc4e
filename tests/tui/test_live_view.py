"""Views kept up to date: at their own pace, whatever they or their readers do."""

from __future__ import annotations

import io
import threading
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from tests.support.retinue_factory import VIRTUAL_TIME

from retinue.model.events import Notice, RunEnded, Text, ToolCalled
from retinue.runtime.event_bus import MAX_QUEUED_EVENTS, EventBus
from retinue.tui.event_lines import EventLineFormatter
from retinue.tui.live_view import EngineNote, LinesView, LiveView, is_screen, run_view, storage_losses

PATIENCE = 20.0
"""Seconds something may take at the very most."""
ABOUT = {"offline": "rules, not a language model"}


class Terminal(io.StringIO):
    """A stream that says it is a screen."""

    def isatty(self):
        return True


@asynccontextmanager
async def shown(view):
    """A bus that the view watches for the block."""
    bus = EventBus()
    async with bus.subscribe() as watcher, anyio.create_task_group() as group:
        group.start_soon(run_view, watcher, view)
        yield bus
        group.cancel_scope.cancel()


async def until(is_so):
    """Lets others work until it is so."""
    with anyio.fail_after(PATIENCE):
        while not is_so():
            await anyio.lowlevel.checkpoint()


class Noting:
    """A view that only notes what is done with it."""

    wants_deltas = False

    def __init__(self, fails_at: str = "") -> None:
        self.done: list[str] = []
        self._fails_at = fails_at

    def _note(self, what):
        self.done.append(what)
        if what == self._fails_at:
            raise ZeroDivisionError

    def add_event(self, stamped):
        self._note("take")

    def show_message(self, text):
        self._note("say")

    def draw(self):
        self._note("draw")

    def close(self):
        self._note("close")

    def restore(self):
        self.done.append("restore")


async def test_what_happened_last_is_taken_in_before_a_view_closes(story):
    story.begins("one")
    view = Noting()
    async with shown(view) as bus:
        for stamped in story.told:
            bus.publish(stamped)
    assert [what for what in view.done if what != "draw"] == ["take", "take", "close"]


@pytest.mark.parametrize("moment", ["take", "draw"])
async def test_a_fault_costs_one_event_or_one_picture_and_never_the_rest(story, moment):
    story.begins("one")
    view = Noting(fails_at=moment)
    async with shown(view) as bus:
        for stamped in story.told:
            bus.publish(stamped)
        await until(lambda: view.done.count("draw") > 1)
    assert view.done.count("take") == len(story.told)
    assert view.done[-1] == "close"


async def test_a_view_that_cannot_close_leaves_the_terminal_usable(story):
    view = Noting(fails_at="close")
    async with shown(view):
        pass
    assert view.done[-2:] == ["close", "restore"]


async def test_a_view_that_was_cut_off_says_so_once_and_draws_no_more(story):
    story.begins("one")
    view = Noting()
    async with shown(view) as bus:
        for _ in range(MAX_QUEUED_EVENTS + 1):
            bus.publish(story.told[0])
        await until(lambda: "close" in view.done)
        bus.publish(story.told[1])
    assert view.done[-2:] == ["say", "close"]


class Stuck(Noting):
    """A view whose reader does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = threading.Event()

    def close(self):
        self.reader.wait()


@VIRTUAL_TIME
async def test_a_reader_who_does_not_read_holds_up_the_end_only_so_long():
    view = Stuck()
    try:
        async with shown(view):
            pass
        assert view.done[-1] == "restore"
    finally:
        view.reader.set()


async def test_lines_are_written_with_the_engine_that_auto_chose_said_once(story):
    stream = io.StringIO()
    story.begins("one", engine="offline")
    story.begins("two", engine="offline")
    async with shown(LinesView(stream, EngineNote(ABOUT), EventLineFormatter())) as bus:
        for stamped in story.told:
            bus.publish(stamped)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "engine: offline (rules, not a language model)"
    assert [line[9:].split() for line in lines[1:]] == [
        ["one", "○", "look"],
        ["one", "started"],
        ["two", "○", "look"],
        ["two", "started"],
    ]


def test_only_what_is_lost_is_said_whatever_the_flags(story):
    story.begins("one")
    story.happens("one", Notice("agent", "odd"), Notice("storage", "Not saved. Free some space."))
    assert [line for stamped in story.told for line in storage_losses(stamped)] == ["Not saved. Free some space."]


async def test_without_a_stream_nothing_is_written_and_nothing_breaks(story):
    story.begins("one")
    async with shown(LinesView(None, EventLineFormatter())) as bus:
        bus.publish(story.told[0])


async def test_a_live_view_leaves_the_last_state_and_a_visible_cursor(story, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    story.begins("explorer", engine="offline")
    view = LiveView(stream, 5, EngineNote(ABOUT))
    async with shown(view) as bus:
        for stamped in story.told:
            bus.publish(stamped)
        view.show_message("a word of our own")
        await until(lambda: "a word of our own" in stream.getvalue())
        story.happens("explorer", Text("the answer"), RunEnded(elapsed=2.0))
        for stamped in story.told[2:]:
            bus.publish(stamped)
    written = stream.getvalue()
    assert "engine: offline (rules, not a language model)" in written
    assert "a word of our own" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    last = written[written.rindex("✓") :]
    assert "explorer" in last
    assert "Session: explorer00000000" in last


async def test_no_arguments_of_a_tool_can_end_a_live_view(story, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    endless: dict[str, object] = {"half": "\ud800"}
    endless["itself"] = endless
    story.begins("explorer")
    story.happens("explorer", ToolCalled("1", "odd", endless), ToolCalled("2", "ls", {"path": "\ud800"}))
    story.happens("explorer", Text("the answer"))
    async with shown(LiveView(stream, 5)) as bus:
        for stamped in story.told:
            bus.publish(stamped)
        await until(lambda: "the answer" in stream.getvalue())


async def test_a_live_view_of_nothing_draws_nothing():
    stream = Terminal()
    async with shown(LiveView(stream, 5)):
        pass
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("term", "is_one"), [("xterm-256color", True), ("dumb", False), ("", False), ("unknown", False)]
)
def test_a_screen_is_a_terminal_that_can_be_drawn_on(term, is_one):
    assert is_screen(Terminal(), {"TERM": term}) is is_one
    assert not is_screen(io.StringIO(), {"TERM": term})
    assert not is_screen(None, {"TERM": term})
