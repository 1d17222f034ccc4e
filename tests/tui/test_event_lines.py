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


def format_lines(events, **options):
    format_record = EventLineFormatter(**options)
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for record in events.records for line in format_record(record)]


def test_event_with_news_is_a_line_with_the_name_of_its_run(events):
    events.start("explorer", task="Where is it?\nReally.")
    events.start("a-very-long-name")
    events.add(
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
    events.add("a-very-long-name", RunEnded(failure=Failure(ErrorCode.TIMEOUT, "Timed out."), elapsed=600.0))
    assert format_lines(events) == [
        "explorer      ○ explorer Where is it?",
        "explorer      started",
        "a-very-long…  ○ a-very-l look",
        "a-very-long…  started",
        "explorer      → grep /x/ → *.py",
        "explorer      → bash make",
        "explorer      ! bash: boom",
        "explorer      model: small (rate_limit)",
        "explorer      attempt 2 (fallback)",
        "explorer      ! disk full",
        "explorer      “Here it is.”",
        "explorer      ✓ completed in 1.3s (session explorer)",
        "a-very-long…  ✗ timed out after 600.0s (session a-very-l)",
    ]


def test_runs_of_the_same_name_are_numbered_in_order_of_start(events):
    for run in ("one", "two", "three"):
        events.start(run, name="implementer", parent="one" if run == "three" else None, depth=1 + (run == "three"))
    events.start("four", name="explorer")
    for run in ("two", "three", "one"):
        events.add(run, Text("Done."), parent="one" if run == "three" else None, depth=1 + (run == "three"))
    assert format_lines(events) == [
        "implementer   ○ one00000 look",
        "implementer   started",
        "implement…#2  ○ two00000 look",
        "implement…#2  started",
        "  implement…#3  ○ three000 look",
        "  implement…#3  started",
        "explorer      ○ four0000 look",
        "explorer      started",
        "implement…#2  “Done.”",
        "  implement…#3  “Done.”",
        "implementer   “Done.”",
    ]


def test_failure_is_shown_for_child_runs_and_for_unprinted_top_runs(events):
    failed = RunEnded(failure=Failure(ErrorCode.PROVIDER, "The key is wrong.\nMend it."), elapsed=0.1)
    events.start("top")
    events.start("below", parent="top", depth=2)
    events.add("below", failed, parent="top", depth=2)
    events.add("top", failed)
    printed, watched = format_lines(events), format_lines(events, results_printed=False)
    assert printed[-2:] == [
        "  below         ✗ failed (provider) after 0.1s (session below000): The key is wrong.",
        "top           ✗ failed (provider) after 0.1s (session top00000)",
    ]
    assert watched == [*printed[:-1], f"{printed[-1]}: The key is wrong."]


def test_lone_surrogate_in_tool_arguments_is_replaced(events):
    events.start("one")
    events.add("one", ToolCalled("1", "unheard_of", {"a": "\ud800"}))
    assert format_lines(events)[-1] == 'one           → unheard_of {"a":"\ufffd"}'


def test_notice_is_wrapped_to_its_end(events):
    events.start("one")
    events.add("one", Notice("storage", f"{'A long sentence. ' * 25}Free some space."))
    *_, first, _, last = format_lines(events)
    assert first.startswith("one           ! A long sentence. ")
    assert last.startswith(" " * 20)
    assert last.endswith("Free some space.")


def test_lines_have_no_escape_sequences_and_a_maximum_length(events):
    events.start("one", name="\x1b[31mred")
    events.add("one", Text("\x1b[2J" + "x" * 10_000))
    assert max(map(len, format_lines(events))) <= 200
    assert "\x1b" not in "".join(format_lines(events))
