"""Screens of the live view while agents run, compared with snapshots (`--snapshot-update`)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.event_story import START, EventStory
from tests.support.terminal_emulator import CURSOR, WRAPS, TerminalEmulator

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Notice, RunEnded, Text, TextDelta, ToolCalled, ToolReturned
from retinue.tui.layout import ScreenSize, render_closing, render_frame
from retinue.tui.live_view import LiveView
from retinue.tui.renderer import COLOR_STYLES, InlineRenderer

SIZES = [(80, 24), (200, 60)]
MODEL = {"provider": "acme", "model": "big-1", "thinking": "high"}
TODOS = {"mode": "replace", "todos": [{"text": "look"}, {"text": "compare"}, {"text": "report"}]}


def fanout_example(events):
    """Add two running runs, a completed and a failed one."""
    events.start("a", name="review-pr", agent="researcher", **MODEL)
    events.add("a", ToolCalled("1", "write_todos", TODOS), ToolReturned("1", "write_todos", "Wrote 3"))
    events.add("a", ToolCalled("2", "ls", {"path": "src/"}), ToolReturned("2", "ls", "a.ts\nb.ts\nlib/"))
    events.add("a", ToolCalled("3", "edit_todos", {"action": "complete", "indices": [0]}))
    events.add("a", ToolReturned("3", "edit_todos", "Completed [0]"))
    events.add("a", ToolCalled("4", "find", {"pattern": "*.ts", "path": "src/"}))
    events.add("a", ToolReturned("4", "find", "src/a.ts\nsrc/b.ts\nsrc/lib/c.ts"), TextDelta("The routes look"))
    events.start("b", name="update-docs", agent="writer", **MODEL)
    events.add("b", ToolCalled("1", "ls", {"path": "empty/"}), ToolReturned("1", "ls", ""))
    events.add("b", ToolCalled("2", "find", {"pattern": "*.rst"}), ToolReturned("2", "find", ""))
    cut = "\n".join([f"f{number}" for number in range(497)] + ["x/", "y/", "z/"]) + "\n\n[500 entries limit reached]"
    events.add("b", ToolCalled("3", "ls", {"path": "big/"}), ToolReturned("3", "ls", cut))
    events.start("c", name="build-assets", agent="default", engine="pi")
    events.add("c", Text("All assets are built."), RunEnded(text="All assets are built.", elapsed=42.9))
    events.start("d", name="run-tests", agent="tester", timeout=300.0, **MODEL)
    events.add("d", ToolCalled("1", "bash", {"command": "make test"}))
    events.add("d", ToolReturned("1", "bash", "make: *** No rule", is_error=True))
    failure = Failure(ErrorCode.TIMEOUT, "Timed out after 300s. Consider resuming with a longer timeout.")
    events.add("d", RunEnded(failure=failure, elapsed=330.2))


def sixteen_runs(events):
    """Add as many runs as a call may have, in every state, with text in many scripts."""
    for number in range(16):
        run = f"{number:x}"
        (events.queue if number > 11 else events.start)(
            run, name=f"task-{number} 課題{number}", agent="explorer", **MODEL
        )
        if number <= 11:
            events.add(run, *(Text(f"{number}.{line} 日本語 e\u0301 🎉 {'wide ' * 30}") for line in range(8)))
        if number in {3, 4}:
            events.add(run, RunEnded(elapsed=float(number)))
        if number == 5:
            events.add(
                run, RunEnded(failure=Failure(ErrorCode.LOOP, "Loop detected: it repeats itself"), elapsed=9.0)
            )


def hostile_text(events):
    """Add runs whose texts would harm a terminal."""
    evil = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m\r\x08over\x9b5A\u202ertl\u200bzero\ud800half\x1bPq\x1b\\"
    events.start("e", name=f"evil {evil}", agent=evil, model=evil)
    events.add("e", Text(evil), ToolCalled("1", "bash", {"command": evil}), ToolReturned("1", "bash", evil, True))
    events.add("e", Notice("x", evil), TextDelta(evil))
    events.start("f", name="\n\n\n")
    events.add("f", RunEnded(failure=Failure(ErrorCode.ENGINE, evil)))


def nested_runs(events):
    """Add a run with two child runs, one of which has two of its own, and a run without children."""
    events.start("lead", engine="pi", **MODEL)
    events.add(
        "lead",
        ToolCalled(
            "1", "spawn_subagent", {"mode": "parallel", "tasks": [{"agent": "explorer"}, {"agent": "reviewer"}]}
        ),
    )
    events.start("alone", engine="offline")
    events.add("alone", Text("Nobody is asked here."))
    below = {"parent": "lead", "depth": 2}
    events.start("explorer", engine="offline", **below)
    events.add("explorer", ToolCalled("1", "grep", {"pattern": "bus"}), ToolReturned("1", "grep", "a:1"), **below)
    events.add("explorer", Text("Found: src/bus.py:4"), RunEnded(elapsed=2.0), **below)
    events.start("reviewer", engine="claude", model="big-2", **below)
    events.add("reviewer", ToolCalled("1", "spawn_subagent", {"agent": "tester", "task": "Test it"}), **below)
    deepest = {"parent": "reviewer", "depth": 3}
    events.start("tester", engine="pi", **MODEL, **deepest)
    events.add("tester", TextDelta("I run the tests"), **deepest)
    events.start("linter", engine="pi", **deepest)
    failure = Failure(ErrorCode.ABORTED, "Cancelled before it completed; its partial output was kept.")
    events.add("linter", RunEnded(failure=failure, elapsed=1.0), **deepest)


def deep_runs(events):
    """Add child runs deeper than can be indented."""
    for depth in range(1, 15):
        parent = f"run-{depth - 1}" if depth > 1 else None
        events.start(f"run-{depth}", parent=parent, depth=depth, engine="offline")
        events.add(f"run-{depth}", Text(f"level {depth} {'and more ' * 20}"), parent=parent, depth=depth)


def draw_screen(events, size, render=render_frame):
    """Return the screen after a frame per event and the last frame."""
    terminal = TerminalEmulator(*size)
    renderer = InlineRenderer(terminal, COLOR_STYLES)
    progress = EventStory().progress()
    screen = ScreenSize(width=size[0], height=size[1] - 1)
    for record in events.records:
        progress = progress.apply(record)
        renderer.show(render_frame(progress, screen, START + 12.5), size)
    renderer.show(render(progress, screen, START + 12.5), size)
    renderer.end()
    assert terminal.modes == {WRAPS, CURSOR}
    return terminal.screen()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    "add_runs",
    [fanout_example, sixteen_runs, hostile_text, nested_runs, deep_runs],
    ids=lambda add_runs: add_runs.__name__,
)
def test_screen_of_running_agents(events, add_runs, size, snapshot):
    add_runs(events)
    assert draw_screen(events, size) == snapshot


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_closing_screen_of_runs(events, size, snapshot):
    fanout_example(events)
    for run in "ab":
        events.add(run, RunEnded(elapsed=50.0))
    assert draw_screen(events, size, render_closing) == snapshot


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_closing_screen_of_nested_runs(events, size, snapshot):
    nested_runs(events)
    parents = {"tester": ("reviewer", 3), "reviewer": ("lead", 2), "lead": (None, 1), "alone": (None, 1)}
    for run, (parent, depth) in parents.items():
        events.add(run, RunEnded(elapsed=50.0), parent=parent, depth=depth)
    assert draw_screen(events, size, render_closing) == snapshot


def test_live_view_draws_correctly_after_resizes(events, monkeypatch):
    monkeypatch.setattr("time.time", lambda: START + 12.5)
    fanout_example(events)
    terminal = TerminalEmulator(80, 24)
    view = LiveView(terminal, 15)
    for record in events.records:
        view.add_event(record)
    for size in (SIZES[0], (60, 16), (30, 24), SIZES[1], SIZES[0]):
        terminal.resize(*size)
        monkeypatch.setenv("COLUMNS", str(size[0]))
        monkeypatch.setenv("LINES", str(size[1]))
        view.draw()
        lines = render_frame(events.progress(), ScreenSize(width=size[0], height=size[1] - 1), START + 12.5)
        expected = "\n".join("".join(span.text for span in line).rstrip() for line in lines)
        assert terminal.screen().endswith(expected)
        assert terminal.screen().count("Sub-agents:") == 1


HOSTILE_TEXT = st.text(
    alphabet=st.sampled_from("ab \n\r\t\x1b[]0;1mJHA\x07\x9b\x08日\u0301🎉\u200d\ufe0f\u202e\ud800"), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), HOSTILE_TEXT, st.booleans()), max_size=12),
    st.integers(10, 40),
    st.integers(3, 12),
)
def test_agent_text_never_reaches_the_terminal_as_control_sequences(run_texts, columns, rows):
    events = EventStory()
    for run in dict.fromkeys(run for run, _, _ in run_texts):
        events.start(run, name=run_texts[0][1] or run)
    for run, text, is_delta in run_texts:
        events.add(run, TextDelta(text) if is_delta else Text(text))
    seen = draw_screen(events, (columns, rows)) if run_texts else ""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", seen)
