"""The messages of a session for an engine that continues it."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import (
    AttemptStarted,
    MessageEnded,
    RunEnded,
    RunQueued,
    RunStarted,
    Text,
    Thinking,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import AnswerStatus
from retinue.model.runs import Message, ToolUse
from retinue.sessions.memory import MemoryStore
from retinue.sessions.messages import NO_RESULT_TEXT, TASK_UNREADABLE, MessageBuilder, load_messages
from retinue.sessions.store import INTERRUPTED
from retinue.testing.stores import record_run, run_spec

SESSION = "abcdef01" * 4


def queued(task="Find it"):
    return RunQueued(name="e", agent="explorer", task=task, cwd="/", surface="single")


def records(*events, run=SESSION):
    origin = EventSource(run=run, session=SESSION, root="r", parent_tool_use_id="c")
    return [EventRecord(origin, seq, 1.0, event) for seq, event in enumerate(events, 1)]


def build_messages(events):
    builder = MessageBuilder()
    for record in events:
        builder.add(record)
    return builder.messages()


def run_messages(*events):
    return build_messages(records(queued(), RunStarted(), AttemptStarted(1, "first"), *events))


TASK = Message(role="user", text="Find it")
CALL = ToolUse("c1", "grep", {"pattern": "x"})
OTHER = ToolUse("c2", "read", {"path": "y"})


def tool_called(use):
    return ToolCalled(use.id, use.name, use.args)


def test_run_becomes_task_calls_results_and_answer():
    assert run_messages(
        Thinking("hm"),
        Text("I look."),
        tool_called(CALL),
        tool_called(OTHER),
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


def test_messages_are_equal_wherever_the_engine_ends_its_message():
    expected = (
        TASK,
        Message(role="assistant", text="I look.", calls=(CALL,)),
        Message(role="tool", text="found", call="c1"),
        Message(role="assistant", text="Done."),
    )
    ended = MessageEnded(stop_reason="tool_use")
    result = ToolReturned("c1", "grep", "found")
    rest = (Text("Done."), MessageEnded(stop_reason="stop"))
    assert run_messages(Text("I look."), tool_called(CALL), ended, result, *rest) == expected
    assert run_messages(Text("I look."), tool_called(CALL), result, ended, *rest) == expected
    assert run_messages(Text("I look."), ended, tool_called(CALL), result, *rest) == expected


def test_call_without_result_gets_an_error_result():
    assert run_messages(tool_called(CALL), RunEnded(failure=INTERRUPTED)) == (
        TASK,
        Message(role="assistant", calls=(CALL,)),
        Message(role="tool", text=NO_RESULT_TEXT, call="c1", is_error=True),
    )


def test_message_that_ended_with_an_error_is_left_out():
    assert run_messages(
        Text("I beg"),
        MessageEnded(stop_reason="error", error="overloaded"),
        AttemptStarted(2, "retry"),
        Text("I begin."),
        MessageEnded(stop_reason="stop"),
    ) == (TASK, Message(role="assistant", text="I begin."))


def test_pruned_run_keeps_its_answer():
    events = records(queued(), RunStarted(), RunEnded(text="It is main.py", answer=AnswerStatus.FINAL)) + records(
        queued("And now?"), Text("Now what?"), RunEnded(text="Now what?", answer=AnswerStatus.PARTIAL), run="b" * 32
    )
    assert build_messages(events) == (
        TASK,
        Message(role="assistant", text="It is main.py"),
        Message(role="user", text="And now?"),
        Message(role="assistant", text="Now what?"),
    )


def test_diagnosis_is_no_assistant_message():
    ended = RunEnded(text="No answer; last event: tool_called.", answer=AnswerStatus.DIAGNOSIS, failure=INTERRUPTED)
    assert run_messages(ended) == (TASK,)
    assert run_messages(tool_called(CALL), ToolReturned("c1", "grep", "found"), ended) == (
        TASK,
        Message(role="assistant", calls=(CALL,)),
        Message(role="tool", text="found", call="c1"),
    )


def test_unanswered_task_is_joined_with_the_next_task():
    events = records(queued(), RunEnded(failure=INTERRUPTED)) + records(queued("Try again"), Text("Here."))
    assert build_messages(events) == (
        Message(role="user", text="Find it\n\nTry again"),
        Message(role="assistant", text="Here."),
    )


def test_result_without_call_is_ignored():
    assert run_messages(ToolReturned("c9", "grep", "stray"), Text("ok")) == (
        TASK,
        Message(role="assistant", text="ok"),
    )


def test_result_after_later_text_still_answers_its_call():
    assert run_messages(
        tool_called(CALL),
        tool_called(OTHER),
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


def test_messages_without_a_task_start_with_a_user_message():
    assert build_messages(records(Text("Found it."))) == (
        Message(role="user", text=TASK_UNREADABLE),
        Message(role="assistant", text="Found it."),
    )


def test_no_events_become_no_messages():
    assert build_messages([]) == ()


call_ids = st.sampled_from(["c1", "c2", "c3"])
texts = st.sampled_from(["", " ", "one", "two"])
any_event = st.one_of(
    texts.map(queued),
    texts.map(Text),
    st.builds(ToolCalled, call_ids, st.just("grep"), st.just({})),
    st.builds(ToolReturned, call_ids, st.just("grep"), texts),
    st.builds(MessageEnded, stop_reason=st.sampled_from(["stop", "tool_use", "error"])),
    st.just(AttemptStarted(2, "retry")),
    st.builds(RunEnded, text=texts, answer=st.sampled_from(AnswerStatus)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(any_event, max_size=25))
def test_roles_alternate_and_every_call_is_answered_once_for_any_events(events):
    messages = build_messages(records(*events))
    assert [message.role for message in messages[:1]] in ([], ["user"])
    assert all(a.role != b.role or a.role == "tool" for a, b in pairwise(messages))
    for number, message in enumerate(messages):
        if message.role == "assistant":
            assert message.text or message.calls
            following = messages[number + 1 : number + 1 + len(message.calls)]
            assert {answer.call for answer in following} == {use.id for use in message.calls}
    assert sum(len(message.calls) for message in messages) == sum(message.role == "tool" for message in messages)


async def test_load_messages_reads_all_runs_of_a_session():
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
