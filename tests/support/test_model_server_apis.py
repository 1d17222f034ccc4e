"""The model server's encoding of a turn in each API."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.model_client import CHAT, MESSAGES, RESPONSES, asked, post, said, user
from tests.support.model_server import ChatMessage, ModelServer, ScriptedCall, ScriptedTurn
from tests.support.model_server.answer import split_tokens

STEP = ScriptedTurn(
    thinking="Let me see.",
    text="I will look.",
    tools=(ScriptedCall(tool="read", args={"path": "a.txt"}), ScriptedCall(tool="ls")),
)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_chat_completions_are_streamed_word_by_word(anyio_backend):
    async with ModelServer([ScriptedTurn(text="One  two\nthree. ")]) as server:
        reply = await post(server, CHAT, asked("Count."))
    assert said(reply) == "One  two\nthree. "
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.events[-3]["choices"][0]["finish_reason"] == "stop"
    assert set(reply.events[-2]["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}
    assert reply.events[-1] == "[DONE]"


async def test_chat_completions_stream_thinking_and_parallel_tool_calls():
    async with ModelServer([STEP]) as server:
        reply = await post(server, CHAT, asked("Look.", tools=("read", "ls")))
    choices = [event["choices"][0] for event in reply.events[:-2]]
    assert "".join(choice["delta"].get("reasoning_content", "") for choice in choices) == "Let me see."
    calls = {0: "", 1: ""}
    names = []
    for choice in choices:
        for call in choice["delta"].get("tool_calls", ()):
            calls[call["index"]] += call["function"]["arguments"]
            names += [call["function"]["name"]] if "id" in call else []
    assert names == ["read", "ls"]
    assert [json.loads(text) for text in calls.values()] == [{"path": "a.txt"}, {}]
    assert choices[-1]["finish_reason"] == "tool_calls"


async def test_chat_completions_are_sent_whole_without_streaming():
    async with ModelServer([STEP]) as server:
        reply = await post(server, CHAT, asked("Look.", stream=False, tools=("read", "ls")))
    message = reply.value["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("I will look.", "Let me see.")
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["read", "ls"]


async def test_messages_stream_blocks_of_thinking_text_and_tool_use():
    body = {"model": "m", "stream": True, "messages": user("Look."), "tools": [{"name": "read"}, {"name": "ls"}]}
    async with ModelServer([STEP]) as server:
        streamed = await post(server, MESSAGES, body)
        whole = await post(server, MESSAGES, {**body, "stream": False})
    blocks = [event["content_block"]["type"] for event in streamed.events if event["type"] == "content_block_start"]
    deltas = [event["delta"] for event in streamed.events if event["type"] == "content_block_delta"]
    assert (
        blocks == [block["type"] for block in whole.value["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    )
    assert "".join(delta.get("text", "") for delta in deltas) == "I will look."
    assert "".join(delta.get("thinking", "") for delta in deltas) == "Let me see."
    assert "".join(delta.get("partial_json", "") for delta in deltas) == '{"path":"a.txt"}{}'
    assert streamed.events[-2]["delta"]["stop_reason"] == whole.value["stop_reason"] == "tool_use"
    assert streamed.events[-1] == {"type": "message_stop"}
    assert [line for line in streamed.content.split(b"\n") if line.startswith(b"event:")][
        0
    ] == b"event: message_start"


async def test_responses_stream_the_items_of_their_final_event():
    tools = [{"type": "function", "name": "read"}, {"type": "namespace", "name": "files", "tools": [{"name": "ls"}]}]
    body = {"model": "m", "stream": True, "input": "Look.", "tools": tools}
    step = ScriptedTurn(
        thinking="Hm.",
        text="I will look.",
        tools=(ScriptedCall(tool="read", args={"path": "a"}), ScriptedCall(tool="files.ls")),
    )
    async with ModelServer([step]) as server:
        streamed = await post(server, RESPONSES, body)
        whole = await post(server, RESPONSES, {**body, "stream": False})
    done = [event["item"] for event in streamed.events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "function_call"]
    assert streamed.events[-1]["response"]["output"] == done
    assert [item["type"] for item in whole.value["output"]] == [item["type"] for item in done]
    assert (done[3]["namespace"], done[3]["name"]) == ("files", "ls")
    text = [event["delta"] for event in streamed.events if event["type"] == "response.output_text.delta"]
    assert "".join(text) == "I will look."
    assert [event["sequence_number"] for event in streamed.events] == list(range(len(streamed.events)))


async def test_every_api_reports_the_output_limit():
    async with ModelServer([ScriptedTurn(text="Half an", length=True)]) as server:
        chat = await post(server, CHAT, asked("Answer.", stream=False))
        messages = await post(server, MESSAGES, {"model": "m", "messages": user("Answer.")})
        responses = await post(server, RESPONSES, {"model": "m", "input": user("Answer.")})
    assert chat.value["choices"][0]["finish_reason"] == "length"
    assert messages.value["stop_reason"] == "max_tokens"
    assert responses.value["status"] == "incomplete"
    assert responses.value["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (403, "permission_error"), (413, "request_too_large"), (502, "api_error")],
)
async def test_errors_of_messages_have_the_names_of_anthropic(status, kind):
    async with ModelServer([{"fail": {"status": status}}]) as server:
        reply = await post(server, MESSAGES, {"model": "m", "messages": user("Answer.")})
    assert (reply.status, reply.value["error"]["type"]) == (status, kind)


async def test_every_api_is_parsed_into_the_same_conversation():
    spoken = (
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "Hello"),
        ChatMessage("tool", "42"),
        ChatMessage("user", "So?"),
    )
    chat = [*user("Hi"), {"role": "assistant", "content": "Hello"}, {"role": "tool", "content": "42"}, *user("So?")]
    result = {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "42"}]}
    messages = [*chat[:2], {"role": "user", "content": [result, {"type": "text", "text": "So?"}]}]
    items = [
        *chat[:2],
        {"type": "function_call", "name": "f"},
        {"type": "function_call_output", "output": "42"},
        chat[3],
    ]
    async with ModelServer() as server:
        await post(server, CHAT, {"model": "a", "messages": chat, "reasoning_effort": "low"})
        thinking = {"type": "enabled", "budget_tokens": 1024}
        await post(server, MESSAGES, {"model": "b", "system": "Be.", "messages": messages, "thinking": thinking})
        await post(
            server, RESPONSES, {"model": "c", "instructions": "Be.", "input": items, "reasoning": {"effort": "high"}}
        )
        assert [request.messages for request in server.requests] == [spoken] * 3
        assert [request.model for request in server.requests] == ["a", "b", "c"]
        assert [request.system for request in server.requests] == ["", "Be.", "Be."]
        assert [request.reasoning for request in server.requests] == ["low", "enabled 1024", "high"]


@given(st.text())
def test_tokens_of_a_text_join_to_the_text(text):
    assert "".join(split_tokens(text)) == text
