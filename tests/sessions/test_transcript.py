"""A session as a conversation and as text."""

from retinue.events import (
    AttemptStarted,
    Finalized,
    MessageEnded,
    ModelChanged,
    Notice,
    Origin,
    RunEnded,
    RunQueued,
    RunStarted,
    Stamped,
    Text,
    Thinking,
    ToolCalled,
    ToolReturned,
)
from retinue.results import Finalization
from retinue.sessions.store import INTERRUPTED
from retinue.sessions.transcript import NO_RESULT, Transcript, messages
from retinue.types import Message, ToolUse

SESSION = "abcdef01" * 4


def queued(task="Find it"):
    return RunQueued(name="e", agent="explorer", task=task, cwd="/", surface="single")


def stamped(*events, run=SESSION):
    origin = Origin(run=run, session=SESSION, root="r", parent_tool_use_id="c")
    return [Stamped(origin, seq, 1.0, event) for seq, event in enumerate(events, 1)]


def said(*events):
    return messages(stamped(queued(), RunStarted(), AttemptStarted(1, "first"), *events))


TASK = Message(role="user", text="Find it")
CALL = ToolUse("c1", "grep", {"pattern": "x"})
OTHER = ToolUse("c2", "read", {"path": "y"})


def called(use):
    return ToolCalled(use.id, use.name, use.args)


def test_a_run_is_its_task_its_calls_their_results_and_its_answer():
    assert said(
        Thinking("hm"),
        Text("I look."),
        called(CALL),
        called(OTHER),
        MessageEnded(stop_reason="tool_use"),
        ToolReturned("c2", "read", "content"),
        ToolReturned("c1", "grep", "no such file", is_error=True),
        Text("It is"),
        Text("main.py"),
        MessageEnded(stop_reason="stop"),
        RunEnded(text="It is\n\nmain.py"),
    ) == (
        TASK,
        Message(role="assistant", text="I look.", calls=(CALL, OTHER)),
        Message(role="tool", text="content", call="c2"),
        Message(role="tool", text="no such file", call="c1", is_error=True),
        Message(role="assistant", text="It is\n\nmain.py"),
    )


def test_the_order_in_which_an_engine_ends_its_messages_does_not_matter():
    expected = (
        TASK,
        Message(role="assistant", text="I look.", calls=(CALL,)),
        Message(role="tool", text="found", call="c1"),
        Message(role="assistant", text="Done."),
    )
    ended = MessageEnded(stop_reason="tool_use")
    result = ToolReturned("c1", "grep", "found")
    rest = (Text("Done."), MessageEnded(stop_reason="stop"))
    assert said(Text("I look."), called(CALL), ended, result, *rest) == expected
    assert said(Text("I look."), called(CALL), result, ended, *rest) == expected
    assert said(Text("I look."), ended, called(CALL), result, *rest) == expected


def test_a_call_that_was_never_answered_is_answered_for_the_provider():
    assert said(called(CALL), RunEnded(failure=INTERRUPTED)) == (
        TASK,
        Message(role="assistant", calls=(CALL,)),
        Message(role="tool", text=NO_RESULT, call="c1", is_error=True),
    )


def test_a_message_that_broke_off_is_left_out():
    assert said(
        Text("I beg"),
        MessageEnded(stop_reason="error", error="overloaded"),
        AttemptStarted(2, "retry"),
        Text("I begin."),
        MessageEnded(stop_reason="stop"),
    ) == (TASK, Message(role="assistant", text="I begin."))


def test_a_pruned_run_still_has_its_answer():
    events = stamped(queued(), RunStarted(), RunEnded(text="It is main.py")) + stamped(
        queued("And now?"), Text("Now what?"), RunEnded(text="Now what?"), run="b" * 32
    )
    assert messages(events) == (
        TASK,
        Message(role="assistant", text="It is main.py"),
        Message(role="user", text="And now?"),
        Message(role="assistant", text="Now what?"),
    )


def test_a_result_without_a_call_is_nobodys():
    assert said(ToolReturned("c9", "grep", "stray"), Text("ok")) == (TASK, Message(role="assistant", text="ok"))


def test_nothing_is_no_conversation():
    assert messages([]) == ()


def test_a_transcript_reads_from_top_to_bottom():
    transcript = Transcript()
    events = stamped(
        queued(),
        RunStarted(),
        Text("I look.\nTwice."),
        ToolCalled("c1", "grep", {"pattern": "x" * 200}),
        ToolReturned("c1", "grep", "y" * 600),
        ToolReturned("c2", "read", "gone", is_error=True),
        MessageEnded(stop_reason="error", error="overloaded"),
        ModelChanged("one", "two", "rate_limit"),
        Notice("storage", "not saved"),
        Finalized(Finalization("SUCCESS", "all good")),
        Finalized(Finalization("ERROR", None, "could not")),
        RunEnded(text="I look."),
    ) + stamped(queued("More"), RunEnded(failure=INTERRUPTED), run="12345678" * 4)
    assert [line for event in events for line in transcript.lines(event)] == [
        "=== Run 1: explorer (abcdef01) ===",
        "Task: Find it",
        "I look.\nTwice.",
        '→ grep: {"pattern":"' + "x" * 108,
        "[tool result]: " + "y" * 500 + "...",
        "[tool error]: gone",
        "[Error: overloaded]",
        "[model: two (rate_limit)]",
        "[storage: not saved]",
        "[finalized SUCCESS]: all good",
        "[finalized ERROR]: could not",
        "[completed]",
        "",
        "=== Run 2: explorer (12345678) ===",
        "Task: More",
        "[Error: Session was interrupted (main agent session ended unexpectedly)]",
    ]
