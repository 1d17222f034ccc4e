"""Recorded output of Claude Code parsed into events."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.engines.claude.messages import ClaudeEventReader, ClaudeMessage, ModelRequestStarted, ResultReceived
from retinue.engines.claude.wire import parse_line
from retinue.engines.json_lines import LineTooLong
from retinue.model.events import (
    Finalized,
    MessageEnded,
    Notice,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Finalization, Usage

RECORDED = Path(__file__).parent / "recorded"
MODEL = "claude-sonnet-5-5"
SESSION = "00000000-0000-4000-8000-000000000000"


def lines_of(name: str) -> list[bytes]:
    return (RECORDED / f"{name}.jsonl").read_bytes().splitlines()


def read_recording(name: str) -> list[ClaudeMessage]:
    return ClaudeEventReader().read(map(parse_line, lines_of(name)))


def line(**record: object) -> bytes:
    return json.dumps(record).encode()


def block(**content: object) -> bytes:
    return line(type="assistant", message={"id": "m", "model": "x", "content": [content], "usage": {}})


def stream_event(**event: object) -> bytes:
    return line(type="stream_event", event=event)


def test_answer_after_a_tool_call_is_parsed():
    call, used = "toolu_call_000001_0", {"file_path": "/project/a.txt"}
    first, second = (Usage(input=1154, output=22, turns=1), Usage(input=1239, output=5, cost=0.005056, turns=1))
    assert with_rounded_costs(read_recording("answer")) == [
        ModelRequestStarted(SESSION, ("Read",)),
        ThinkingDelta("Hm."),
        Thinking("Hm."),
        TextDelta("I look."),
        Text("I look."),
        ToolCalled(call, "read", used),
        MessageEnded(stop_reason="tool_use", model=MODEL, usage=first),
        ToolReturned(call, "read", "1\tthe secret word is XYZZY\n2\t"),
        TextDelta("It is XYZZY."),
        Text("It is XYZZY."),
        MessageEnded(stop_reason="stop", model=MODEL, usage=second),
        ResultReceived("success"),
    ]


def test_provider_error_is_a_message_that_ended_with_an_error():
    *_, notice, failed, ended = read_recording("provider_failed")
    assert isinstance(notice, Notice)
    assert notice.message == "Claude Code retries in 0.609s (1 of 1) after: 529 overloaded"
    assert isinstance(failed, MessageEnded)
    assert (failed.stop_reason, failed.usage) == ("error", Usage(turns=1))
    assert failed.error
    assert failed.error.startswith("529 overloaded_error: API Error: 529 scripted 529.")
    assert ended == ResultReceived("success")


def test_answer_without_a_stream_ends_with_the_next_message():
    begun, notice, *rest = read_recording("unstreamed")
    assert isinstance(begun, ModelRequestStarted)
    assert isinstance(notice, Notice)
    assert rest == [
        Text("The whole answer."),
        MessageEnded(stop_reason="stop", model="scripted-1", usage=Usage(input=1081, output=7, turns=1)),
        ResultReceived("success"),
    ]


def test_valid_finalize_call_gives_a_finalization_and_ends_the_run():
    events = [
        event
        for event in with_rounded_costs(read_recording("finalized"))
        if not isinstance(event, TextDelta | ModelRequestStarted)
    ]
    bad, good = {"status": "SUCCESS", "result": " "}, {"status": "SUCCESS", "result": "found it"}
    name, first, second = "subagent_finalize", "toolu_call_000001_0", "toolu_call_000002_0"
    assert events == [
        ToolCalled(first, name, bad),
        MessageEnded(stop_reason="tool_use", model=MODEL, usage=Usage(input=1106, output=20, turns=1)),
        ToolReturned(first, name, "SUCCESS requires a non-empty result", is_error=True),
        Text("Now."),
        ToolCalled(second, name, good),
        MessageEnded(stop_reason="tool_use", model=MODEL, usage=Usage(input=1179, output=26, cost=0.00503, turns=1)),
        ToolReturned(second, name, "finalized"),
        Finalized(Finalization("SUCCESS", "found it")),
        ResultReceived("success"),
    ]


def test_exceeded_budget_ends_the_run_with_its_cost():
    *_, called, message, broke_off, ended = with_rounded_costs(read_recording("budget_spent"))
    assert isinstance(called, ToolCalled)
    assert isinstance(message, MessageEnded)
    assert message.stop_reason == "tool_use"
    why = "Reached maximum budget ($0.001)"
    assert broke_off == MessageEnded(stop_reason="error", usage=Usage(cost=0.002468), error=why)
    assert ended == ResultReceived("error_max_budget_usd", why)


def test_budget_exceeded_within_a_message_is_reported_with_that_message():
    lines = [record for record in lines_of("budget_spent") if b'"message_stop"' not in record]
    *_, message, ended = with_rounded_costs(ClaudeEventReader().read(map(parse_line, lines)))
    assert message == MessageEnded(
        stop_reason="tool_use", model=MODEL, usage=Usage(input=1169, output=13, cost=0.002468, turns=1)
    )
    assert isinstance(ended, ResultReceived)


def test_cost_after_a_reported_answer_adds_no_message():
    reader, lines = ClaudeEventReader(), list(map(parse_line, lines_of("answer")))
    reader.read(lines[:-1])
    assert isinstance(reader.release_held()[0], MessageEnded)
    assert reader.read(lines[-1:]) == [ResultReceived("success")]


def test_the_last_message_is_held_back_until_the_run_is_over():
    reader, lines = ClaudeEventReader(), list(map(parse_line, lines_of("answer")))
    before = reader.read(lines[:-1])
    assert isinstance(before[-1], Text)
    (ended,) = reader.release_held()
    assert isinstance(ended, MessageEnded)
    assert reader.read(lines[-1:]) == [ResultReceived("success")]


def test_cut_off_answer_is_reported_before_the_next_message():
    start = stream_event(type="message_start", message={"id": "m1", "model": "x"})
    half = stream_event(type="content_block_delta", delta={"type": "text_delta", "text": "half"})
    again = stream_event(type="message_start", message={"id": "m2", "model": "x"})
    cut, ended = ClaudeEventReader().read(map(parse_line, [start, half, again]))
    assert cut == TextDelta("half")
    assert isinstance(ended, MessageEnded)
    assert (ended.stop_reason, ended.error) == ("error", "The answer ended before it was complete.")


def test_tool_result_waits_for_the_end_of_its_message():
    def use(call: str) -> bytes:
        return block(type="tool_use", id=call, name="Read", input={})

    def result(call: str) -> bytes:
        content = [{"type": "tool_result", "tool_use_id": call, "content": call}]
        return line(type="user", message={"content": content})

    start = stream_event(type="message_start", message={"id": "m", "model": "x", "usage": {"input_tokens": 7}})
    rest = [stream_event(type="message_delta", delta={"stop_reason": "tool_use"}), stream_event(type="message_stop")]
    lines = [start, use("c1"), result("c1"), use("c2"), *rest, result("c2")]
    assert ClaudeEventReader().read(map(parse_line, lines)) == [
        ToolCalled("c1", "read", {}),
        ToolCalled("c2", "read", {}),
        MessageEnded(stop_reason="tool_use", model="x", usage=Usage(input=7, turns=1)),
        ToolReturned("c1", "read", "c1"),
        ToolReturned("c2", "read", "c2"),
    ]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_tokens", "length"), ("refusal", "error"), ("stop_sequence", "stop"), ("a_new_one", "error")],
)
def test_stop_reasons_map_to_stop_reasons_of_events(reason, stop):
    reader = ClaudeEventReader()
    reader.read(
        map(
            parse_line,
            [block(type="text", text="x"), stream_event(type="message_delta", delta={"stop_reason": reason})],
        )
    )
    (ended,) = reader.finish()
    assert isinstance(ended, MessageEnded)
    assert ended.stop_reason == stop
    assert bool(ended.error) == (stop == "error")


def test_messages_of_native_agents_are_left_out():
    inner = {"id": "m", "model": "x", "content": [{"type": "text", "text": "inner"}]}
    assert (
        ClaudeEventReader().read([parse_line(line(type="assistant", message=inner, parent_tool_use_id="toolu_1"))])
        == []
    )


def test_tool_result_of_an_earlier_run_is_left_out():
    result = {"type": "tool_result", "tool_use_id": "old", "content": "x"}
    assert ClaudeEventReader().read([parse_line(line(type="user", message={"content": [result]}))]) == []


def test_lines_that_are_no_messages_are_counted():
    reader = ClaudeEventReader()
    lines: list[bytes | LineTooLong] = [b"Debugger attached.", b"", b"[1]", LineTooLong(20 << 20), b'{"type":"resu']
    said = reader.read(map(parse_line, lines))
    assert [type(one) for one in said] == [Notice]
    assert (reader.noise, reader.first_noise, reader.is_truncated) == (3, "Debugger attached.", True)
    assert reader.dropped == 20 * 2**20 + 18 + 3 + 13


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_reader_survives_arbitrary_lines(data):
    """Real lines in any order, with parts replaced by arbitrary values."""
    every = [line for path in sorted(RECORDED.iterdir()) for line in path.read_bytes().splitlines()]
    reader = ClaudeEventReader()
    for record in data.draw(st.lists(st.sampled_from(every), max_size=8)):
        value = json.loads(record)
        damaged = data.draw(st.sampled_from(sorted(value)))
        value[damaged] = data.draw(
            st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
        )
        reader.read([parse_line(json.dumps(value).encode())])
    reader.finish()


def with_rounded_costs(events: list[ClaudeMessage]) -> list[ClaudeMessage]:
    """Return the events with costs rounded to six digits."""

    def round_cost(event: ClaudeMessage) -> ClaudeMessage:
        if isinstance(event, MessageEnded) and event.usage.cost is not None:
            usage = msgspec.structs.replace(event.usage, cost=round(event.usage.cost, 6))
            return msgspec.structs.replace(event, usage=usage)
        return event

    return [round_cost(event) for event in events]
