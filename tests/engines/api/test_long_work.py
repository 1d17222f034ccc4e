"""Long work on every provider API: a prompt prefix that caches can use, images in results, and compaction."""

from __future__ import annotations

import base64
from itertools import pairwise

import anyio
import msgspec
import pytest
from tests.engines.api.conftest import MODELS, open_provider
from tests.engines.api.test_engine import of_type
from tests.support.model_server import ChatRequest, ScriptedCall, ScriptedError, ScriptedTurn

from retinue.engines.compaction import SUMMARY_INSTRUCTIONS
from retinue.model.agents import AgentProfile
from retinue.model.events import MessageEnded, Notice, Text, ToolReturned
from retinue.model.runs import Limits, Message, ToolGrant, ToolUse

READ = ScriptedTurn(
    thinking="Let me see.",
    text="I will look.",
    tools=(ScriptedCall(tool="ls"), ScriptedCall(tool="read", args={"path": "a.txt"})),
)
ANSWER = ScriptedTurn(text="It says hello.")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
LOOK_AT_IMAGE = ScriptedTurn(tools=(ScriptedCall(tool="read", args={"path": "p.png"}), ScriptedCall(tool="ls")))
RUN = "0123456789abcdef0123456789abcdef"


def in_order(*turns):
    """Return a script that plays the turns in order: an image in a message of the user must not start it again."""
    remaining = iter(turns)
    return lambda _: next(remaining)


def split_body(body):
    """Return the conversation of a request as one JSON text per message, and everything before it."""
    rest = dict(body)
    items = rest.pop(next(key for key in ("messages", "input", "contents") if key in rest))
    for item in items:
        for part in item.get("content") or () if isinstance(item.get("content"), list) else ():
            part.pop("cache_control", None)
    return [msgspec.json.encode(item) for item in items], rest


async def test_each_request_begins_with_the_bytes_of_the_one_before(model, tmp_path):
    (tmp_path / "a.txt").write_text("hello\n")

    def script(request):
        if len(provider.server.requests) == 2:
            group.start_soon(provider.engine.steer, RUN, "Mind the gap.")
        return READ

    async with open_provider(None, tmp_path) as provider, anyio.create_task_group() as group:
        provider.server.script = script
        agent = AgentProfile(name="scout", thinking="high")
        await provider.run(model, system_prompt="You are a scout.", agent=agent, limits=Limits(max_turns=5))
        bodies = [request.body for request in provider.server.requests]
    requests = [split_body(body) for body in bodies]
    texts = [request.messages[-1].text for request in provider.server.requests]
    assert "Mind the gap." in texts[2]
    assert "Turn 5 of 5 is the last one." in texts[4]
    for (messages, settings), (next_messages, next_settings) in pairwise(requests):
        assert next_messages[: len(messages)] == messages
        kept = {key: value for key, value in next_settings.items() if key not in LAST_TURN_SETTINGS}
        assert msgspec.json.encode(settings) == msgspec.json.encode(kept)


LAST_TURN_SETTINGS = ("tool_choice", "toolConfig")
"""Settings that only the request for the last turn has, which may call no tool."""


async def test_cache_breakpoints_move_with_the_conversation(tmp_path):
    async with open_provider([READ, READ, ANSWER], tmp_path) as provider:
        await provider.run(MODELS["anthropic"], system_prompt="You are a scout.")
        bodies = [request.body for request in provider.server.requests]
    for body in bodies:
        marked = [
            (at, number)
            for at, message in enumerate(body["messages"])
            for number, part in enumerate(message["content"])
            if "cache_control" in part
        ]
        users = [at for at, message in enumerate(body["messages"]) if message["role"] == "user"]
        assert users[-1] == len(body["messages"]) - 1
        assert marked == [(at, len(body["messages"][at]["content"]) - 1) for at in users[-2:]]
        assert "cache_control" in body["system"][-1]
        assert [tool["name"] for tool in body["tools"] if "cache_control" in tool] == [body["tools"][-1]["name"]]


IMAGE = base64.b64encode(PNG).decode()
IMAGE_PARTS = {
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
    "openai-responses": {"type": "input_image", "image_url": f"data:image/png;base64,{IMAGE}"},
    "openai-chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
    "gemini": {"inlineData": {"mimeType": "image/png", "data": IMAGE}},
}


@pytest.mark.parametrize("api", MODELS)
async def test_image_that_is_read_is_sent_once_and_recorded_as_text(api, tmp_path):
    (tmp_path / "p.png").write_bytes(PNG)
    async with open_provider(in_order(LOOK_AT_IMAGE, ANSWER), tmp_path) as provider:
        events = await provider.run(MODELS[api])
        body = provider.server.requests[1].body
    text = f"[Image p.png: image/png, {len(PNG)} B.]"
    assert msgspec.json.encode(body).count(msgspec.json.encode(IMAGE_PARTS[api])) == 1
    assert [event.text for event in of_type(events, ToolReturned)] == [text, "p.png"]
    assert IMAGE not in msgspec.json.encode(events).decode()


async def test_images_follow_all_results_of_their_turn_in_chat_completions(tmp_path):
    (tmp_path / "p.png").write_bytes(PNG)
    async with open_provider(in_order(LOOK_AT_IMAGE, LOOK_AT_IMAGE, ANSWER), tmp_path) as provider:
        await provider.run(MODELS["openai-chat"])
        messages = provider.server.requests[2].body["messages"]
    assert [message["role"] for message in messages] == [
        "user",
        *["assistant", "tool", "tool", "user"] * 2,
    ]


@pytest.mark.parametrize("error", ["image input is not supported", "messages[3].content must be a string"])
async def test_model_that_takes_no_images_gets_a_text_instead(model, tmp_path, error):
    (tmp_path / "p.png").write_bytes(PNG)

    def script(request):
        if IMAGE in msgspec.json.encode(request.body).decode():
            return ScriptedTurn(fail=ScriptedError(status=400, times=-1, message=error))
        return ANSWER if len(provider.server.requests) > 1 else LOOK_AT_IMAGE

    async with open_provider(None, tmp_path) as provider:
        provider.server.script = script
        events = await provider.run(model)
        last = provider.server.requests[-1]
    assert [event.code for event in of_type(events, Notice)] == ["not_applied"]
    assert "This model does not accept images" in "".join(message.text for message in last.messages)
    assert of_type(events, Text)[-1].text == "It says hello."


async def test_conversation_is_summarized_by_the_same_model_on_every_wire(model, tmp_path):
    """Blocks that a provider signed are left out with the messages they belong to."""
    (tmp_path / "a.txt").write_text("hello world\n" * 3000)

    def script(request):
        if request.system == SUMMARY_INSTRUCTIONS:
            return ScriptedTurn(text="The file says hello.")
        return ANSWER if len(of_agent(provider)) >= 4 else READ

    def of_agent(provider):
        return [request for request in provider.server.requests if request.system != SUMMARY_INSTRUCTIONS]

    async with open_provider(None, tmp_path, windows={"scripted-1": 25_000}) as provider:
        provider.server.script = script
        events = await provider.run(model, system_prompt="You are a scout.")
        requests = of_agent(provider)
        summaries = [request for request in provider.server.requests if request not in requests]
    (notice,) = [event for event in of_type(events, Notice) if event.code == "compacted"]
    before, after = requests[-2], requests[-1]
    assert notice.compaction.summary == "The file says hello."
    assert "The file says hello." in after.messages[1 if after.messages[0].role == "system" else 0].text
    assert (after.system, after.tools) == (before.system, before.tools)
    assert len(after.messages) < len(before.messages)
    assert [request.tools for request in summaries] == [()]
    assert of_type(events, MessageEnded)[-1].stop_reason == "stop"
    assert of_type(events, Text)[-1].text == "It says hello."


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "This model's maximum context length is 8192 tokens"),
        (413, "Request exceeds the maximum size"),
    ],
)
async def test_context_overflow_is_answered_with_one_compaction(model, tmp_path, status, message):
    (tmp_path / "a.txt").write_text("hello world\n" * 1000)
    failed: list[ChatRequest] = []

    def script(request):
        if request.system == SUMMARY_INSTRUCTIONS:
            return ScriptedTurn(text="The file says hello.")
        if len(provider.server.requests) == 4 and not failed:
            failed.append(request)
            return ScriptedTurn(fail=ScriptedError(status=status, times=-1, message=message))
        return ANSWER if failed else READ

    async with open_provider(None, tmp_path) as provider:
        provider.server.script = script
        events = await provider.run(model)
        assert len(provider.server.requests) == 6
    assert [event.code for event in of_type(events, Notice)] == ["compacted"]
    assert [event.stop_reason for event in of_type(events, MessageEnded)][-3:] == ["stop", "error", "stop"]


async def test_reasoning_of_a_chat_model_goes_back_with_the_calls_it_led_to(tmp_path):
    async with open_provider([READ, READ, ANSWER], tmp_path) as provider:
        await provider.run(MODELS["openai-chat"])
        messages = provider.server.requests[2].body["messages"]
    assert [message.get("reasoning_content") for message in messages if message["role"] == "assistant"] == [
        "Let me see.",
        "Let me see.",
    ]


async def test_signatures_are_left_out_of_an_earlier_run(model, tmp_path):
    """History of the record has no provider block: it may come from another model."""
    history = (
        Message(role="user", text="Look."),
        Message(role="assistant", text="I look.", calls=(ToolUse("c1", "ls", {}),)),
        Message(role="tool", text="a.txt", call="c1"),
        Message(role="assistant", text="One file."),
    )
    async with open_provider([ANSWER], tmp_path) as provider:
        await provider.run(model, "And now?", history=history, grant=ToolGrant(tools=("ls",)))
        body = msgspec.json.encode(provider.server.requests[0].body).decode()
    for word in ("signature", "thoughtSignature", "encrypted_content", "reasoning_content"):
        assert f'"{word}":' not in body
