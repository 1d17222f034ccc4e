"""What a screen shows of runs, at sizes that are given."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.event_story import START, Story

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import MessageEnded, Notice, RunEnded, Text, TextDelta, ToolCalled, ToolReturned
from retinue.tui.layout import SPINNER, ScreenSize, render_closing, render_frame, render_header
from retinue.tui.widths import text_width

BIG = ScreenSize(width=100, height=50)
EXPANDED = ScreenSize(width=100, height=50, expanded=True)


def text_of(lines):
    return ["".join(span.text for span in line) for line in lines]


def styles_of(lines, text):
    return {span.style for line in lines for span in line if text in span.text}


def fails(message, code=ErrorCode.ENGINE):
    return RunEnded(failure=Failure(code, message), exit_code=1, elapsed=3.2)


def test_a_run_has_a_window_with_a_header_and_what_it_does(story):
    story.begins("a", name="find it", agent="explorer", provider="acme", model="big", thinking="high")
    story.happens("a", ToolCalled("1", "ls", {"path": "src/"}), ToolReturned("1", "ls", "a.py\nb.py\nlib/"))
    story.happens("a", ToolCalled("2", "find", {"pattern": "*.ts", "path": "src/"}))
    story.happens("a", ToolReturned("2", "find", "src/a.ts\nsrc/b.ts\nsrc/c.ts"))
    lines = render_frame(story.progress(), BIG, START + 12.4)
    assert text_of(lines) == [
        "Sub-agents: 1 running",
        "⠼ find it • explorer (acme/big high) • 2 tools • 12s/600s",
        "  ls → src/",
        "    2 files, 1 dir",
        "  find → *.ts in src/",
        "    3 matches",
    ]
    assert styles_of(lines, "find it") == {"name"}
    assert styles_of(lines, "⠼") == {"running"}


def test_a_name_nobody_gave_and_an_agent_nobody_named_are_not_told_twice(story):
    story.begins("explorer", engine="offline")
    story.begins("b", name="review", agent="default", engine="pi")
    assert text_of(render_frame(story.progress(), BIG, START))[1::2] == [
        "⠋ explorer (offline) • 0 tools • 0s/600s",
        "⠋ review (pi) • 0 tools • 0s/600s",
    ]


TODOS = {"mode": "replace", "todos": [{"text": "one"}, {"text": "two"}, {"text": "three"}]}


def test_todos_are_told_while_some_are_open(story):
    def header():
        return text_of(render_frame(story.progress(), BIG, START))[1]

    story.begins("a", name="plan")
    assert header() == "⠋ plan • a • 0 tools • 0s/600s"
    story.happens("a", ToolCalled("1", "write_todos", TODOS), ToolReturned("1", "write_todos", "Wrote 3"))
    assert header() == "⠋ plan • a • 1 tool • [0/3] • 0s/600s"
    for number, indices in enumerate(([0], [1, 2]), 2):
        assert f"[{number - 2}/3]" in header()
        given = {"action": "complete", "indices": indices}
        story.happens(
            "a", ToolCalled(f"{number}", "edit_todos", given), ToolReturned(f"{number}", "edit_todos", "ok")
        )
    assert header() == "⠋ plan • a • 3 tools • 0s/600s"


def test_several_runs_have_the_status_of_all_above_them(story):
    story.begins("one")
    story.begins("two")
    story.queued("three")
    story.happens("one", Text("found it"), RunEnded(text="found it", elapsed=7.4))
    story.happens("two", fails("Timed out after 600s."))
    assert text_of(render_frame(story.progress(), BIG, START + 99)) == [
        "Sub-agents: 1 queued, 1 done, 1 error",
        "✓ one • 0 tools • 7s/600s",
        "  found it",
        "✗ two • 0 tools • 3s/600s",
        "  Timed out after 600s.",
        "○ three • queued",
    ]


def test_elapsed_time_counts_while_a_run_works_and_is_frozen_at_its_end(story):
    story.begins("one")
    assert "• 5s/600s" in text_of(render_frame(story.progress(), BIG, START + 5))[1]
    assert "• 5s/600s" in text_of(render_frame(story.progress(), BIG, START + 5.9))[1]
    assert "• 6s/600s" in text_of(render_frame(story.progress(), BIG, START + 6))[1]
    story.happens("one", RunEnded(elapsed=6.7))
    assert "• 6s/600s" in text_of(render_frame(story.progress(), BIG, START + 500))[1]


def test_the_timeout_that_is_shown_is_the_original_one(story):
    story.begins("one", timeout=5.0)
    assert text_of(render_frame(story.progress(), BIG, START + 31))[1].endswith("• 31s/5s")


def test_a_run_that_never_started_took_no_time(story):
    story.queued("one")
    story.happens("one", RunEnded(failure=Failure(ErrorCode.UNKNOWN_AGENT, "Unknown agent: one.")))
    assert text_of(render_frame(story.progress(), BIG, START + 5)) == [
        "Sub-agents: 1 error",
        "✗ one",
        "  Unknown agent: one.",
        "Session: one0000000000000",
    ]


def test_text_is_shown_while_it_is_being_written(story):
    story.begins("one")
    story.happens("one", Text("First.\n\n- point"), TextDelta("And th"), TextDelta("en\n  indented"))
    assert text_of(render_frame(story.progress(), BIG, START))[2:] == [
        "  First.",
        "  - point",
        "  And then",
        "    indented",
    ]


def test_a_run_without_anything_to_show_is_starting(story):
    story.begins("one")
    assert text_of(render_frame(story.progress(), BIG, START))[2:] == ["  (starting...)"]
    assert text_of(render_frame(story.progress(), EXPANDED, START))[2:] == ["  (no output)"]


def test_tools_are_muted_and_what_went_wrong_is_red(story):
    story.begins("one")
    story.happens(
        "one", ToolCalled("1", "bash", {"command": "make"}), ToolReturned("1", "bash", "boom", is_error=True)
    )
    story.happens("one", Notice("storage", "disk full"), MessageEnded(stop_reason="stop"), fails("it broke"))
    lines = render_frame(story.progress(), BIG, START)
    shown = {text: styles_of(lines, text) for text in ("bash → make", "boom", "disk full", "it broke")}
    assert shown == {"bash → make": {"muted"}, "boom": {"error"}, "disk full": {"warning"}, "it broke": {"error"}}


def test_a_window_keeps_its_newest_lines(story):
    story.begins("one")
    story.happens("one", *(Text(f"line {number}") for number in range(100)))
    shown = text_of(render_frame(story.progress(), ScreenSize(width=80, height=50, max_lines=3), START))
    assert shown[2:] == ["  line 97", "  line 98", "  line 99"]


def test_expanded_a_window_shows_all_there_is_room_for(story):
    story.begins("one")
    story.happens("one", *(Text(f"line {number}") for number in range(100)))
    shown = text_of(
        render_frame(story.progress(), ScreenSize(width=80, height=50, max_lines=3, expanded=True), START)
    )
    assert shown[2:] == [f"  line {number}" for number in range(52, 100)]


PARAGRAPH = " ".join(f"word{number}" for number in range(1, 150))


@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize("event", [Text(PARAGRAPH), TextDelta(PARAGRAPH)], ids=lambda event: type(event).__name__)
def test_long_line_is_wrapped_and_its_newest_words_are_shown(story, event, expanded):
    story.begins("one")
    story.happens("one", event)
    whole = text_of(render_frame(story.progress(), ScreenSize(width=80, height=23, expanded=expanded), START))[2:]
    assert " ".join(line.strip() for line in whole) == PARAGRAPH
    assert all(line.startswith("  word") for line in whole)
    low = text_of(render_frame(story.progress(), ScreenSize(width=80, height=5, expanded=expanded), START))[2:]
    assert low == whole[-3:]


def test_long_tool_call_is_cut_and_wrapped_only_where_it_is_expanded(story):
    story.begins("one")
    story.happens("one", ToolCalled("1", "bash", {"command": PARAGRAPH}))
    (cut,) = text_of(render_frame(story.progress(), ScreenSize(width=80, height=23), START))[2:]
    assert cut.endswith("…")
    whole = text_of(render_frame(story.progress(), ScreenSize(width=80, height=23, expanded=True), START))[2:]
    assert " ".join(line.strip() for line in whole).startswith("bash → word1 word2 ")
    assert len(whole) > 10


def test_wrapped_line_in_another_script_keeps_every_character(story):
    story.begins("one")
    text = "課題" * 100 + " e\u0301🎉 " + "end"
    story.happens("one", Text(text))
    lines = text_of(render_frame(story.progress(), ScreenSize(width=41, height=23, expanded=True), START))[2:]
    assert "".join(line.strip() for line in lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        ({"status": "SUCCESS", "result": "## Found\n- a\n  - b"}, ["SUCCESS", "## Found", "- a", "  - b"]),
        ({"status": "ERROR", "error": "No access.", "result": "half"}, ["ERROR", "No access.", "half"]),
        ({"status": "SUCCESS", "result": {"a": [1]}}, ["SUCCESS", "{", '  "a": [', "    1", "  ]", "}"]),
        ({"status": ["x"], "result": None}, ["['x']"]),
    ],
)
def test_finalized_answer_is_shown_as_its_text(story, args, lines):
    story.begins("one")
    story.happens("one", ToolCalled("1", "subagent_finalize", args), ToolReturned("1", "subagent_finalize", "ok"))
    shown = [line.removeprefix("  ") for line in text_of(render_frame(story.progress(), BIG, START))[2:]]
    assert shown == [f"subagent_finalize → {lines[0]}", *lines[1:]]


@pytest.mark.parametrize(
    ("provider", "model", "shown"),
    [
        ("local", "scripted-1", "(local/scripted-1 low)"),
        ("local", "local/scripted-1", "(local/scripted-1 low)"),
        ("openrouter", "local/scripted-1", "(openrouter/local/scripted-1 low)"),
        (None, "local/scripted-1", "(local/scripted-1 low)"),
        ("local", None, "(local low)"),
    ],
)
def test_header_names_the_provider_once(story, provider, model, shown):
    story.begins("one", provider=provider, thinking="low")
    story.happens("one", MessageEnded(model=model, stop_reason="stop"))
    assert text_of(render_frame(story.progress(), BIG, START))[1] == f"⠋ one {shown} • 0 tools • 0s/600s"


def test_header_verbatim_always_names_the_profile_and_never_counts_in_the_singular(story):
    story.begins("writer")
    story.happens("writer", ToolCalled("1", "ls", {}))
    (view,) = story.progress().runs.values()
    assert text_of([render_header(view, START), render_header(view, START, verbatim=True)]) == [
        "⠋ writer • 1 tool • 0s/600s",
        "⠋ writer • writer • 1 tools • 0s/600s",
    ]


def test_one_that_is_chosen_is_marked_and_stays_in_sight(story):
    for number in range(20):
        story.begins(f"run-{number}")
        story.happens(f"run-{number}", RunEnded(elapsed=1.0))
    story.begins("busy")
    screen = ScreenSize(width=80, height=6, selected="run-11")
    assert [line.split(" •")[0] for line in text_of(render_frame(story.progress(), screen, START))] == [
        "Sub-agents: 1 running, 20 done",
        "  ✓ run-9",
        "  ✓ run-10",
        "› ✓ run-11",
        "  ✓ run-12",
        "… and 17 more",
    ]


def test_when_all_is_done_the_ids_of_the_sessions_are_told(story):
    story.begins("one")
    story.begins("two")
    story.happens("one", RunEnded(elapsed=1.0))
    assert "Session" not in text_of(render_frame(story.progress(), BIG, START))[-1]
    story.happens("two", RunEnded(elapsed=1.0))
    assert text_of(render_frame(story.progress(), BIG, START))[-1] == "Sessions: one0000000000000, two0000000000000"


def test_on_a_low_screen_windows_shrink_and_those_at_work_keep_most(story):
    for run in ("one", "two", "three"):
        story.begins(run)
        story.happens(run, *(Text(f"{run} {number}") for number in range(10)))
    story.happens("one", RunEnded(elapsed=1.0))
    assert text_of(render_frame(story.progress(), ScreenSize(width=80, height=8), START)) == [
        "Sub-agents: 2 running, 1 done",
        "✓ one • 0 tools • 1s/600s",
        "⠋ two • 0 tools • 0s/600s",
        "  two 8",
        "  two 9",
        "⠋ three • 0 tools • 0s/600s",
        "  three 8",
        "  three 9",
    ]


def test_with_more_runs_than_rows_the_rest_is_counted_and_work_stays_in_sight(story):
    for number in range(10):
        story.begins(f"run-{number}")
        if number < 8:
            story.happens(f"run-{number}", RunEnded(elapsed=1.0))
    assert text_of(render_frame(story.progress(), ScreenSize(width=80, height=5), START)) == [
        "Sub-agents: 2 running, 8 done",
        "✓ run-0 • 0 tools • 1s/600s",
        "⠋ run-8 • 0 tools • 0s/600s",
        "⠋ run-9 • 0 tools • 0s/600s",
        "… and 7 more",
    ]


def test_nested_runs_stand_under_the_one_that_asked_for_them(story):
    story.begins("top")
    story.begins("other")
    story.begins("below", parent="top", depth=2)
    story.happens("below", Text("deep"), parent="top", depth=2)
    assert text_of(render_frame(story.progress(), BIG, START)) == [
        "Sub-agents: 3 running",
        "⠋ top • 0 tools • 0s/600s",
        "  (starting...)",
        "↳ ⠋ below • 0 tools • 0s/600s",
        "    deep",
        "⠋ other • 0 tools • 0s/600s",
        "  (starting...)",
    ]


def test_text_of_a_child_cannot_move_the_cursor_or_hide(story):
    story.begins("evil", name="a\x1b[2Jb\nc")
    story.happens("evil", Text("\x1b]0;title\x07red\x1b[31m\rover"), ToolCalled("1", "bash", {"command": "\x1b[1mx"}))
    story.happens("evil", fails("bad\x1b[0m\nnews\u202e"))
    drawn = "\n".join(text_of(render_frame(story.progress(), BIG, START)))
    assert "\x1b" not in drawn
    assert "\r" not in drawn
    assert "\u202e" not in drawn
    assert "⟨U+202E⟩" in drawn


def test_at_the_end_headers_and_whole_session_ids_stay(story):
    story.begins("one")
    story.begins("two")
    story.happens("one", Text("answer"), RunEnded(elapsed=1.0))
    story.happens("two", fails("it broke"))
    assert text_of(render_closing(story.progress(), ScreenSize(width=30, height=5), START + 9)) == [
        "Sub-agents: 1 done, 1 error",
        "✓ one • 0 tools • 1s/600s",
        "✗ two • 0 tools • 3s/600s",
        "Sessions: one0000000000000,",
        "two0000000000000",
    ]


def test_at_the_end_a_run_below_another_says_why_it_failed_and_one_at_the_top_where_nobody_else_does(story):
    story.begins("top")
    story.begins("below", parent="top", depth=2)
    story.happens("below", fails("it broke\nMend it."), parent="top", depth=2)
    story.happens("top", fails("no answer"))
    screen = ScreenSize(width=60, height=9)
    asked = text_of(render_closing(story.progress(), screen, START + 9))
    watched = text_of(render_closing(story.progress(), screen, START + 9, results_printed=False))
    assert asked == [
        "Sub-agents: 2 error",
        "✗ top • 0 tools • 3s/600s",
        "↳ ✗ below • 0 tools • 3s/600s",
        "    it broke",
        "Session: top0000000000000",
    ]
    assert watched == [*asked[:2], "  no answer", *asked[2:]]


def test_what_a_failure_says_in_several_lines_stands_in_several(story):
    story.begins("one")
    story.happens("one", fails("The provider failed: 401 invalid key\nIt left no text. Check the key or login."))
    assert text_of(render_frame(story.progress(), ScreenSize(width=60, height=9), START + 9))[2:-1] == [
        "  The provider failed: 401 invalid key",
        "  It left no text. Check the key or login.",
    ]


def test_the_spinner_turns_with_the_clock_alone(story):
    story.begins("one")
    icons = {text_of(render_frame(story.progress(), BIG, START + tenth / 10))[1][0] for tenth in range(10)}
    assert icons == set(SPINNER)


EVENTS = st.one_of(
    st.builds(Text, st.text(max_size=200)),
    st.builds(TextDelta, st.text(max_size=200)),
    st.builds(ToolCalled, st.text(max_size=3), st.sampled_from(["ls", "find", "bash", "x"]), st.just({"path": "p"})),
    st.builds(ToolReturned, st.text(max_size=3), st.just("ls"), st.text(max_size=50), st.booleans()),
    st.builds(Notice, st.just("n"), st.text(max_size=200)),
    st.builds(lambda text: RunEnded(failure=Failure(ErrorCode.ENGINE, text)), st.text(max_size=300)),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), EVENTS), max_size=40),
    st.integers(1, 60),
    st.integers(1, 30),
    st.integers(1, 10),
    st.booleans(),
    st.sampled_from([None, "a", "h"]),
)
def test_a_frame_is_never_larger_than_its_screen(happened, columns, rows, most, expanded, chosen):
    story = Story()
    for run in dict.fromkeys(run for run, _ in happened):
        story.begins(run, name=f"name of {run}")
    for run, event in happened:
        story.happens(run, event)
    screen = ScreenSize(width=columns, height=rows, max_lines=most, expanded=expanded, selected=chosen)
    lines = text_of(render_frame(story.progress(), screen, START))
    assert len(lines) <= rows
    assert all(text_width(line) <= columns for line in lines)
