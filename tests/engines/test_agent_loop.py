"""The agent loop: requests to the model, emitted events, and tool failures that do not end the run."""

import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from retinue.engines.agent_loop import ChatModel, ModelReply, ModelRequest, OnDelta, run_agent_loop
from retinue.engines.toolbox import AgentToolbox, ToolError, make_tool
from retinue.model.events import (
    Finalized,
    MessageEnded,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Finalization, Usage
from retinue.model.runs import Message, ToolGrant, ToolUse
from retinue.testing.engines import check_order, make_run_spec, messages_from_events


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class PreparedModel:
    """A model with prepared replies that records its requests."""

    name = "replies"

    def __init__(self, *replies: ModelReply) -> None:
        self.left = list(replies)
        self.requests: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        self.requests.append(replace(request, messages=tuple(request.messages)))
        return self.left.pop(0)


def tool_reply(*uses: ToolUse) -> ModelReply:
    return ModelReply(content=uses, stop_reason="tool_use")


def text_reply(text: str) -> ModelReply:
    return ModelReply(content=(Text(text),))


async def echo(word: str) -> str:
    """Return the word."""
    return f"echo {word}"


async def refuse() -> str:
    """Fail with a ToolError."""
    raise ToolError("Path not found: x. Use ls.")


async def crash() -> str:
    """Fail with an unexpected exception."""
    raise ZeroDivisionError("division by zero")


async def leave() -> str:
    """Try to end the process."""
    raise SystemExit(3)


TOOLS = AgentToolbox(make_tool(function) for function in (echo, refuse, crash, leave))


async def run(model: ChatModel, tmp_path: Path, toolbox: AgentToolbox = TOOLS, **changes: Any) -> list[Any]:
    events = []

    async def emit(event):
        events.append(event)
        await anyio.lowlevel.checkpoint()

    changes = {"grant": ToolGrant(tools=("echo", "refuse", "crash", "leave")), **changes}
    await run_agent_loop(model, make_run_spec(tmp_path, task="Do it.", **changes), toolbox, emit)
    return events


async def test_message_is_emitted_whole_before_the_results_of_its_calls(tmp_path):
    model = PreparedModel(
        ModelReply(
            content=(Thinking("hm"), Text("Let me look."), ToolUse("1", "echo", {"word": "a"})),
            stop_reason="tool_use",
            usage=Usage(input=10, output=5, cost=0.5),
            model="replies-2",
        ),
        text_reply("Done."),
    )
    events = await run(model, tmp_path)
    assert events == [
        Thinking("hm"),
        Text("Let me look."),
        ToolCalled("1", "echo", {"word": "a"}),
        MessageEnded(stop_reason="tool_use", model="replies-2", usage=Usage(input=10, output=5, cost=0.5, turns=1)),
        ToolReturned("1", "echo", "echo a"),
        Text("Done."),
        MessageEnded(stop_reason="stop", model="replies", usage=Usage(turns=1)),
    ]
    check_order(events)


async def test_request_contains_history_and_earlier_tool_results(tmp_path):
    history = (Message(role="user", text="before"), Message(role="assistant", text="yes"))
    model = PreparedModel(tool_reply(ToolUse("1", "echo", {"word": "a"})), text_reply("Done."))
    events = await run(model, tmp_path, history=history, system_prompt="Be brief.")
    first, second = model.requests
    asked = (*history, Message(role="user", text="Do it."))
    assert first.messages == asked
    assert first.system_prompt == "Be brief."
    assert second.messages == (*asked, *messages_from_events(events)[:2])


async def test_tool_failures_are_results_for_the_model(tmp_path):
    model = PreparedModel(
        tool_reply(
            ToolUse("1", "nothing", {}),
            ToolUse("2", "echo", {"words": "a"}),
            ToolUse("3", "refuse", {}),
            ToolUse("4", "crash", {}),
            ToolUse("5", "leave", {}),
        ),
        text_reply("I see."),
    )
    events = await run(model, tmp_path)
    assert [event for event in events if isinstance(event, ToolReturned)] == [
        ToolReturned(
            "1", "nothing", "Unknown tool: nothing. Available tools: echo, refuse, crash, leave", is_error=True
        ),
        ToolReturned(
            "2",
            "echo",
            "Invalid arguments for echo: Object contains unknown field `words`. Its parameters: word",
            is_error=True,
        ),
        ToolReturned("3", "refuse", "Path not found: x. Use ls.", is_error=True),
        ToolReturned("4", "crash", "crash failed: ZeroDivisionError: division by zero", is_error=True),
        ToolReturned("5", "leave", "leave failed: SystemExit: 3", is_error=True),
    ]
    assert events[-1].stop_reason == "stop"


async def test_tool_that_is_not_granted_is_neither_declared_nor_called(tmp_path):
    model = PreparedModel(tool_reply(ToolUse("1", "echo", {"word": "a"})), text_reply("No."))
    events = await run(model, tmp_path, grant=ToolGrant(tools=("refuse",)))
    assert [declared.name for declared in model.requests[0].tools] == ["refuse"]
    assert ToolReturned("1", "echo", "Unknown tool: echo. Available tools: refuse", is_error=True) in events


async def test_calls_of_one_message_run_concurrently_and_are_reported_in_order(tmp_path):
    second_started = anyio.Event()

    async def wait() -> str:
        await second_started.wait()
        return "first"

    async def start() -> str:
        second_started.set()
        return "second"

    model = PreparedModel(tool_reply(ToolUse("1", "wait", {}), ToolUse("2", "start", {})), text_reply("Done."))
    toolbox = AgentToolbox([make_tool(wait), make_tool(start)])
    events = await run(model, tmp_path, toolbox, grant=ToolGrant(tools=("wait", "start")))
    results = [event for event in events if isinstance(event, ToolReturned)]
    assert results == [ToolReturned("1", "wait", "first"), ToolReturned("2", "start", "second")]
    check_order(events)


async def test_result_is_emitted_while_later_calls_still_run(tmp_path):
    reported = anyio.Event()

    async def quick() -> str:
        return "quick"

    async def slow() -> str:
        await reported.wait()
        return "slow"

    async def emit(event):
        if isinstance(event, ToolReturned) and event.name == "quick":
            reported.set()

    model = PreparedModel(tool_reply(ToolUse("1", "quick", {}), ToolUse("2", "slow", {})), text_reply("Done."))
    toolbox = AgentToolbox([make_tool(quick), make_tool(slow)])
    spec = make_run_spec(tmp_path, grant=ToolGrant(tools=("quick", "slow")))
    with anyio.fail_after(5):
        await run_agent_loop(model, spec, toolbox, emit)


async def test_provider_failure_ends_the_run_as_a_message(tmp_path):
    model = PreparedModel(ModelReply(content=(Text("Half an"),), stop_reason="error", error="529 overloaded"))
    assert await run(model, tmp_path) == [
        Text("Half an"),
        MessageEnded(stop_reason="error", model="replies", usage=Usage(turns=1), error="529 overloaded"),
    ]


async def test_calls_of_a_truncated_message_are_not_made(tmp_path):
    cut = ModelReply(content=(Text("Now"), ToolUse("1", "echo", {"word": "a"})), stop_reason="length")
    assert await run(PreparedModel(cut), tmp_path) == [
        Text("Now"),
        MessageEnded(stop_reason="length", model="replies", usage=Usage(turns=1)),
    ]


async def test_tool_calls_override_the_stop_reason_stop(tmp_path):
    model = PreparedModel(ModelReply(content=(ToolUse("1", "echo", {"word": "a"}),)), text_reply("Done."))
    events = await run(model, tmp_path)
    assert events[1].stop_reason == "tool_use"
    assert messages_from_events(events)[-1].text == "Done."


async def test_valid_finalization_ends_the_run_and_an_invalid_one_does_not(tmp_path):
    model = PreparedModel(
        tool_reply(ToolUse("1", "subagent_finalize", {"status": "SUCCESS", "result": " "})),
        tool_reply(ToolUse("2", "subagent_finalize", {"status": "ERROR", "error": "no", "result": "half"})),
    )
    events = await run(model, tmp_path, finalize=True)
    assert [event for event in events if isinstance(event, ToolReturned | Finalized)] == [
        ToolReturned("1", "subagent_finalize", "SUCCESS requires a non-empty result", is_error=True),
        ToolReturned("2", "subagent_finalize", "finalized"),
        Finalized(Finalization("ERROR", "half", "no")),
    ]


async def test_finalize_tool_is_declared_only_on_request(tmp_path):
    model = PreparedModel(text_reply("Done."))
    await run(model, tmp_path)
    assert "subagent_finalize" not in [declared.name for declared in model.requests[0].tools]


class StreamingModel:
    """A model that streams."""

    name = "stream"

    def __init__(self, deltas: int) -> None:
        self.deltas = deltas

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        await on_delta(ThinkingDelta("hm"))
        for _ in range(self.deltas):
            await on_delta(TextDelta("x" * 20))
        return ModelReply(content=(Thinking("hm"), Text("x" * 20 * self.deltas)))


async def test_deltas_are_emitted_as_they_arrive(tmp_path):
    events = await run(StreamingModel(3), tmp_path)
    assert events[:4] == [ThinkingDelta("hm"), *[TextDelta("x" * 20)] * 3]
    check_order(events)


async def test_cost_of_a_delta_is_constant(tmp_path):
    async def cost(deltas: int) -> float:
        async def ignore(event):
            pass

        started = time.process_time()
        await run_agent_loop(StreamingModel(deltas), make_run_spec(tmp_path), AgentToolbox(), ignore)
        return time.process_time() - started

    few = min([await cost(10_000) for _ in range(5)])
    many = min([await cost(40_000) for _ in range(5)])
    assert many < 12 * few


async def test_slow_tool_is_cancelled_with_its_run(tmp_path):
    started: list[str] = []
    ended: list[str] = []

    async def slow() -> str:
        started.append("slow")
        if len(started) == 2:
            scope.cancel()
        try:
            await anyio.sleep(3600)
        finally:
            ended.append("slow")
        return ""

    model = PreparedModel(tool_reply(ToolUse("1", "slow", {}), ToolUse("2", "slow", {})))
    with anyio.CancelScope() as scope:
        await run(model, tmp_path, AgentToolbox([make_tool(slow)]), grant=ToolGrant(tools=("slow",)))
    assert ended == ["slow", "slow"]


async def test_two_user_messages_in_a_row_are_merged(tmp_path):
    requests = []

    class RecordingModel:
        name = "recording"

        async def reply(self, request, on_delta):
            requests.append([(message.role, message.text) for message in request.messages])
            return ModelReply(content=(Text("ok"),))

    history = (Message(role="user", text="first"),)
    spec = make_run_spec(tmp_path, task="second", history=history)

    async def emit(event):
        await anyio.lowlevel.checkpoint()

    await run_agent_loop(RecordingModel(), spec, AgentToolbox(), emit)
    assert requests == [[("user", "first\n\nsecond")]]
