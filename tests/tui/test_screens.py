"""What is on a terminal when agents are at work: drawn by the live view, kept as snapshots (`--snapshot-update`)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.event_story import START, Story
from tests.support.terminal_emulator import CURSOR, WRAPS, TerminalEmulator

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Notice, RunEnded, Text, TextDelta, ToolCalled, ToolReturned
from retinue.tui.layout import ScreenSize, render_closing, render_frame
from retinue.tui.live_view import LiveView
from retinue.tui.renderer import COLOR_STYLES, InlineRenderer

SIZES = [(80, 24), (200, 60)]
MODEL = {"provider": "acme", "model": "big-1", "thinking": "high"}
TODOS = {"mode": "replace", "todos": [{"text": "look"}, {"text": "compare"}, {"text": "report"}]}


def as_the_seed_has_it(story):
    """Two at work, one done, one in error."""
    story.begins("a", name="review-pr", agent="researcher", **MODEL)
    story.happens("a", ToolCalled("1", "write_todos", TODOS), ToolReturned("1", "write_todos", "Wrote 3"))
    story.happens("a", ToolCalled("2", "ls", {"path": "src/"}), ToolReturned("2", "ls", "a.ts\nb.ts\nlib/"))
    story.happens("a", ToolCalled("3", "edit_todos", {"action": "complete", "indices": [0]}))
    story.happens("a", ToolReturned("3", "edit_todos", "Completed [0]"))
    story.happens("a", ToolCalled("4", "find", {"pattern": "*.ts", "path": "src/"}))
    story.happens("a", ToolReturned("4", "find", "src/a.ts\nsrc/b.ts\nsrc/lib/c.ts"), TextDelta("The routes look"))
    story.begins("b", name="update-docs", agent="writer", **MODEL)
    story.happens("b", ToolCalled("1", "ls", {"path": "empty/"}), ToolReturned("1", "ls", ""))
    story.happens("b", ToolCalled("2", "find", {"pattern": "*.rst"}), ToolReturned("2", "find", ""))
    cut = "\n".join([f"f{number}" for number in range(497)] + ["x/", "y/", "z/"]) + "\n\n[500 entries limit reached]"
    story.happens("b", ToolCalled("3", "ls", {"path": "big/"}), ToolReturned("3", "ls", cut))
    story.begins("c", name="build-assets", agent="default", engine="pi")
    story.happens("c", Text("All assets are built."), RunEnded(text="All assets are built.", elapsed=42.9))
    story.begins("d", name="run-tests", agent="tester", timeout=300.0, **MODEL)
    story.happens("d", ToolCalled("1", "bash", {"command": "make test"}))
    story.happens("d", ToolReturned("1", "bash", "make: *** No rule", is_error=True))
    failure = Failure(ErrorCode.TIMEOUT, "Timed out after 300s. Consider resuming with a longer timeout.")
    story.happens("d", RunEnded(failure=failure, elapsed=330.2))


def sixteen(story):
    """As many as a call may have, in every state, talking in many scripts."""
    for number in range(16):
        run = f"{number:x}"
        (story.queued if number > 11 else story.begins)(
            run, name=f"task-{number} 課題{number}", agent="explorer", **MODEL
        )
        if number <= 11:
            story.happens(run, *(Text(f"{number}.{line} 日本語 e\u0301 🎉 {'wide ' * 30}") for line in range(8)))
        if number in {3, 4}:
            story.happens(run, RunEnded(elapsed=float(number)))
        if number == 5:
            story.happens(
                run, RunEnded(failure=Failure(ErrorCode.LOOP, "Loop detected: it repeats itself"), elapsed=9.0)
            )


def hostile(story):
    """Everything that would harm a terminal if it reached one."""
    evil = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m\r\x08over\x9b5A\u202ertl\u200bzero\ud800half\x1bPq\x1b\\"
    story.begins("e", name=f"evil {evil}", agent=evil, model=evil)
    story.happens("e", Text(evil), ToolCalled("1", "bash", {"command": evil}), ToolReturned("1", "bash", evil, True))
    story.happens("e", Notice("x", evil), TextDelta(evil))
    story.begins("f", name="\n\n\n")
    story.happens("f", RunEnded(failure=Failure(ErrorCode.ENGINE, evil)))


def a_tree(story):
    """A lead that waits for two, one of which waits for two of its own; a flat one beside it."""
    story.begins("lead", engine="pi", **MODEL)
    story.happens(
        "lead",
        ToolCalled(
            "1", "spawn_subagent", {"mode": "parallel", "tasks": [{"agent": "explorer"}, {"agent": "reviewer"}]}
        ),
    )
    story.begins("alone", engine="offline")
    story.happens("alone", Text("Nobody is asked here."))
    below = {"parent": "lead", "depth": 2}
    story.begins("explorer", engine="offline", **below)
    story.happens("explorer", ToolCalled("1", "grep", {"pattern": "bus"}), ToolReturned("1", "grep", "a:1"), **below)
    story.happens("explorer", Text("Found: src/bus.py:4"), RunEnded(elapsed=2.0), **below)
    story.begins("reviewer", engine="claude", model="big-2", **below)
    story.happens("reviewer", ToolCalled("1", "spawn_subagent", {"agent": "tester", "task": "Test it"}), **below)
    deepest = {"parent": "reviewer", "depth": 3}
    story.begins("tester", engine="pi", **MODEL, **deepest)
    story.happens("tester", TextDelta("I run the tests"), **deepest)
    story.begins("linter", engine="pi", **deepest)
    failure = Failure(ErrorCode.ABORTED, "Stopped before it was done; what it had was kept.")
    story.happens("linter", RunEnded(failure=failure, elapsed=1.0), **deepest)


def a_deep_one(story):
    """Runs below one another, deeper than can be drawn."""
    for depth in range(1, 15):
        parent = f"run-{depth - 1}" if depth > 1 else None
        story.begins(f"run-{depth}", parent=parent, depth=depth, engine="offline")
        story.happens(f"run-{depth}", Text(f"level {depth} {'and more ' * 20}"), parent=parent, depth=depth)


def drawn(story, size, picture=render_frame):
    """The screen after many pictures, one per event, and the last of them."""
    terminal = TerminalEmulator(*size)
    rolling = InlineRenderer(terminal, COLOR_STYLES)
    progress = Story().progress()
    screen = ScreenSize(width=size[0], height=size[1] - 1)
    for stamped in story.told:
        progress = progress.apply(stamped)
        rolling.show(render_frame(progress, screen, START + 12.5), size)
    rolling.show(picture(progress, screen, START + 12.5), size)
    rolling.end()
    assert terminal.modes == {WRAPS, CURSOR}
    return terminal.screen()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    "tells", [as_the_seed_has_it, sixteen, hostile, a_tree, a_deep_one], ids=lambda tells: tells.__name__
)
def test_a_screen_of_agents_at_work(story, tells, size, snapshot):
    tells(story)
    assert drawn(story, size) == snapshot


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_what_stays_when_all_is_done(story, size, snapshot):
    as_the_seed_has_it(story)
    for run in "ab":
        story.happens(run, RunEnded(elapsed=50.0))
    assert drawn(story, size, render_closing) == snapshot


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_what_stays_of_a_tree_when_all_is_done(story, size, snapshot):
    a_tree(story)
    parents = {"tester": ("reviewer", 3), "reviewer": ("lead", 2), "lead": (None, 1), "alone": (None, 1)}
    for run, (parent, depth) in parents.items():
        story.happens(run, RunEnded(elapsed=50.0), parent=parent, depth=depth)
    assert drawn(story, size, render_closing) == snapshot


def test_the_live_view_draws_the_same_on_a_terminal_that_is_resized(story, monkeypatch):
    monkeypatch.setattr("time.time", lambda: START + 12.5)
    as_the_seed_has_it(story)
    terminal = TerminalEmulator(80, 24)
    view = LiveView(terminal, 15)
    for stamped in story.told:
        view.add_event(stamped)
    for size in (SIZES[0], (60, 16), (30, 24), SIZES[1], SIZES[0]):
        terminal.resize(*size)
        monkeypatch.setenv("COLUMNS", str(size[0]))
        monkeypatch.setenv("LINES", str(size[1]))
        view.draw()
        lines = render_frame(story.progress(), ScreenSize(width=size[0], height=size[1] - 1), START + 12.5)
        expected = "\n".join("".join(span.text for span in line).rstrip() for line in lines)
        assert terminal.screen().endswith(expected)
        assert terminal.screen().count("Sub-agents:") == 1


SOUP = st.text(
    alphabet=st.sampled_from("ab \n\r\t\x1b[]0;1mJHA\x07\x9b\x08日\u0301🎉\u200d\ufe0f\u202e\ud800"), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), SOUP, st.booleans()), max_size=12),
    st.integers(10, 40),
    st.integers(3, 12),
)
def test_no_text_of_a_child_does_anything_to_a_terminal_but_stand_on_it(happened, columns, rows):
    story = Story()
    for run in dict.fromkeys(run for run, _, _ in happened):
        story.begins(run, name=happened[0][1] or run)
    for run, text, is_delta in happened:
        story.happens(run, TextDelta(text) if is_delta else Text(text))
    seen = drawn(story, (columns, rows)) if happened else ""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", seen)
