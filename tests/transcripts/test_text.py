"""The plain-text transcript."""

from msgspec import structs

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import (
    Finalized,
    MessageEnded,
    ModelChanged,
    Notice,
    RunEnded,
    RunQueued,
    RunStarted,
    Text,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Finalization
from retinue.model.runs import Compaction
from retinue.model.sandbox import SandboxMechanism, SandboxMode, SandboxReport
from retinue.sessions.store import INTERRUPTED
from retinue.transcripts.text import TextTranscript, call_line

SESSION = "abcdef01" * 4


def make_queued(task="Find it"):
    return RunQueued(name="e", agent="explorer", task=task, cwd="/", surface="single")


def records(*events, run=SESSION):
    origin = EventSource(run=run, session=SESSION, root="r", parent_tool_use_id="c")
    return [EventRecord(origin, seq, 1.0, event) for seq, event in enumerate(events, 1)]


def test_call_line_escapes_lone_surrogates_in_arguments():
    assert call_line("grep", {"ü\ud800": ["\udfff"]}) == '→ grep: {"ü\\ud800":["\\udfff"]}'


def test_text_transcript_renders_every_item_in_order():
    transcript = TextTranscript()
    events = records(
        make_queued(),
        RunStarted(),
        Text("I look.\nTwice."),
        ToolCalled("c1", "grep", {"pattern": "x" * 200}),
        ToolReturned("c1", "grep", "y" * 600),
        ToolReturned("c2", "read", "gone", is_error=True),
        MessageEnded(stop_reason="error", error="overloaded"),
        ModelChanged("one", "two", "rate_limit"),
        Notice("storage", "not saved"),
        Notice("compacted", "shorter now", Compaction(summary="It looked.", kept_turns=1)),
        Finalized(Finalization("SUCCESS", "all good")),
        Finalized(Finalization("ERROR", None, "could not")),
        RunEnded(text="I look."),
    ) + records(make_queued("More"), RunEnded(failure=INTERRUPTED), run="12345678" * 4)
    assert [line for event in events for line in transcript.render(event)] == [
        "=== Run 1: explorer (abcdef01) ===",
        "Task: Find it",
        "I look.\nTwice.",
        '→ grep: {"pattern":"' + "x" * 108,
        "[tool result]: " + "y" * 500 + "...",
        "[tool error]: gone",
        "[Error: overloaded]",
        "[model: two (rate_limit)]",
        "[storage: not saved]",
        "[compacted: shorter now]\nIt looked.",
        "[finalized SUCCESS]: all good",
        "[finalized ERROR]: could not",
        "[completed]",
        "",
        "=== Run 2: explorer (12345678) ===",
        "Task: More",
        "[Error: Session was interrupted (main agent session ended unexpectedly)]",
    ]


def test_text_transcript_begins_with_the_sandbox_and_the_worktree_of_a_run():
    sandbox = SandboxReport(mode=SandboxMode.STRICT, mechanism=SandboxMechanism.LANDLOCK, gaps=("the network",))
    queued = structs.replace(make_queued(), cwd="/w/1", sandbox=sandbox, repository="/home/ada/atlas")
    (record,) = records(queued)
    assert list(TextTranscript().render(record)) == [
        "=== Run 1: explorer (abcdef01) ===",
        "Task: Find it",
        "Sandbox: strict (landlock; not enforced: the network)",
        "Worktree: /w/1, of /home/ada/atlas",
    ]
