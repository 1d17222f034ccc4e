"""The answer, failure, facts and bounds of an attempt."""

import time
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    CONTINUED_NOTICE_CODE,
    EngineSessionStarted,
    Finalized,
    MessageEnded,
    Notice,
    OutputBytesCounted,
    ProcessEnded,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolDelta,
    ToolReturned,
)
from retinue.model.results import AnswerStatus, Finalization, ProcessEnd, Usage
from retinue.model.runs import ToolUse
from retinue.output.answer import (
    MAX_MESSAGE_CHARS,
    MAX_NOTICES,
    MAX_TOOL_NAMES,
    AnswerCollector,
    BoundedItems,
    BoundedText,
    claims_work,
)

FINAL, PARTIAL, DIAGNOSIS, NONE = AnswerStatus.FINAL, AnswerStatus.PARTIAL, AnswerStatus.DIAGNOSIS, AnswerStatus.NONE
STOP = MessageEnded(stop_reason="stop")
CALL = ToolCalled("c1", "grep", {"pattern": "x"})
TOOL_USE = MessageEnded(stop_reason="tool_use")
RETURNED = ToolReturned("c1", "grep", "found")
GOES_ON = Notice(CONTINUED_NOTICE_CODE, "It goes on.")


def message_end(reason, **facts):
    return MessageEnded(stop_reason=reason, **facts)


def collect(*events):
    collector = AnswerCollector()
    for event in events:
        collector.observe(event)
    return collector


# -- the answer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "answer"),
    [
        ((Text("one"), Text(""), Text(" \n"), Text("two"), STOP), ("one\ntwo", FINAL)),
        ((Text("look"), CALL, TOOL_USE, RETURNED, Text("done"), STOP), ("done", FINAL)),
        ((Text("done"), STOP, message_end("stop")), ("done", FINAL)),
        ((Text("done"), STOP, Text("more"), CALL, TOOL_USE), ("done", FINAL)),
        ((TextDelta("do"), TextDelta("ne"), STOP), ("done", FINAL)),
        ((TextDelta("do"), TextDelta("ne"), Text("done"), STOP), ("done", FINAL)),
        ((Text("API Error: timeout, rate limit"), STOP), ("API Error: timeout, rate limit", FINAL)),
        ((Text("half"), message_end("length")), ("half", PARTIAL)),
        ((Text("half"), message_end("length"), Text("done"), STOP), ("done", FINAL)),
        ((Text("half an ans"), message_end("length"), GOES_ON, Text("wer"), STOP), ("half an answer", FINAL)),
        ((Text("a"), message_end("length"), GOES_ON, Text("b"), message_end("error")), ("ab", PARTIAL)),
        ((Text("half an ans"), message_end("length"), GOES_ON, TextDelta("we")), ("half an answe", PARTIAL)),
        (
            (Text("I look"), CALL, TOOL_USE, RETURNED, message_end("length"), GOES_ON, Text("done"), STOP),
            ("done", FINAL),
        ),
        (
            (Text("half"), message_end("length"), GOES_ON, CALL, TOOL_USE, RETURNED, Text("done"), STOP),
            ("done", FINAL),
        ),
        ((Text("half"), message_end("error", error="500")), ("half", PARTIAL)),
        ((Text("half"), message_end("aborted")), ("half", PARTIAL)),
        ((Text("done"), STOP, Text("half"), message_end("error")), ("half", PARTIAL)),
        ((Text("look"), CALL, TOOL_USE, RETURNED), ("look", PARTIAL)),
        ((Text("first"), TOOL_USE, Text("second"), TOOL_USE, message_end("error")), ("second", PARTIAL)),
        ((Text("look"), CALL, TOOL_USE, TextDelta("I fo"), TextDelta("und")), ("I found", PARTIAL)),
        ((Text("whole block"), TextDelta("and a ha")), ("whole block\nand a ha", PARTIAL)),
        ((Finalized(Finalization("SUCCESS", "result")), Text("chat"), STOP), ("result", FINAL)),
        ((Finalized(Finalization("ERROR", error="could not")),), ("could not", FINAL)),
        ((Finalized(Finalization("ERROR", "found so far", "could not")),), ("found so far", FINAL)),
        ((), ("", NONE)),
    ],
)
def test_answer_is_the_best_available_text(events, answer):
    assert collect(*events).best_answer() == answer


def test_attempt_without_text_answers_with_a_diagnosis():
    text, kind = collect(CALL, TOOL_USE, RETURNED, CALL, TOOL_USE, RETURNED, message_end("error")).best_answer()
    assert kind is DIAGNOSIS
    assert text == (
        "Subagent produced JSONL events but no final assistant text could be extracted.\n"
        "Last event type: message_ended.\n"
        "Last assistant stop reason: error.\n"
        "Tool executions completed: 2."
    )


def test_diagnosis_has_only_known_facts():
    assert collect(Thinking("hm"), ProcessEnded(ProcessEnd(1))).best_answer() == (
        "Subagent produced JSONL events but no final assistant text could be extracted.\nLast event type: thinking.",
        DIAGNOSIS,
    )


def test_diagnosis_of_an_idle_agent_has_no_events():
    assert collect(OutputBytesCounted(raw=5), ProcessEnded(ProcessEnd(1))).best_answer() == (
        "The subagent ended without a message and without a tool call.",
        DIAGNOSIS,
    )


# -- the failure -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "events",
    [
        (Text("done"), STOP),
        (message_end("error", error="overloaded"), Text("done"), STOP),
        (Text("done"), STOP, message_end("stop")),
        (CALL, TOOL_USE, Finalized(Finalization("SUCCESS", "result")), RETURNED),
        (Finalized(Finalization("ERROR", error="could not")), message_end("error", error="late")),
    ],
)
def test_good_end_is_no_failure(events):
    collector = collect(*events)
    assert collector.find_failure() is None
    assert collector.has_final_answer


@pytest.mark.parametrize(
    ("events", "failure"),
    [
        (
            (Text("half"), message_end("error", error="429 rate limit")),
            Failure(
                ErrorCode.PROVIDER,
                "The model provider failed: 429 rate limit\n"
                "The partial answer was kept. Try again later, or give the agent fallback_models.",
                "rate_limit",
            ),
        ),
        (
            (message_end("error"),),
            Failure(
                ErrorCode.PROVIDER,
                "The model provider failed: no reason given\n"
                "The answer is empty; the session has the tool calls. Run the task again, or use another model.",
                "other",
            ),
        ),
        (
            (Text("half"), message_end("aborted")),
            Failure(
                ErrorCode.ABORTED,
                "The agent's last turn was aborted. The partial answer was kept. Run the task again, or resume the "
                "session.",
                "aborted",
            ),
        ),
        (
            (Text("half"), message_end("length")),
            Failure(
                ErrorCode.OUTPUT_LIMIT,
                "The model reached its output limit before the answer was complete. The partial answer was kept. "
                "Ask for a shorter answer, split the task, or use a model with a larger limit.",
                "length",
            ),
        ),
        (
            (Text("look"), CALL, TOOL_USE, RETURNED),
            Failure(
                ErrorCode.ENGINE,
                "The agent ended without a final message. The partial answer was kept. "
                "Run the task again, or resume the session.",
                "no_final_message",
            ),
        ),
        (
            (CALL, TOOL_USE, RETURNED, Text(" "), STOP),
            Failure(
                ErrorCode.ENGINE,
                "The agent's last message is empty. The answer is empty; the session has the tool calls. "
                "Run the task again, or resume the session.",
                "empty_answer",
            ),
        ),
    ],
)
def test_bad_end_is_a_failure_with_kept_output_and_advice(events, failure):
    collector = collect(*events)
    assert collector.find_failure() == failure
    assert not collector.has_final_answer


def test_attempt_without_events_has_no_final_message():
    failure = AnswerCollector().find_failure()
    assert failure is not None
    assert failure.reason == "no_final_message"


def test_long_provider_error_is_cut_to_its_start():
    failure = collect(message_end("error", error="overloaded " + "x" * 100_000)).find_failure()
    assert failure is not None
    assert len(failure.message) < 2500
    assert failure.reason == "overloaded"


def test_answer_is_not_final_while_another_message_is_written():
    collector = collect(Text("done"), STOP)
    assert collector.has_final_answer
    collector.observe(TextDelta("on second"))
    assert not collector.has_final_answer
    assert collector.best_answer() == ("done", FINAL)


# -- the facts -------------------------------------------------------------------------------------------


def test_usage_is_summed_over_messages_and_each_is_a_turn():
    first = Usage(input=10, output=5, cache_read=3, cost=0.1, turns=1)
    second = Usage(input=20, output=7, cache_write=2)
    assert collect(
        message_end("tool_use", usage=first), message_end("stop", usage=second), message_end("stop")
    ).usage == Usage(input=30, output=12, cache_read=3, cache_write=2, cost=0.1, turns=3)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_cost_is_unknown_if_any_message_has_no_price(order):
    def total(*parts):
        return sum((parts[n] for n in order), Usage())

    free, unknown = Usage(output=5, cost=0.0), Usage(input=10, output=5)
    assert total(free, free, Usage()).cost == 0.0
    assert total(free, unknown, free).cost is None
    assert total(free, unknown, Usage(input=1, cost=0.25)).cost == 0.25, "what is known is told"


def test_model_is_that_of_the_answer():
    assert collect(Text("done"), message_end("stop", model="good"), message_end("error", model="bad")).model == "good"
    assert collect(message_end("tool_use", model="first"), message_end("error")).model == "first"
    assert AnswerCollector().model is None


def test_tool_calls_are_counted_by_name():
    write = ToolCalled("c2", "write", {"path": "x"})
    assert collect(CALL, write, CALL).tools_used == {"grep": 2, "write": 1}


def test_last_session_process_and_finalization_count():
    collector = collect(
        EngineSessionStarted("one"),
        EngineSessionStarted("two"),
        Finalized(Finalization("ERROR", error="first")),
        Finalized(Finalization("SUCCESS", "second")),
        message_end("error", error="broken"),
        ProcessEnded(ProcessEnd(code=3)),
    )
    assert collector.native_session == "two"
    assert collector.finalized == Finalization("SUCCESS", "second")
    assert (collector.stop_reason, collector.provider_error) == ("error", "broken")
    assert collector.process == ProcessEnd(code=3)


def test_overcome_provider_error_is_no_failure():
    assert collect(message_end("error", error="broken"), Text("done"), STOP).provider_error is None


def test_items_are_texts_and_tool_calls_in_order():
    events = (Text("look"), Text(" "), CALL, TOOL_USE, RETURNED, TextDelta("do"), Text("done"), STOP)
    assert collect(*events).items == ("look", ToolUse("c1", "grep", {"pattern": "x"}), "done")


def test_notices_are_unique_and_limited_to_the_newest():
    many = [Notice("retry", f"notice {i}") for i in range(MAX_NOTICES + 5)]
    assert collect(many[0], many[0], many[1]).notices == ("notice 0", "notice 1")
    assert collect(*many).notices == tuple(f"notice {i}" for i in range(5, MAX_NOTICES + 5))


# -- bounds ----------------------------------------------------------------------------------------------


def test_deltas_beyond_the_limit_are_dropped_and_counted():
    collector = collect(*[TextDelta("x" * 500)] * 20_000, OutputBytesCounted(dropped=7))
    assert collector.best_answer() == ("x" * MAX_MESSAGE_CHARS, PARTIAL)
    assert collector.dropped_bytes == 20_000 * 500 - MAX_MESSAGE_CHARS + 7


def test_cost_of_a_delta_does_not_grow_with_the_text():
    def seconds(count):
        def once():
            collector, start = AnswerCollector(), time.process_time()
            for _ in range(count):
                collector.observe(delta)
            return time.process_time() - start

        return min(once() for _ in range(3))

    delta = TextDelta("word ")
    assert seconds(40_000) < 12 * seconds(10_000) + 0.01


def test_bounded_text_has_blocks_and_later_deltas_within_its_limit():
    draft = BoundedText(limit=8)
    assert [draft.add_delta("abcd"), draft.add_block("abcdef"), draft.add_delta("gh"), draft.add_delta("ij")] == [
        0,
        0,
        0,
        2,
    ]
    assert draft.text() == "abcdef\ngh"
    assert draft.add_block("ghij") == 2
    assert draft.text() == "abcdef\ngh"


def test_bounded_items_keep_the_newest_items():
    items = BoundedItems(limit=3)
    for i in range(10):
        items.add(str(i))
    assert items.to_tuple() == ("7", "8", "9")


def test_bounded_items_keep_the_newest_text_and_cut_a_huge_item():
    items = BoundedItems(limit_chars=10)
    for text in ("old", "aaaa", "bbbb", "c"):
        items.add(text)
    assert items.to_tuple() == ("aaaa", "bbbb", "c")
    items.add("x" * 99)
    assert items.to_tuple() == ("x" * 10,)


def test_bounded_items_count_arguments_and_omit_huge_ones():
    items = BoundedItems(limit_chars=20)
    items.add("some text")
    items.add(ToolUse("c1", "write", {"content": ["x" * 99]}))
    assert items.to_tuple() == ("some text", ToolUse("c1", "write", {"[left out]": "115 characters"}))


def test_number_of_counted_tool_names_is_limited():
    used = collect(*(ToolCalled("c", f"tool{i}", {}) for i in range(MAX_TOOL_NAMES + 50))).tools_used
    assert len(used) == MAX_TOOL_NAMES + 1
    assert used["(others)"] == 50


EVENTS = st.sampled_from(
    [
        TextDelta("delta"),
        ThinkingDelta("hm"),
        ToolDelta("c1", "out"),
        Thinking("hm"),
        Text("text"),
        Text(""),
        CALL,
        RETURNED,
        STOP,
        TOOL_USE,
        message_end("error", error="500"),
        message_end("length"),
        message_end("aborted"),
        Finalized(Finalization("SUCCESS", "result")),
        Notice("n", "m"),
        ProcessEnded(ProcessEnd(0)),
    ]
)


@settings(max_examples=300, deadline=None)
@given(events=st.lists(EVENTS, max_size=12))
def test_success_has_a_final_answer_and_every_answer_a_status(events):
    collector = collect(*events)
    text, kind = collector.best_answer()
    if collector.find_failure() is None:
        assert kind is FINAL
    assert bool(text) == bool(events)
    assert (kind is NONE) == (not events)
    messages = [event for event in events if isinstance(event, MessageEnded)]
    assert collector.usage.turns == sum(message.stop_reason != "error" for message in messages)


@pytest.mark.parametrize(
    "answer",
    [
        "Done.",
        "**Done!** Everything works.",
        "All done, the parser is fixed.",
        "I've fixed the parser and added a test.",
        "I’ve implemented the feature.",
        "The login form has been successfully updated.",
        "I have now refactored utils.py.",
        "Great news: all tests now pass.",
    ],
)
def test_claim_of_finished_work_is_recognized(answer):
    assert claims_work(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "42",
        "The parser is in src/parser.py.",
        "I could not fix the parser.",
        "Nothing was done: the task is unclear.",
        "I have not changed anything.",
        "To fix this, add a test first.",
        "Which file do you mean?",
        "The function completes its work when the queue is empty.",
        "Findings: 3. " + "x" * 300 + " I have fixed it.",
    ],
)
def test_other_answers_are_no_claim(answer):
    assert not claims_work(answer)
