"""Frames of the live view at given screen sizes."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.event_story import START, EventStory

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import MessageEnded, Notice, RunEnded, Text, TextDelta, ToolCalled, ToolReturned
from retinue.model.results import Usage
from retinue.model.sandbox import SandboxMechanism, SandboxMode, SandboxReport
from retinue.tui.headers import SPINNER
from retinue.tui.layout import ScreenSize, render_closing, render_frame
from retinue.tui.widths import text_width

BIG = ScreenSize(width=100, height=50)
EXPANDED = ScreenSize(width=100, height=50, expanded=True)


def text_of(lines):
    return ["".join(span.text for span in line) for line in lines]


def styles_of(lines, text):
    return {span.style for line in lines for span in line if text in span.text}


def failed_end(message, code=ErrorCode.ENGINE):
    return RunEnded(failure=Failure(code, message), exit_code=1, elapsed=3.2)


def test_window_has_a_header_and_the_tool_calls_of_its_run(events):
    events.start("a", name="find it", agent="explorer", provider="acme", model="big", thinking="high")
    events.add("a", ToolCalled("1", "ls", {"path": "src/"}), ToolReturned("1", "ls", "a.py\nb.py\nlib/"))
    events.add("a", ToolCalled("2", "find", {"pattern": "*.ts", "path": "src/"}))
    events.add("a", ToolReturned("2", "find", "src/a.ts\nsrc/b.ts\nsrc/c.ts"))
    lines = render_frame(events.progress(), BIG, START + 12.4)
    assert text_of(lines) == [
        "Sub-agents: 1 running • 12s",
        "⠼ find it: look • explorer • acme/big high • 2 tools • 12s / 10m • a0000000",
        "  ls → src/",
        "    2 files, 1 dir",
        "  find → *.ts in src/",
        "    3 matches",
    ]
    assert styles_of(lines, "find it") == {"name"}
    assert styles_of(lines, "⠼") == {"running"}


def test_header_does_not_repeat_the_agent_as_name_and_omits_the_default_agent(events):
    events.start("explorer", engine="offline")
    events.start("b", name="review", agent="default", engine="pi")
    assert text_of(render_frame(events.progress(), BIG, START))[1::2] == [
        "⠋ explorer: look • offline • 0 tools • 0s / 10m • explorer",
        "⠋ review: look • pi • 0 tools • 0s / 10m • b0000000",
    ]


def test_header_shows_the_sandbox_and_the_worktree_while_the_run_works(events):
    sandbox = SandboxReport(mode=SandboxMode.WORKSPACE, mechanism=SandboxMechanism.BUBBLEWRAP)
    events.start("a", sandbox=sandbox, repository="/home/ada/atlas")
    assert text_of(render_frame(events.progress(), BIG, START))[1] == (
        "⠋ a: look • sandbox workspace • worktree • 0 tools • 0s / 10m • a0000000"
    )


TODOS = {"mode": "replace", "todos": [{"text": "one"}, {"text": "two"}, {"text": "three"}]}


def test_header_counts_todos_while_some_are_open(events):
    def header():
        return text_of(render_frame(events.progress(), BIG, START))[1]

    events.start("a", name="plan")
    assert header() == "⠋ plan: look • a • 0 tools • 0s / 10m • a0000000"
    events.add("a", ToolCalled("1", "write_todos", TODOS), ToolReturned("1", "write_todos", "Wrote 3"))
    assert header() == "⠋ plan: look • a • 1 tool • [0/3] • 0s / 10m • a0000000"
    for number, indices in enumerate(([0], [1, 2]), 2):
        assert f"[{number - 2}/3]" in header()
        args = {"action": "complete", "indices": indices}
        events.add("a", ToolCalled(f"{number}", "edit_todos", args), ToolReturned(f"{number}", "edit_todos", "ok"))
    assert header() == "⠋ plan: look • a • 3 tools • 0s / 10m • a0000000"


def test_status_line_counts_runs_by_state(events):
    events.start("one")
    events.start("two")
    events.queue("three")
    events.add("one", Text("found it"), RunEnded(text="found it", elapsed=7.4))
    events.add("two", failed_end("It broke."))
    for run, code in (("four", ErrorCode.ABORTED), ("five", ErrorCode.TIMEOUT), ("six", ErrorCode.INTERRUPTED)):
        events.start(run)
        events.add(run, failed_end("It ended.", code))
    assert text_of(render_frame(events.progress(), BIG, START + 99)) == [
        "Sub-agents: 1 queued, 1 done, 1 failed, 1 timed out, 1 cancelled, 1 interrupted • 1m 39s",
        "✓ one: look • 0 tools • 7.4s • one00000",
        "  found it",
        "✗ two: look • 0 tools • failed • 3.2s • two00000",
        "  It broke.",
        "○ three: look • queued • three000",
        "■ four: look • 0 tools • cancelled • 3.2s • four0000",
        "  It ended.",
        "✗ five: look • 0 tools • timed out • 3.2s • five0000",
        "  It ended.",
        "■ six: look • 0 tools • interrupted • 3.2s • six00000",
        "  It ended.",
    ]


def test_tokens_and_cost_are_shown_per_run_and_for_all_runs_once_known(events):
    events.start("one")
    events.start("two")
    events.add("one", MessageEnded(stop_reason="stop", usage=Usage(input=11_000, output=500, cost=0.32, turns=1)))
    lines = text_of(render_frame(events.progress(), BIG, START + 3))
    assert lines[0] == "Sub-agents: 2 running • 3s • 12k tokens • $0.32"
    assert lines[1] == "⠋ one: look • 0 tools • 12k tokens • $0.32 • 3s / 10m • one00000"
    assert lines[3] == "⠋ two: look • 0 tools • 3s / 10m • two00000"


def test_cost_is_left_out_where_the_price_of_a_part_is_unknown(events):
    events.start("one", timeout=0.0)
    events.add("one", MessageEnded(stop_reason="stop", usage=Usage(input=900, turns=1)))
    assert text_of(render_frame(events.progress(), BIG, START))[:2] == [
        "Sub-agents: 1 running • 0s • 900 tokens",
        "⠋ one: look • 0 tools • 900 tokens • 0s • one00000",
    ]


def test_task_is_cut_to_the_width_and_left_out_after_other_facts(events):
    task = "Where are slow watchers handled, and what happens to the events that they miss?"
    events.start("one", name="explorer", agent="explorer", engine="scripted", task=task)

    def header(columns):
        return text_of(render_frame(events.progress(), ScreenSize(width=columns, height=9), START))[1]

    assert header(150) == f"⠋ explorer: {task} • scripted • 0 tools • 0s / 10m • one00000"
    assert header(80) == "⠋ explorer: Where are slow watchers… • scripted • 0 tools • 0s / 10m • one00000"
    assert header(60) == "⠋ explorer: Where are slow… • 0 tools • 0s / 10m • one00000"
    assert header(40) == "⠋ explorer • 0s / 10m • one00000"


def test_runs_of_the_same_name_show_their_tasks_before_other_facts(events):
    for run, task in (("one", "Find the bus that carries events."), ("two", "Find the parser of the configuration.")):
        events.start(
            run, name="explorer", agent="explorer", provider="acme", model="big-1", thinking="high", task=task
        )
    assert text_of(render_frame(events.progress(), ScreenSize(width=60, height=9), START))[1::2] == [
        "⠋ explorer: Find the bus that carries… • 0s / 10m • one00000",
        "⠋ explorer: Find the parser of the co… • 0s / 10m • two00000",
    ]


def test_parent_that_waits_for_child_runs_shows_their_number(events):
    events.start("top")
    for run in ("a", "b", "c"):
        events.start(run, parent="top", depth=2)
    events.add("c", RunEnded(elapsed=1.0), parent="top", depth=2)
    lines = render_frame(events.progress(), BIG, START)
    assert text_of(lines)[1] == "◌ top: look • 0 tools • waiting for 2 • 0s / 10m • top00000"
    events.add("top", TextDelta("Meanwhile"))
    assert text_of(render_frame(events.progress(), BIG, START))[1] == "⠋ top: look • 0 tools • 0s / 10m • top00000"


def test_wide_screen_shows_windows_in_two_columns_without_parting_a_tree(events):
    for run in ("one", "two", "three"):
        events.start(run)
        events.add(run, Text(f"{run} says " + "a long sentence " * 8))
    events.start("child", parent="one", depth=2)
    lines = text_of(render_frame(events.progress(), ScreenSize(width=160, height=12), START))
    columns = [[part.rstrip() for part in line.split(" │ ")] for line in lines[1:]]
    assert [
        [part for part in row if not part.startswith("  ")] for row in columns if row[0].startswith(("◌", "⠋", "↳"))
    ] == [
        [
            "◌ one: look • 0 tools • waiting for 1 • 0s / 10m • one00000",
            "⠋ two: look • 0 tools • 0s / 10m • two00000",
        ],
        ["↳ ⠋ child: look • 0 tools • 0s / 10m • child000", "⠋ three: look • 0 tools • 0s / 10m • three000"],
    ]
    assert len(text_of(render_frame(events.progress(), ScreenSize(width=159, height=12), START))[1].split(" │ ")) == 1


def test_two_columns_have_room_for_twice_as_many_runs(events):
    for number in range(20):
        events.start(f"run-{number}")
    lines = text_of(render_frame(events.progress(), ScreenSize(width=160, height=8), START))
    assert lines[-1] == "… and 8 more"
    assert [line.count("run-") for line in lines[1:-1]] == [2 * len(["name", "id"])] * 6


def test_elapsed_time_counts_while_a_run_is_active_and_stops_at_its_end(events):
    events.start("one")
    assert "• 5s / 10m" in text_of(render_frame(events.progress(), BIG, START + 5))[1]
    assert "• 5s / 10m" in text_of(render_frame(events.progress(), BIG, START + 5.9))[1]
    assert "• 6s / 10m" in text_of(render_frame(events.progress(), BIG, START + 6))[1]
    events.add("one", RunEnded(elapsed=6.7))
    assert text_of(render_frame(events.progress(), BIG, START + 500))[:2] == [
        "Sub-agents: 1 done • 6.7s",
        "✓ one: look • 0 tools • 6.7s • one00000",
    ]


def test_header_shows_the_timeout_of_the_run(events):
    events.start("one", timeout=5.0)
    assert text_of(render_frame(events.progress(), BIG, START + 31))[1].endswith("• 31s / 5s • one00000")


def test_run_that_never_started_shows_no_time(events):
    events.queue("one")
    events.add("one", RunEnded(failure=Failure(ErrorCode.UNKNOWN_AGENT, "Unknown agent: one.")))
    assert text_of(render_frame(events.progress(), BIG, START + 5)) == [
        "Sub-agents: 1 failed • 0.0s",
        "✗ one: look • failed • one00000",
        "  Unknown agent: one.",
        "Session: one00000",
    ]


def test_streamed_text_is_shown_before_it_is_complete(events):
    events.start("one")
    events.add("one", Text("First.\n\n- point"), TextDelta("And th"), TextDelta("en\n  indented"))
    assert text_of(render_frame(events.progress(), BIG, START))[2:] == [
        "  First.",
        "  - point",
        "  And then",
        "    indented",
    ]


def test_run_without_output_shows_a_placeholder(events):
    events.start("one")
    assert text_of(render_frame(events.progress(), BIG, START))[2:] == ["  (starting...)"]
    assert text_of(render_frame(events.progress(), EXPANDED, START))[2:] == ["  (no output)"]


def test_tool_calls_are_muted_below_the_name_of_the_tool_and_failures_have_a_sign(events):
    events.start("one")
    events.add("one", ToolCalled("1", "bash", {"command": "make"}), ToolReturned("1", "bash", "boom", is_error=True))
    events.add("one", Notice("storage", "disk full"), MessageEnded(stop_reason="stop"), failed_end("it broke"))
    lines = render_frame(events.progress(), BIG, START)
    assert [[(span.text, span.style) for span in line if span.text.strip()] for line in lines[2:5]] == [
        [("bash", "tool"), (" → make", "muted")],
        [("✗ boom", "error")],
        [("! disk full", "warning")],
    ]
    assert styles_of(lines, "it broke") == {"error"}


def test_window_shows_its_newest_lines(events):
    events.start("one")
    events.add("one", *(Text(f"line {number}") for number in range(100)))
    shown = text_of(render_frame(events.progress(), ScreenSize(width=80, height=50, max_lines=3), START))
    assert shown[2:] == ["  line 97", "  line 98", "  line 99"]


def test_expanded_window_fills_the_screen(events):
    events.start("one")
    events.add("one", *(Text(f"line {number}") for number in range(100)))
    shown = text_of(
        render_frame(events.progress(), ScreenSize(width=80, height=50, max_lines=3, expanded=True), START)
    )
    assert shown[2:] == [f"  line {number}" for number in range(52, 100)]


PARAGRAPH = " ".join(f"word{number}" for number in range(1, 150))


@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize("event", [Text(PARAGRAPH), TextDelta(PARAGRAPH)], ids=lambda event: type(event).__name__)
def test_long_line_is_wrapped_and_its_newest_words_are_shown(events, event, expanded):
    events.start("one")
    events.add("one", event)
    whole = text_of(render_frame(events.progress(), ScreenSize(width=80, height=23, expanded=expanded), START))[2:]
    assert " ".join(line.strip() for line in whole) == PARAGRAPH
    assert all(line.startswith("  word") for line in whole)
    low = text_of(render_frame(events.progress(), ScreenSize(width=80, height=5, expanded=expanded), START))[2:]
    assert low == whole[-3:]


def test_long_tool_call_is_cut_and_wrapped_only_where_it_is_expanded(events):
    events.start("one")
    events.add("one", ToolCalled("1", "bash", {"command": PARAGRAPH}))
    (cut,) = text_of(render_frame(events.progress(), ScreenSize(width=80, height=23), START))[2:]
    assert cut.endswith("…")
    whole = text_of(render_frame(events.progress(), ScreenSize(width=80, height=23, expanded=True), START))[2:]
    assert " ".join(line.strip() for line in whole).startswith("bash → word1 word2 ")
    assert len(whole) > 10


def test_wrapped_line_in_another_script_keeps_every_character(events):
    events.start("one")
    text = "課題" * 100 + " e\u0301🎉 " + "end"
    events.add("one", Text(text))
    lines = text_of(render_frame(events.progress(), ScreenSize(width=41, height=23, expanded=True), START))[2:]
    assert "".join(line.strip() for line in lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        ({"status": "SUCCESS", "result": "## Found\n- a\n  - b"}, ["SUCCESS", "## Found", "- a", "  - b"]),
        ({"status": "ERROR", "error": "No access.", "result": "half"}, ["ERROR", "✗ No access.", "half"]),
        ({"status": "SUCCESS", "result": {"a": [1]}}, ["SUCCESS", "{", '  "a": [', "    1", "  ]", "}"]),
        ({"status": ["x"], "result": None}, ["['x']"]),
    ],
)
def test_finalized_answer_is_shown_as_its_text(events, args, lines):
    events.start("one")
    events.add("one", ToolCalled("1", "subagent_finalize", args), ToolReturned("1", "subagent_finalize", "ok"))
    shown = [line.removeprefix("  ") for line in text_of(render_frame(events.progress(), BIG, START))[2:]]
    assert shown == [f"subagent_finalize → {lines[0]}", *lines[1:]]


@pytest.mark.parametrize(
    ("provider", "model", "shown"),
    [
        ("local", "scripted-1", "local/scripted-1 low"),
        ("local", "local/scripted-1", "local/scripted-1 low"),
        ("openrouter", "local/scripted-1", "openrouter/local/scripted-1 low"),
        (None, "local/scripted-1", "local/scripted-1 low"),
        ("local", None, "local low"),
    ],
)
def test_header_names_the_provider_once(events, provider, model, shown):
    events.start("one", provider=provider, thinking="low")
    events.add("one", MessageEnded(model=model, stop_reason="stop"))
    assert (
        text_of(render_frame(events.progress(), BIG, START))[1]
        == f"⠋ one: look • {shown} • 0 tools • 0s / 10m • one00000"
    )


def test_selected_run_is_marked_and_visible(events):
    for number in range(20):
        events.start(f"run-{number}")
        events.add(f"run-{number}", RunEnded(elapsed=1.0))
    events.start("busy")
    screen = ScreenSize(width=80, height=6, selected="run-11")
    assert [
        re.split(" •|:(?=.*look)", line)[0] for line in text_of(render_frame(events.progress(), screen, START))
    ] == [
        "Sub-agents: 1 running, 20 done",
        "  ✓ run-9",
        "  ✓ run-10",
        "› ✓ run-11",
        "  ✓ run-12",
        "… and 17 more",
    ]


def test_session_ids_are_shown_once_all_runs_have_ended(events):
    events.start("one")
    events.start("two")
    events.add("one", RunEnded(elapsed=1.0))
    assert "Session" not in text_of(render_frame(events.progress(), BIG, START))[-1]
    events.add("two", RunEnded(elapsed=1.0))
    assert text_of(render_frame(events.progress(), BIG, START))[-1] == "Sessions: one00000, two00000"


def test_low_screen_gives_most_lines_to_running_runs(events):
    for run in ("one", "two", "three"):
        events.start(run)
        events.add(run, *(Text(f"{run} {number}") for number in range(10)))
    events.add("one", RunEnded(elapsed=1.0))
    assert text_of(render_frame(events.progress(), ScreenSize(width=80, height=8), START)) == [
        "Sub-agents: 2 running, 1 done • 1s",
        "✓ one: look • 0 tools • 1.0s • one00000",
        "⠋ two: look • 0 tools • 0s / 10m • two00000",
        "  two 8",
        "  two 9",
        "⠋ three: look • 0 tools • 0s / 10m • three000",
        "  three 8",
        "  three 9",
    ]


def test_runs_without_a_row_are_counted_and_running_ones_stay_visible(events):
    for number in range(10):
        events.start(f"run-{number}")
        if number < 8:
            events.add(f"run-{number}", RunEnded(elapsed=1.0))
    assert text_of(render_frame(events.progress(), ScreenSize(width=80, height=5), START)) == [
        "Sub-agents: 2 running, 8 done • 1s",
        "✓ run-0: look • 0 tools • 1.0s • run-0000",
        "⠋ run-8: look • 0 tools • 0s / 10m • run-8000",
        "⠋ run-9: look • 0 tools • 0s / 10m • run-9000",
        "… and 7 more",
    ]


def test_child_runs_are_shown_below_their_parent(events):
    events.start("top")
    events.start("other")
    events.start("below", parent="top", depth=2)
    events.add("below", Text("deep"), parent="top", depth=2)
    assert text_of(render_frame(events.progress(), BIG, START)) == [
        "Sub-agents: 3 running • 0s",
        "◌ top: look • 0 tools • waiting for 1 • 0s / 10m • top00000",
        "  (starting...)",
        "↳ ⠋ below: look • 0 tools • 0s / 10m • below000",
        "    deep",
        "⠋ other: look • 0 tools • 0s / 10m • other000",
        "  (starting...)",
    ]


def test_agent_text_cannot_move_the_cursor_or_hide(events):
    events.start("evil", name="a\x1b[2Jb\nc")
    events.add("evil", Text("\x1b]0;title\x07red\x1b[31m\rover"), ToolCalled("1", "bash", {"command": "\x1b[1mx"}))
    events.add("evil", failed_end("bad\x1b[0m\nnews\u202e"))
    drawn = "\n".join(text_of(render_frame(events.progress(), BIG, START)))
    assert "\x1b" not in drawn
    assert "\r" not in drawn
    assert "\u202e" not in drawn
    assert "⟨U+202E⟩" in drawn


def test_closing_frame_has_headers_totals_and_short_session_ids(events):
    events.start("one")
    events.start("two")
    events.add("one", Text("answer"), RunEnded(elapsed=1.0))
    events.add("two", failed_end("it broke"))
    assert text_of(render_closing(events.progress(), ScreenSize(width=26, height=5), START + 9)) == [
        "Sub-agents: 1 done, 1 fai…",
        "✓ one • 1.0s • one00000",
        "✗ two • failed • 3.2s • t…",
        "Sessions: one00000,",
        "two00000",
    ]


def test_closing_frame_shows_failures_of_child_runs_and_of_unprinted_top_runs(events):
    events.start("top")
    events.start("below", parent="top", depth=2)
    events.add("below", failed_end("it broke\nMend it."), parent="top", depth=2)
    events.add("top", failed_end("no answer"))
    screen = ScreenSize(width=60, height=9)
    printed = text_of(render_closing(events.progress(), screen, START + 9))
    watched = text_of(render_closing(events.progress(), screen, START + 9, results_printed=False))
    assert printed == [
        "Sub-agents: 2 failed • 3.2s",
        "✗ top: look • 0 tools • failed • 3.2s • top00000",
        "↳ ✗ below: look • 0 tools • failed • 3.2s • below000",
        "    it broke",
        "Session: top00000",
    ]
    assert watched == [*printed[:2], "  no answer", *printed[2:]]


def test_closing_frame_has_one_line_for_a_cancelled_run(events):
    events.start("top")
    events.start("below", parent="top", depth=2)
    events.add("below", failed_end("Stopped.", ErrorCode.ABORTED), parent="top", depth=2)
    events.add("top", failed_end("Stopped.", ErrorCode.ABORTED))
    closing = render_closing(events.progress(), ScreenSize(width=60, height=9), START + 9, results_printed=False)
    assert text_of(closing) == [
        "Sub-agents: 2 cancelled • 3.2s",
        "■ top: look • 0 tools • cancelled • 3.2s • top00000",
        "↳ ■ below: look • 0 tools • cancelled • 3.2s • below000",
        "Session: top00000",
    ]


def test_failure_of_several_lines_is_shown_in_several_lines(events):
    events.start("one")
    events.add("one", failed_end("The provider failed: 401 invalid key\nIt left no text. Check the key or login."))
    assert text_of(render_frame(events.progress(), ScreenSize(width=60, height=9), START + 9))[2:-1] == [
        "  The provider failed: 401 invalid key",
        "  It left no text. Check the key or login.",
    ]


def test_spinner_depends_only_on_the_clock(events):
    events.start("one")
    icons = {text_of(render_frame(events.progress(), BIG, START + tenth / 10))[1][0] for tenth in range(10)}
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
def test_frame_is_never_larger_than_its_screen(run_events, columns, rows, max_lines, expanded, selected):
    events = EventStory()
    for run in dict.fromkeys(run for run, _ in run_events):
        events.start(run, name=f"name of {run}")
    for run, event in run_events:
        events.add(run, event)
    screen = ScreenSize(width=columns, height=rows, max_lines=max_lines, expanded=expanded, selected=selected)
    lines = text_of(render_frame(events.progress(), screen, START))
    assert len(lines) <= rows
    assert all(text_width(line) <= columns for line in lines)
