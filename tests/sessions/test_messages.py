"""A session as a conversation and as text."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import (
    AttemptStarted,
    Finalized,
    MessageEnded,
    ModelChanged,
    Notice,
    RunEnded,
    RunQueued,
    RunStarted,
    Text,
    Thinking,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import AnswerStatus, Finalization
from retinue.model.runs import Message, ToolUse
from retinue.sessions.memory import MemoryStore
from retinue.sessions.messages import (
    NO_RESULT_TEXT,
    TASK_UNREADABLE,
    MessageBuilder,
    TranscriptRenderer,
    format_call,
    load_messages,
)
from retinue.sessions.store import INTERRUPTED
from retinue.testing.stores import record_run, run_spec

SESSION = "abcdef01" * 4


def queued(task="Find it"):
    return RunQueued(name="e", agent="explorer", task=task, cwd="/", surface="single")


def stamped(*events, run=SESSION):
    origin = EventSource(run=run, session=SESSION, root="r", parent_tool_use_id="c")
    return [EventRecord(origin, seq, 1.0, event) for seq, event in enumerate(events, 1)]


def conversation(events):
    told = MessageBuilder()
    for each in events:
        told.add(each)
    return told.messages()


def said(*events):
    return conversation(stamped(queued(), RunStarted(), AttemptStarted(1, "first"), *events))


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
        RunEnded(text="It is\n\nmain.py", answer=AnswerStatus.FINAL),
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
        Message(role="tool", text=NO_RESULT_TEXT, call="c1", is_error=True),
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
    events = stamped(queued(), RunStarted(), RunEnded(text="It is main.py", answer=AnswerStatus.FINAL)) + stamped(
        queued("And now?"), Text("Now what?"), RunEnded(text="Now what?", answer=AnswerStatus.PARTIAL), run="b" * 32
    )
    assert conversation(events) == (
        TASK,
        Message(role="assistant", text="It is main.py"),
        Message(role="user", text="And now?"),
        Message(role="assistant", text="Now what?"),
    )


def test_our_own_diagnosis_is_not_what_the_assistant_said():
    ended = RunEnded(text="No answer; last event: tool_called.", answer=AnswerStatus.DIAGNOSIS, failure=INTERRUPTED)
    assert said(ended) == (TASK,)
    assert said(called(CALL), ToolReturned("c1", "grep", "found"), ended) == (
        TASK,
        Message(role="assistant", calls=(CALL,)),
        Message(role="tool", text="found", call="c1"),
    )


def test_a_task_that_got_no_answer_stands_with_the_next():
    events = stamped(queued(), RunEnded(failure=INTERRUPTED)) + stamped(queued("Try again"), Text("Here."))
    assert conversation(events) == (
        Message(role="user", text="Find it\n\nTry again"),
        Message(role="assistant", text="Here."),
    )


def test_a_result_without_a_call_is_nobodys():
    assert said(ToolReturned("c9", "grep", "stray"), Text("ok")) == (TASK, Message(role="assistant", text="ok"))


def test_a_result_that_comes_after_more_words_still_answers_its_call():
    assert said(
        called(CALL),
        called(OTHER),
        ToolReturned("c1", "grep", "found"),
        Text("Meanwhile"),
        ToolReturned("c2", "read", "content"),
        MessageEnded(stop_reason="stop"),
    ) == (
        TASK,
        Message(role="assistant", calls=(CALL, OTHER)),
        Message(role="tool", text="found", call="c1"),
        Message(role="tool", text="content", call="c2"),
        Message(role="assistant", text="Meanwhile"),
    )


def test_a_conversation_that_lost_its_first_task_still_begins_with_the_user():
    assert conversation(stamped(Text("Found it."))) == (
        Message(role="user", text=TASK_UNREADABLE),
        Message(role="assistant", text="Found it."),
    )


def test_nothing_is_no_conversation():
    assert conversation([]) == ()


calls = st.sampled_from(["c1", "c2", "c3"])
words = st.sampled_from(["", " ", "one", "two"])
anything = st.one_of(
    words.map(queued),
    words.map(Text),
    st.builds(ToolCalled, calls, st.just("grep"), st.just({})),
    st.builds(ToolReturned, calls, st.just("grep"), words),
    st.builds(MessageEnded, stop_reason=st.sampled_from(["stop", "tool_use", "error"])),
    st.just(AttemptStarted(2, "retry")),
    st.builds(RunEnded, text=words, answer=st.sampled_from(AnswerStatus)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(anything, max_size=25))
def test_whatever_happened_roles_alternate_and_every_call_is_answered_once(events):
    told = conversation(stamped(*events))
    assert [message.role for message in told[:1]] in ([], ["user"])
    assert all(a.role != b.role or a.role == "tool" for a, b in pairwise(told))
    for number, message in enumerate(told):
        if message.role == "assistant":
            assert message.text or message.calls
            following = told[number + 1 : number + 1 + len(message.calls)]
            assert {answer.call for answer in following} == {use.id for use in message.calls}
    assert sum(len(message.calls) for message in told) == sum(message.role == "tool" for message in told)


async def test_a_session_is_recalled_from_its_store():
    store = MemoryStore()
    session = store.claim()
    await record_run(store, run_spec(session, task="Find it"), Text("It is main.py"))
    await record_run(store, run_spec(session, store.claim(session), task="And now?"))
    assert await load_messages(store, session) == (
        TASK,
        Message(role="assistant", text="It is main.py"),
        Message(role="user", text="And now?"),
        Message(role="assistant", text="It is main.py"),
    )
    assert await load_messages(store, store.claim()) == ()


def test_a_call_whose_arguments_are_half_characters_is_shown_escaped():
    assert format_call("grep", {"ü\ud800": ["\udfff"]}) == '→ grep: {"ü\\ud800":["\\udfff"]}'


def test_a_transcript_reads_from_top_to_bottom():
    transcript = TranscriptRenderer()
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
    assert [line for event in events for line in transcript.render_lines(event)] == [
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
