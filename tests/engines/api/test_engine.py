"""The api engine on every provider API: tool calls, thinking, errors, steering, limits and caches."""

from __future__ import annotations

import re

import anyio
import pytest
from msgspec.structs import replace
from tests.engines.api.conftest import MODELS, environment, open_provider
from tests.support.model_server import ScriptedCall, ScriptedError, ScriptedTurn

from retinue.model.agents import AgentProfile
from retinue.model.events import (
    Finalized,
    MessageEnded,
    Notice,
    SteeringDelivered,
    Text,
    Thinking,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Finalization
from retinue.model.runs import Message, ToolGrant, ToolUse

LOOK = ScriptedTurn(
    thinking="Let me see.",
    text="I will look.",
    tools=(ScriptedCall(tool="ls"), ScriptedCall(tool="read", args={"path": "a.txt"})),
)
ANSWER = ScriptedTurn(text="It says hello.")


def of_type(events, *kinds):
    return [event for event in events if isinstance(event, kinds)]


async def test_tools_run_in_parallel_and_the_answer_follows(model, tmp_path):
    (tmp_path / "a.txt").write_text("hello\n")
    async with open_provider([LOOK, ANSWER], tmp_path) as provider:
        events = await provider.run(model)
    texts = [event.text for event in of_type(events, Thinking, Text)]
    results = [(event.name, event.text, event.is_error) for event in of_type(events, ToolReturned)]
    ends = [(event.stop_reason, event.model) for event in of_type(events, MessageEnded)]
    assert texts == ["Let me see.", "I will look.", "It says hello."]
    assert results == [("ls", "a.txt", False), ("read", "hello", False)]
    assert ends == [("tool_use", model), ("stop", model)]


async def test_second_request_repeats_the_first_byte_for_byte(model, tmp_path):
    async with open_provider([LOOK, ANSWER], tmp_path) as provider:
        await provider.run(model, system_prompt="You are a scout.")
        first, second = provider.server.requests
    assert (first.system, second.system) == ("You are a scout.", "You are a scout.")
    assert second.tools == first.tools
    assert [(m.role, m.text) for m in second.messages][: len(first.messages)] == [
        (m.role, m.text) for m in first.messages
    ]


async def test_signed_thinking_is_sent_back_unchanged(tmp_path):
    async with open_provider([LOOK, ANSWER], tmp_path) as provider:
        await provider.run(MODELS["anthropic"], agent=AgentProfile(name="scout", thinking="high"))
        body = provider.server.requests[1].body
    thinking = body["messages"][1]["content"][0]
    assert thinking == {"type": "thinking", "thinking": "Let me see.", "signature": "c2NyaXB0ZWQ="}
    assert (body["thinking"], body["output_config"]) == ({"type": "adaptive"}, {"effort": "high"})


async def test_thought_signatures_of_gemini_are_sent_back_unchanged(tmp_path):
    async with open_provider([LOOK, ANSWER], tmp_path) as provider:
        await provider.run(MODELS["gemini"])
        parts = provider.server.requests[1].body["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts if "functionCall" in part] == ["c2NyaXB0ZWQ="] * 2


async def test_calls_without_an_id_are_answered_without_one(tmp_path):
    async with open_provider([LOOK, ANSWER], tmp_path) as provider:
        events = await provider.run(MODELS["gemini"])
        results = provider.server.requests[1].body["contents"][2]["parts"]
    calls = [event.call for event in of_type(events, ToolCalled)]
    assert len(set(calls)) == 2
    assert [part["functionResponse"].keys() for part in results] == [{"name", "response"}] * 2


async def test_reasoning_items_are_sent_back_and_nothing_is_stored(tmp_path):
    async with open_provider([LOOK, ANSWER], tmp_path) as provider:
        await provider.run(MODELS["openai-responses"])
        body = provider.server.requests[1].body
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert [item.get("type") for item in body["input"]][1:] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]


async def test_cache_breakpoints_mark_system_tools_and_the_last_message(tmp_path):
    async with open_provider([ANSWER], tmp_path) as provider:
        await provider.run(MODELS["anthropic"], system_prompt="You are a scout.")
        body = provider.server.requests[0].body
    marked = {"type": "ephemeral"}
    assert body["system"][-1]["cache_control"] == marked
    assert body["tools"][-1]["cache_control"] == marked
    assert body["messages"][-1]["content"][-1]["cache_control"] == marked


async def test_history_of_a_session_is_sent_before_the_prompt(model, tmp_path):
    history = (
        Message(role="user", text="Look."),
        Message(role="assistant", text="I look.", calls=(ToolUse("c1", "ls", {}),)),
        Message(role="tool", text="a.txt", call="c1"),
        Message(role="assistant", text="One file."),
    )
    async with open_provider([ANSWER], tmp_path) as provider:
        await provider.run(model, "And now?", history=history)
        messages = provider.server.requests[0].messages
    assert [m.role for m in messages if m.role != "system"] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[-1].text == "And now?"


async def test_finalize_call_ends_the_run(model, tmp_path):
    finalize = ScriptedTurn(tool="subagent_finalize", args={"status": "SUCCESS", "result": "Done."})
    async with open_provider([finalize], tmp_path) as provider:
        events = await provider.run(model, finalize=True)
    assert of_type(events, Finalized) == [Finalized(Finalization(status="SUCCESS", result="Done."))]


@pytest.mark.parametrize(("status", "words"), [(401, "401"), (403, "403"), (404, "404"), (400, "400")], ids=str)
async def test_refused_request_is_a_message_with_the_status_and_no_key(model, tmp_path, status, words):
    turn = ScriptedTurn(fail=ScriptedError(status=status, times=-1, message="no such thing"))
    async with open_provider([turn], tmp_path) as provider:
        events = await provider.run(model)
        assert len(provider.server.requests) == 1
    (end,) = of_type(events, MessageEnded)
    assert end.stop_reason == "error"
    assert words in (end.error or "")
    assert "no such thing" in (end.error or "")
    assert "test" not in (end.error or "")


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_transient_failure_is_retried_after_the_time_the_provider_asks_for(model, tmp_path, status):
    fail = ScriptedError(status=status, times=2, headers={"retry-after": "0"})
    async with open_provider([replace(ANSWER, fail=fail)], tmp_path) as provider:
        events = await provider.run(model)
        assert len(provider.server.requests) == 3
    assert [event.code for event in of_type(events, Notice)] == ["provider_retry", "provider_retry"]
    assert [event.text for event in of_type(events, Text)] == ["It says hello."]


async def test_address_that_cannot_be_reached_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.engines.api.retries.RETRY_DELAY", 0.0)
    nowhere = "http://127.0.0.1:9"
    async with open_provider([ANSWER], tmp_path) as provider:
        events = await provider.run(model, environment=environment(nowhere))
    (end,) = of_type(events, MessageEnded)
    assert re.match(rf"Connection error: {nowhere}(/v1)? cannot be reached: ", end.error or "")


async def test_provider_that_asks_for_a_long_wait_fails_at_once(tmp_path):
    fail = ScriptedError(status=429, times=-1, headers={"retry-after": "3600"}, message="slow down")
    async with open_provider([ScriptedTurn(fail=fail)], tmp_path) as provider:
        events = await provider.run(MODELS["anthropic"])
        assert len(provider.server.requests) == 1
    assert "429" in (of_type(events, MessageEnded)[0].error or "")


async def test_stream_that_is_cut_is_an_error_and_is_not_repeated(model, tmp_path):
    async with open_provider([ScriptedTurn(text="One two three", cut=True)], tmp_path) as provider:
        events = await provider.run(model)
        assert len(provider.server.requests) == 1
    assert of_type(events, MessageEnded)[-1].stop_reason == "error"


async def test_answer_at_the_output_limit_is_marked(model, tmp_path):
    async with open_provider([ScriptedTurn(text="One two", length=True)], tmp_path) as provider:
        events = await provider.run(model)
    assert of_type(events, MessageEnded)[-1].stop_reason == "length"


async def test_steering_becomes_a_user_message_before_the_next_request(model, tmp_path):
    async with open_provider([LOOK, ANSWER], tmp_path) as provider:
        run, events = "0123456789abcdef0123456789abcdef", []
        async with anyio.create_task_group() as group:

            async def work() -> None:
                events.extend(await provider.run(model))

            provider.server.script = _Steered(group, provider, run)
            group.start_soon(work)
        last = provider.server.requests[-1].messages[-1]
    assert of_type(events, SteeringDelivered) == [SteeringDelivered("Mind the gap.")]
    assert (last.role, last.text) == ("user", "Mind the gap.")


class _Steered:
    """A script that steers its own run while the first request is answered."""

    def __init__(self, group, provider, run):
        self.group, self.provider, self.run, self.turns = group, provider, run, [LOOK, ANSWER]

    def __call__(self, request):
        if len(self.turns) == 2:
            self.group.start_soon(self.provider.engine.steer, self.run, "Mind the gap.")
        return self.turns.pop(0)


async def test_edits_of_one_file_in_one_message_are_all_applied(tmp_path):
    (tmp_path / "m.txt").write_text("a b c d e f\n")
    edits = tuple(
        ScriptedCall(tool="edit", args={"path": "m.txt", "oldText": letter, "newText": letter.upper()})
        for letter in "abcdef"
    )
    read = ScriptedTurn(tool="read", args={"path": "m.txt"})
    async with open_provider([read, ScriptedTurn(tools=edits), ANSWER], tmp_path) as provider:
        grant = ToolGrant(tools=("read", "edit"))
        events = await provider.run(MODELS["anthropic"], grant=grant)
    assert [event.is_error for event in of_type(events, ToolReturned)] == [False] * 7
    assert (tmp_path / "m.txt").read_text() == "A B C D E F\n"


async def test_retry_time_that_is_no_number_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.engines.api.retries.RETRY_DELAY", 0.0)
    fail = ScriptedError(status=429, times=1, headers={"retry-after-ms": "nan"})
    async with open_provider([replace(ANSWER, fail=fail)], tmp_path) as provider:
        events = await provider.run(MODELS["anthropic"])
    assert [event.text for event in of_type(events, Text)] == ["It says hello."]


async def test_control_characters_of_an_error_are_removed(tmp_path):
    turn = ScriptedTurn(fail=ScriptedError(status=400, times=-1, message="bad \x1b[31m thing"))
    async with open_provider([turn], tmp_path) as provider:
        events = await provider.run(MODELS["anthropic"])
    assert "\x1b" not in (of_type(events, MessageEnded)[0].error or "")
