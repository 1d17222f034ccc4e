"""Live views: updates at their own pace, independent of slow readers and of their own failures."""

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
from retinue.tui.event_view import EngineNote, LinesView, is_screen, run_view, storage_losses
from retinue.tui.live_view import LiveView

TEST_TIMEOUT = 20.0
"""Seconds before a test gives up waiting."""
ABOUT = {"offline": lambda _model: "rules, not a language model"}


class FakeTerminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


@asynccontextmanager
async def subscribe_view(view):
    """Yield an event bus to which the view is subscribed."""
    bus = EventBus()
    async with bus.subscribe() as subscription, anyio.create_task_group() as group:
        group.start_soon(run_view, subscription, view)
        yield bus
        group.cancel_scope.cancel()


async def wait_until(condition):
    """Let other tasks run until the condition holds."""
    with anyio.fail_after(TEST_TIMEOUT):
        while not condition():
            await anyio.lowlevel.checkpoint()


class RecordingView:
    """A view that records the calls of its methods."""

    wants_deltas = False

    def __init__(self, fails_at: str = "") -> None:
        self.calls: list[str] = []
        self._fails_at = fails_at

    def _record(self, call):
        self.calls.append(call)
        if call == self._fails_at:
            raise ZeroDivisionError

    def add_event(self, record):
        self._record("add_event")

    def show_message(self, text):
        self._record("show_message")

    def draw(self):
        self._record("draw")

    def close(self):
        self._record("close")

    def restore(self):
        self.calls.append("restore")


async def test_view_receives_the_last_events_before_it_closes(events):
    events.start("one")
    view = RecordingView()
    async with subscribe_view(view) as bus:
        for record in events.records:
            bus.publish(record)
    assert [call for call in view.calls if call != "draw"] == ["add_event", "add_event", "close"]


@pytest.mark.parametrize("method", ["add_event", "draw"])
async def test_exception_in_a_view_loses_only_one_event_or_frame(events, method):
    events.start("one")
    view = RecordingView(fails_at=method)
    async with subscribe_view(view) as bus:
        for record in events.records:
            bus.publish(record)
        await wait_until(lambda: view.calls.count("draw") > 1)
    assert view.calls.count("add_event") == len(events.records)
    assert view.calls[-1] == "close"


async def test_view_that_cannot_close_restores_the_terminal(events):
    view = RecordingView(fails_at="close")
    async with subscribe_view(view):
        pass
    assert view.calls[-2:] == ["close", "restore"]


async def test_lagging_view_shows_one_message_and_closes(events):
    events.start("one")
    view = RecordingView()
    async with subscribe_view(view) as bus:
        for _ in range(MAX_QUEUED_EVENTS + 1):
            bus.publish(events.records[0])
        await wait_until(lambda: "close" in view.calls)
        bus.publish(events.records[1])
    assert view.calls[-2:] == ["show_message", "close"]


class BlockedView(RecordingView):
    """A view whose reader does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = threading.Event()

    def close(self):
        self.reader.wait()


@VIRTUAL_TIME
async def test_blocked_reader_delays_closing_only_until_the_timeout():
    view = BlockedView()
    try:
        async with subscribe_view(view):
            pass
        assert view.calls[-1] == "restore"
    finally:
        view.reader.set()


async def test_lines_view_names_the_chosen_engine_once(events):
    stream = io.StringIO()
    events.start("one", engine="offline")
    events.start("two", engine="offline")
    async with subscribe_view(LinesView(stream, EngineNote(ABOUT), EventLineFormatter())) as bus:
        for record in events.records:
            bus.publish(record)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "engine: offline (rules, not a language model)"
    assert [line[9:].split() for line in lines[1:]] == [
        ["one", "○", "one00000", "look"],
        ["one", "started"],
        ["two", "○", "two00000", "look"],
        ["two", "started"],
    ]


def test_engine_note_has_no_terminal_escapes_of_the_model(events):
    """A model may be named by an agent file of the project."""
    events.queue("one", engine="api", model="openai/a\x1b]0;title\x07b\nc")
    note = EngineNote({"api": str})
    assert list(note(events.records[0])) == ["engine: api (openai/ab c)"]


def test_storage_losses_yields_only_storage_notices(events):
    events.start("one")
    events.add("one", Notice("agent", "odd"), Notice("storage", "Not saved. Free some space."))
    assert [line for record in events.records for line in storage_losses(record)] == ["Not saved. Free some space."]


async def test_lines_view_without_a_stream_writes_nothing(events):
    events.start("one")
    async with subscribe_view(LinesView(None, EventLineFormatter())) as bus:
        bus.publish(events.records[0])


async def test_live_view_leaves_the_last_state_and_a_visible_cursor(events, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    stream = FakeTerminal()
    events.start("explorer", engine="offline")
    view = LiveView(stream, 5, EngineNote(ABOUT))
    async with subscribe_view(view) as bus:
        for record in events.records:
            bus.publish(record)
        view.show_message("a message of the program")
        await wait_until(lambda: "a message of the program" in stream.getvalue())
        events.add("explorer", Text("the answer"), RunEnded(elapsed=2.0))
        for record in events.records[2:]:
            bus.publish(record)
    written = stream.getvalue()
    assert "engine: offline (rules, not a language model)" in written
    assert "a message of the program" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    last = written[written.rindex("✓") :]
    assert "explorer" in last
    assert "Session: explorer" in last


async def test_live_view_survives_any_tool_arguments(events, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = FakeTerminal()
    endless: dict[str, object] = {"half": "\ud800"}
    endless["itself"] = endless
    events.start("explorer")
    events.add("explorer", ToolCalled("1", "odd", endless), ToolCalled("2", "ls", {"path": "\ud800"}))
    events.add("explorer", Text("the answer"))
    async with subscribe_view(LiveView(stream, 5)) as bus:
        for record in events.records:
            bus.publish(record)
        await wait_until(lambda: "the answer" in stream.getvalue())


async def test_live_view_without_runs_draws_nothing():
    stream = FakeTerminal()
    async with subscribe_view(LiveView(stream, 5)):
        pass
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("term", "expected"), [("xterm-256color", True), ("dumb", False), ("", False), ("unknown", False)]
)
def test_is_screen_depends_on_term_and_the_stream(term, expected):
    assert is_screen(FakeTerminal(), {"TERM": term}) is expected
    assert not is_screen(io.StringIO(), {"TERM": term})
    assert not is_screen(None, {"TERM": term})
