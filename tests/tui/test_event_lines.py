"""Events as plain lines."""

import re

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    AttemptStarted,
    MessageEnded,
    ModelChanged,
    Notice,
    RunEnded,
    Text,
    TextDelta,
    Thinking,
    ToolCalled,
    ToolReturned,
)
from retinue.tui.event_lines import EventLineFormatter


def told(story, **options):
    tell = EventLineFormatter(**options)
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for stamped in story.told for line in tell(stamped)]


def test_each_event_that_says_something_is_a_line_under_its_runs_name(story):
    story.begins("explorer", task="Where is it?\nReally.")
    story.begins("a-very-long-name")
    story.happens(
        "explorer",
        AttemptStarted(1, "first"),
        Thinking("hm"),
        TextDelta("I "),
        ToolCalled("1", "grep", {"pattern": "x", "glob": "*.py"}),
        ToolReturned("1", "grep", "a.py:1: x"),
        ToolCalled("2", "bash", {"command": "make"}),
        ToolReturned("2", "bash", "boom\nmore", is_error=True),
        ModelChanged("big", "small", "rate_limit"),
        AttemptStarted(2, "fallback"),
        Notice("storage", "disk full"),
        Text("Here it is.\nIn detail…"),
        MessageEnded(stop_reason="stop"),
        RunEnded(elapsed=1.26),
    )
    story.happens("a-very-long-name", RunEnded(failure=Failure(ErrorCode.TIMEOUT, "Timed out."), elapsed=600.0))
    assert told(story) == [
        "explorer      ○ Where is it?",
        "explorer      started",
        "a-very-long…  ○ look",
        "a-very-long…  started",
        "explorer      → grep /x/ → *.py",
        "explorer      → bash make",
        "explorer      ! bash: boom",
        "explorer      model: small (rate_limit)",
        "explorer      attempt 2 (fallback)",
        "explorer      ! disk full",
        "explorer      “Here it is.”",
        "explorer      ✓ done in 1.3s (session explorer)",
        "a-very-long…  ✗ timeout after 600.0s (session a-very-l)",
    ]


def test_a_run_below_another_says_why_it_failed_and_one_at_the_top_where_nobody_else_does(story):
    failed = RunEnded(failure=Failure(ErrorCode.PROVIDER, "The key is wrong.\nMend it."), elapsed=0.1)
    story.begins("top")
    story.begins("below", parent="top", depth=2)
    story.happens("below", failed, parent="top", depth=2)
    story.happens("top", failed)
    asked, watched = told(story), told(story, results_printed=False)
    assert asked[-2:] == [
        "  below         ✗ provider after 0.1s (session below000): The key is wrong.",
        "top           ✗ provider after 0.1s (session top00000)",
    ]
    assert watched == [*asked[:-1], f"{asked[-1]}: The key is wrong."]


def test_half_a_character_in_a_tools_arguments_is_told_broken(story):
    story.begins("one")
    story.happens("one", ToolCalled("1", "unheard_of", {"a": "\ud800"}))
    assert told(story)[-1] == 'one           → unheard_of {"a":"\ufffd"}'


def test_a_notice_is_wrapped_for_it_ends_with_what_to_do(story):
    story.begins("one")
    story.happens("one", Notice("storage", f"{'A long sentence. ' * 25}Free some space."))
    *_, first, _, last = told(story)
    assert first.startswith("one           ! A long sentence. ")
    assert last.startswith(" " * 20)
    assert last.endswith("Free some space.")


def test_lines_have_no_escapes_and_an_end(story):
    story.begins("one", name="\x1b[31mred")
    story.happens("one", Text("\x1b[2J" + "x" * 10_000))
    assert max(map(len, told(story))) <= 200
    assert "\x1b" not in "".join(told(story))
