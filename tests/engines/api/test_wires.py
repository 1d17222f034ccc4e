"""Replies of providers in the shapes their documents show: stop reasons, refusals, filters, usage and errors."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.engines.agent_loop import ModelRequest
from retinue.engines.api.anthropic import AnthropicWire
from retinue.engines.api.gemini import GeminiWire
from retinue.engines.api.http import EventParser
from retinue.engines.api.openai_chat import ChatWire
from retinue.engines.api.openai_responses import ResponsesWire
from retinue.engines.api.retries import RequestFailedError
from retinue.engines.api.wire import ModelOptions, ProviderStreamError, Wire, parse_call
from retinue.engines.toolbox import InvalidToolUse
from retinue.model.events import Text, TextDelta, Thinking
from retinue.model.results import Usage
from retinue.model.runs import Message, ProviderBlock, ToolUse

WIRES: list[Wire] = [ChatWire(), ResponsesWire(), AnthropicWire(), GeminiWire()]


def read(wire, *events):
    reader = wire.reader()
    for event in events:
        list(reader.read(event))
    return reader.finish()


def chat_chunk(finish=None, **delta):
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_chat_usage_counts_cached_tokens_once_and_takes_the_stated_cost():
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 60},
        "cost": 0.25,
    }
    reply = read(ChatWire(), chat_chunk(content="Hi"), chat_chunk("stop"), {"choices": [], "usage": usage})
    assert (reply.content, reply.usage) == ((Text("Hi"),), Usage(input=40, output=7, cache_read=60, cost=0.25))


def test_chat_tool_call_in_pieces_is_one_call():
    first = {"index": 0, "id": "c1", "function": {"name": "read", "arguments": '{"pa'}}
    second = {"index": 0, "function": {"arguments": 'th": "a"}'}}
    reply = read(
        ChatWire(), chat_chunk(tool_calls=[first]), chat_chunk(tool_calls=[second]), chat_chunk("tool_calls")
    )
    assert reply.tool_calls == (ToolUse("c1", "read", {"path": "a"}),)


def test_repeated_call_ids_are_made_unique():
    calls = [{"index": n, "id": "c", "function": {"name": "ls", "arguments": "{}"}} for n in range(3)]
    reply = read(ChatWire(), chat_chunk(tool_calls=calls), chat_chunk("tool_calls"))
    assert [use.id for use in reply.tool_calls] == ["c", "c_2", "c_3"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_chat_reasoning_is_thinking(field):
    reply = read(ChatWire(), chat_chunk(**{field: "hm"}), chat_chunk(content="Hi"), chat_chunk("stop"))
    assert reply.content == (Thinking("hm"), Text("Hi"))


def test_chat_content_that_is_a_list_has_thinking_and_text():
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reply = read(
        ChatWire("mistral"),
        chat_chunk(content=[thought]),
        chat_chunk(content=[{"type": "text", "text": "Hi"}]),
        chat_chunk("stop", content=""),
    )
    assert reply.content == (Thinking("hm"), Text("Hi"))


CALLS = [
    Message(role="user", text="Go."),
    Message(role="assistant", calls=(ToolUse("1", "ls", {}),)),
    Message(role="tool", text="a.txt", call="1"),
    Message(role="user", text="Stop."),
]


def test_deepseek_gets_reasoning_with_every_call_also_where_it_is_not_known():
    request = ModelRequest("", CALLS)
    (_, plain, *_), (_, asked, *_) = (
        ChatWire(provider).encode(request, ModelOptions(model="m"))["messages"] for provider in ("openai", "deepseek")
    )
    assert ("reasoning_content" in plain, asked["reasoning_content"]) == (False, "")


def test_mistral_gets_an_answer_between_results_and_a_message_of_the_user():
    request = ModelRequest("", CALLS)
    roles = {
        provider: [
            message["role"] for message in ChatWire(provider).encode(request, ModelOptions(model="m"))["messages"]
        ]
        for provider in ("openai", "mistral")
    }
    assert roles == {
        "openai": ["user", "assistant", "tool", "user"],
        "mistral": ["user", "assistant", "tool", "assistant", "user"],
    }


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_block_of_another_provider_is_left_out(wire):
    """After a switch of the model, signatures of the other one mean nothing."""
    block = ProviderBlock("another", {"signature": "s1gned"})
    messages = [replace(message, provider_block=block) if message.calls else message for message in CALLS]
    body = json.dumps(wire.encode(ModelRequest("", messages), ModelOptions(model="m")))
    assert body == json.dumps(wire.encode(ModelRequest("", CALLS), ModelOptions(model="m")))


SIGNED: dict[str, dict[str, Any]] = {
    "openai-chat": {"reasoning_content": "hm"},
    "openai-responses": {
        "output": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "s1gned"}]
    },
    "anthropic": {"content": [{"type": "redacted_thinking", "data": "s1gned"}]},
    "gemini": {"parts": [{"text": "hm", "thought": True, "thoughtSignature": "s1gned", "new": [1.50, None]}]},
}


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_block_of_the_same_provider_goes_back_byte_for_byte(wire):
    block = ProviderBlock(wire.name, SIGNED[wire.name])
    messages = [replace(message, provider_block=block) if message.calls else message for message in CALLS]
    body = wire.encode(ModelRequest("", messages), ModelOptions(model="m"))
    (content,) = SIGNED[wire.name].values()
    sent = msgspec.json.encode(content if isinstance(content, str) else content[0])
    assert msgspec.json.encode(body).count(sent) == 1


def test_content_filter_and_refusal_are_errors():
    filtered = read(ChatWire(), chat_chunk("content_filter"))
    refused = read(ChatWire(), chat_chunk(refusal="I will not."), chat_chunk("stop"))
    assert (filtered.stop_reason, refused.stop_reason) == ("error", "error")
    assert refused.error == "The model refused: I will not."


def test_error_within_a_chat_stream_is_raised_with_its_code():
    with pytest.raises(ProviderStreamError, match="429: slow down"):
        read(ChatWire(), {"error": {"code": 429, "message": "slow down"}})


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_stream_without_an_end_is_an_error(wire):
    with pytest.raises(ProviderStreamError, match="without a stop reason"):
        wire.reader().finish()


def test_responses_incomplete_and_failed_are_mapped():
    def end(kind, **fields):
        return {"type": f"response.{kind}", "response": {"model": "m", "usage": {}, **fields}}

    cut = read(ResponsesWire(), end("incomplete", incomplete_details={"reason": "max_output_tokens"}))
    filtered = read(ResponsesWire(), end("incomplete", incomplete_details={"reason": "content_filter"}))
    assert (cut.stop_reason, filtered.stop_reason) == ("length", "error")
    with pytest.raises(ProviderStreamError, match="server_error: broke"):
        read(ResponsesWire(), end("failed", error={"code": "server_error", "message": "broke"}))


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("refusal", "error"),
        ("model_context_window_exceeded", "error"),
        ("something_new", "error"),
    ],
)
def test_anthropic_stop_reasons(reason, stop):
    reply = read(AnthropicWire(), {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}})
    assert reply.stop_reason == stop


def test_anthropic_usage_has_cache_reads_and_writes():
    start = {"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1}
    reply = read(
        AnthropicWire(),
        {"type": "message_start", "message": {"model": "m", "usage": start}},
        {"type": "ping"},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    assert reply.usage == Usage(input=3, output=9, cache_read=100, cache_write=20)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("claude-sonnet-5-5", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}),
        ("claude-opus-4-6", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}),
        ("claude-opus-4-5", {"thinking": {"type": "enabled", "budget_tokens": 10_240}}),
        ("claude-3-7-sonnet-latest", {"thinking": {"type": "enabled", "budget_tokens": 10_240}}),
    ],
)
def test_anthropic_thinking_levels(model, fields):
    request = ModelRequest("", [Message(role="user", text="Go.")])
    body = AnthropicWire().encode(request, ModelOptions(model=model, effort="medium"))
    assert {name: body[name] for name in ("thinking", "output_config") if name in body} == fields


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "SOMETHING_NEW"])
def test_gemini_blocked_answers_are_errors(reason):
    reply = read(GeminiWire(), {"candidates": [{"finishReason": reason}]})
    assert (reply.stop_reason, reason in (reply.error or "")) == ("error", True)


def test_gemini_blocked_prompt_is_an_error():
    reply = read(GeminiWire(), {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})
    assert reply.error == ("The provider blocked the prompt: PROHIBITED_CONTENT.")


def test_gemini_usage_counts_thoughts_as_output_and_cached_tokens_once():
    usage = {
        "promptTokenCount": 50,
        "cachedContentTokenCount": 30,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7,
    }
    chunk = {"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}], "usageMetadata": usage}
    assert read(GeminiWire(), chunk).usage == Usage(input=20, output=12, cache_read=30)


@pytest.mark.parametrize("arguments", ['{"path": ', "[1]", '"text"', "{'a': 1}"])
def test_invalid_arguments_are_reported_to_the_model(arguments):
    use = parse_call("c", "read", arguments)
    assert isinstance(use, InvalidToolUse)
    assert arguments in use.problem


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@given(
    event=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "index",
                        "delta",
                        "content",
                        "text",
                        "choices",
                        "error",
                        "message",
                        "usage",
                        "item",
                        "response",
                        "candidates",
                        "parts",
                        "output",
                        "content_block",
                        "finish_reason",
                        "function",
                        "arguments",
                        "tool_calls",
                        "stop_reason",
                        "functionCall",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_reader_survives_any_object(wire, event):
    reader = wire.reader()
    if isinstance(event, dict):
        try:
            list(reader.read(event))
        except ProviderStreamError:
            return


@pytest.mark.parametrize("kind", ["text", "thinking", "signature"])
def test_long_reply_of_anthropic_is_read_in_linear_time(kind):
    """Each delta that was appended to the whole text took a hundred times as long."""
    delta = {"type": f"{kind}_delta", kind: "x" * 500}
    block = {"type": "text" if kind == "text" else "thinking"}
    reader, count = AnthropicWire().reader(), 20_000
    started = process_time()
    list(reader.read({"type": "content_block_start", "index": 0, "content_block": block}))
    for _ in range(count):
        list(reader.read({"type": "content_block_delta", "index": 0, "delta": delta}))
    list(reader.read({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}))
    content = {"content": [{**block, kind: "x" * 500 * count}]}
    assert reader.finish().provider_block == ProviderBlock("anthropic", content)
    assert process_time() - started < 1


@pytest.mark.parametrize("index", [[], {}, [[1]], None, -1, 1.5, "x"])
@pytest.mark.parametrize(
    ("wire", "events"),
    [
        (ChatWire(), lambda index: [chat_chunk(tool_calls=[{"index": index, "function": {"name": "ls"}}])]),
        (
            ResponsesWire(),
            lambda index: [
                {"type": "response.output_text.delta", "output_index": index, "delta": "Hi"},
                {
                    "type": "response.output_item.done",
                    "output_index": index,
                    "item": {"type": "message", "content": []},
                },
            ],
        ),
        (
            AnthropicWire(),
            lambda index: [
                {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": "Hi"}},
                {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": "!"}},
            ],
        ),
    ],
    ids=["chat", "responses", "anthropic"],
)
def test_block_with_an_invalid_index_is_read(wire, events, index):
    reader = wire.reader()
    for event in events(index):
        list(reader.read(event))
    with pytest.raises(ProviderStreamError, match="without a stop reason"):
        reader.finish()


@pytest.mark.parametrize("cost", [-1.0, pytest.param(10**400, id="too large"), 1e300, True, "1"])
def test_invalid_cost_of_chat_is_no_cost(cost):
    reply = read(ChatWire(), chat_chunk("stop", content="Hi"), {"usage": {"prompt_tokens": 1, "cost": cost}})
    assert reply.usage == Usage(input=1)


def test_chat_reply_that_is_not_streamed_is_read():
    message = {"role": "assistant", "content": "Hi"}
    reply = read(ChatWire(), {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert reply.content == (Text("Hi"),)


@pytest.mark.parametrize("call", [None, 7, ""])
def test_responses_call_without_a_valid_id_gets_one(call):
    item = {"type": "function_call", "call_id": call, "name": "ls", "arguments": "{}"}
    reply = read(
        ResponsesWire(),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {}},
    )
    (use,) = reply.tool_calls
    assert use.id
    assert reply.provider_block is not None
    assert reply.provider_block.content == {"output": [{**item, "call_id": use.id}]}


@pytest.mark.parametrize("call", [{"id": 7, "name": "ls"}, {"id": "c", "name": None}])
def test_invalid_call_of_anthropic_is_not_sent_back_as_a_block(call):
    """Its result has another id, so that the next request would be refused."""
    reply = read(
        AnthropicWire(),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", **call}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    )
    assert (len(reply.tool_calls), reply.provider_block) == (1, None)


def test_empty_text_of_anthropic_is_not_sent_back():
    call = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
    reply = read(
        AnthropicWire(),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_start", "index": 1, "content_block": call},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    )
    assert reply.provider_block == ProviderBlock("anthropic", {"content": [call]})


def test_anthropic_text_without_a_block_is_not_sent_back_as_a_block():
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
    reply = read(AnthropicWire(), delta, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    assert (reply.content, reply.provider_block) == ((Text("Hi"),), None)


def parse(*chunks):
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
@given(st.integers(1, 9))
def test_events_are_parsed_however_they_are_cut(end, size):
    lines = [
        b": comment",
        b"event: x",
        b'data: {"a":',
        b"data: 1}",
        b"",
        b'data:{"b":2}',
        b"",
        b"data: [DONE]",
        b"",
        b"",
    ]
    stream = end.join(lines)
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert parse(*chunks) == [{"a": 1}, {"b": 2}]


def test_long_line_in_small_chunks_is_parsed_in_linear_time():
    """Each chunk that searched the whole line again took a hundred times as long."""
    text, size = "x" * 2**22, 2**9
    line = b'data: "' + text.encode() + b'"\n\n'
    parser, chunks = EventParser(), [line[at : at + size] for at in range(0, len(line), size)]
    started = process_time()
    for chunk in chunks:
        parser.feed(chunk)
    assert process_time() - started < 1


def test_invalid_utf8_in_an_event_is_replaced():
    assert parse(b'data: {"a": "\xff"}\n\n') == [{"a": "\ufffd"}]


def test_event_without_a_final_blank_line_is_parsed():
    assert parse(b'data: {"a": 1}') == [{"a": 1}]


def test_malformed_chunk_is_an_error_that_quotes_it():
    with pytest.raises(RequestFailedError, match=r"malformed chunk: \{oops"):
        parse(b"data: {oops\n\n")


def test_endless_event_is_bounded(monkeypatch):
    monkeypatch.setattr("retinue.engines.api.http.MAX_EVENT_BYTES", 100)
    with pytest.raises(RequestFailedError, match="too large"):
        parse(b"data: " + b"x" * 200)


def test_text_deltas_add_up_to_the_block():
    reader = ChatWire().reader()
    words = ["One ", "two ", "three."]
    deltas = [delta for word in words for delta in reader.read(chat_chunk(content=word))]
    list(reader.read(chat_chunk("stop")))
    assert deltas == [TextDelta(word) for word in words]
    assert reader.finish().text == "One two three."


def test_equal_conversations_have_equal_bodies():
    messages = [Message(role="user", text="Go."), Message(role="assistant", calls=(ToolUse("1", "ls", {"a": 1}),))]
    for wire in WIRES:
        bodies = {json.dumps(wire.encode(ModelRequest("s", messages), ModelOptions(model="m"))) for _ in range(2)}
        assert len(bodies) == 1
