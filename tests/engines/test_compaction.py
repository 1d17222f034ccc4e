"""Compaction: what of a long conversation is kept, summarized or cut, and what happens where that fails."""

from typing import Any

import anyio.lowlevel
import pytest
from msgspec.structs import replace

from retinue.engines.agent_loop import ModelReply, ModelRequest, OnDelta, run_agent_loop
from retinue.engines.compaction import SUMMARY_INSTRUCTIONS, Compactor, ContextWindow, render_conversation
from retinue.engines.toolbox import AgentToolbox, make_tool
from retinue.guards.budget import Budget, BudgetGuard
from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import MessageEnded, Notice, RunQueued, Text
from retinue.model.results import Usage
from retinue.model.runs import (
    SUMMARY_TEXT,
    Compaction,
    ImageBlock,
    Limits,
    Message,
    ProviderBlock,
    ToolGrant,
    ToolUse,
)
from retinue.runtime.budgets import RunRequestBudget
from retinue.sessions.messages import MessageBuilder
from retinue.testing.engines import check_order, make_run_spec

WINDOW = 10_000
SUMMARY = SUMMARY_TEXT.format(summary="So far: nothing.")
OVERFLOW = "400: prompt is too long: 210000 tokens > 200000 maximum"


async def fetch(size: int) -> str:
    """Return a text of so many bytes."""
    return "x" * size


class WorkingModel:
    """Calls `fetch` a number of times and then answers; its summaries and failures are given."""

    name = "maker/model"

    def __init__(self, calls: int, *, size: int = 3000, summary: ModelReply | None = None, refuses: int = 0) -> None:
        self.left = calls
        self.size = size
        self.summary = summary or ModelReply(content=(Text("So far: nothing."),), usage=Usage(input=50, output=5))
        self.refuses = refuses
        self.requests: list[ModelRequest] = []
        self.summarized: list[str] = []

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        if request.system_prompt == SUMMARY_INSTRUCTIONS:
            self.summarized.append(request.messages[0].text)
            return self.summary
        self.requests.append(replace(request, messages=tuple(request.messages)))
        if self.refuses and len(self.requests) > self.refuses:
            self.refuses = 0
            return ModelReply(stop_reason="error", error=OVERFLOW)
        self.left -= 1
        if self.left < 0:
            return ModelReply(content=(Text("Done."),))
        block = ProviderBlock("wire", {"signature": self.left})
        use = ToolUse(f"c{self.left}", "fetch", {"size": self.size})
        return ModelReply(content=(use,), stop_reason="tool_use", provider_block=block)


async def run(model: Any, tmp_path: Any, window: ContextWindow | None = None, **changes: Any) -> list[Any]:
    events: list[Any] = []

    changes = {"grant": ToolGrant(tools=("fetch",)), "system_prompt": "Be brief.", **changes}
    spec = make_run_spec(tmp_path, task="Do it.", **changes)
    guard = BudgetGuard(budget := Budget(spec.limits))
    spec = replace(spec, budget=RunRequestBudget(budget))

    async def emit(event: Any) -> None:
        events.append(event)
        guard.observe(event, 0.0)
        await anyio.lowlevel.checkpoint()

    async def find_window(tokens: int) -> ContextWindow:
        return window or ContextWindow(WINDOW)

    compactor = Compactor(model, find_window, emit, spec.budget)
    await run_agent_loop(model, spec, AgentToolbox([make_tool(fetch)]), emit, compactor=compactor)
    check_order(events)
    return events


def notices(events: list[Any], *codes: str) -> list[Notice]:
    return [event for event in events if isinstance(event, Notice) and event.code in codes]


async def test_earlier_turns_become_a_summary_after_the_task(tmp_path):
    model = WorkingModel(calls=9)
    events = await run(model, tmp_path)
    (notice,) = notices(events, "compacted")
    last = model.requests[-1]
    kept = tuple(last.messages[1:])
    assert last.system_prompt == "Be brief."
    assert last.messages[0] == Message(role="user", text=f"Do it.\n\n{SUMMARY}")
    assert kept == (*model.requests[-2].messages[1:], *kept[-2:])
    assert notice.compaction == Compaction(summary="So far: nothing.", kept_turns=1)
    assert notice.message == (
        "The conversation was compacted: 15 earlier messages became a summary (about 8164 tokens, now 1112)."
    )


async def test_every_call_that_is_kept_has_its_result_and_its_provider_block(tmp_path):
    model = WorkingModel(calls=20)
    await run(model, tmp_path)
    for request in model.requests:
        calls = [use.id for message in request.messages for use in message.calls]
        results = [message.call for message in request.messages if message.role == "tool"]
        blocks = [message.provider_block for message in request.messages if message.role == "assistant"]
        assert calls == results
        assert all(blocks)


async def test_summary_of_a_summary_contains_the_first_one(tmp_path):
    model = WorkingModel(calls=20)
    events = await run(model, tmp_path)
    assert len(notices(events, "compacted")) == len(model.summarized) > 1
    assert "So far: nothing." in model.summarized[1]
    assert "Do it." in model.summarized[1]


async def test_request_for_a_summary_is_a_turn_with_its_usage(tmp_path):
    events = await run(WorkingModel(calls=9), tmp_path)
    ends = [event for event in events if isinstance(event, MessageEnded)]
    assert MessageEnded(stop_reason="stop", model="maker/model", usage=Usage(input=50, output=5, turns=1)) in ends
    assert sum(end.usage.turns for end in ends) == 11


async def test_turn_of_a_summary_counts_for_the_last_turn(tmp_path):
    model = WorkingModel(calls=30)
    events = await run(model, tmp_path, limits=Limits(max_turns=12))
    ends = [event for event in events if isinstance(event, MessageEnded)]
    assert notices(events, "wrap_up") == [
        Notice("wrap_up", "The agent was asked for its final answer early. Turn 12 of 12 is the last one.")
    ]
    assert len(ends) == 12


async def test_size_that_the_provider_counted_decides(tmp_path):
    model = WorkingModel(calls=3, size=10)
    counted = Usage(input=9000, output=10)
    reply = model.reply

    async def reply_with_usage(request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        return replace(await reply(request, on_delta), usage=counted)

    model.reply = reply_with_usage  # type: ignore[method-assign]
    history = tuple(Message(role=role, text="y" * 9000) for _ in range(2) for role in ("user", "assistant"))
    events = await run(model, tmp_path, ContextWindow(20_000), history=history)
    assert notices(events, "compacted") == []
    events = await run(WorkingModel(calls=1), tmp_path, ContextWindow(12_000), history=history)
    assert len(notices(events, "compacted")) == 1


async def test_sizes_before_and_after_are_in_the_tokens_of_the_provider(tmp_path):
    """The provider counts a quarter less than is estimated: what is left must not look larger than before."""

    class CountingModel(WorkingModel):
        async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
            counted = sum(len(message.text) for message in request.messages) // 4
            return replace(await super().reply(request, on_delta), usage=Usage(input=counted))

    events = await run(CountingModel(calls=11), tmp_path)
    (notice,) = notices(events, "compacted")
    assert notice.message == (
        "The conversation was compacted: 21 earlier messages became a summary (about 8505 tokens, now 844)."
    )


@pytest.mark.parametrize(
    ("summary", "reason"),
    [
        (ModelReply(stop_reason="error", error="500: broken"), "500: broken"),
        (ModelReply(content=(Text(" "),)), "the model's answer is empty or was cut off"),
        (ModelReply(content=(Text("half"),), stop_reason="length"), "the model's answer is empty or was cut off"),
        (ModelReply(content=(Text("long " * 5000),)), "the summary is too long"),
    ],
    ids=["failed", "empty", "cut", "too long"],
)
async def test_without_a_summary_old_tool_results_are_cut(tmp_path, summary, reason):
    model = WorkingModel(calls=9, summary=summary)
    events = await run(model, tmp_path)
    failed, cut = notices(events, "compaction_failed", "compacted")[:2]
    results = [message.text for message in model.requests[-1].messages if message.role == "tool"]
    assert failed.message == f"The earlier conversation could not be summarized: {reason}."
    assert "long tool results were cut" in cut.message
    assert cut.compaction is None
    assert results[0] == "x" * 1024 + "\n[… the remainder of 2.9 KB was left out to save space]"
    assert results[-1] == "x" * 3000
    assert events[-1].stop_reason == "stop"


async def test_refused_conversation_is_compacted_and_sent_once_more(tmp_path):
    model = WorkingModel(calls=5, refuses=4)
    events = await run(model, tmp_path, ContextWindow(1_000_000))
    assert [event.stop_reason for event in events if isinstance(event, MessageEnded)] == [
        *["tool_use"] * 4,
        "stop",  # the summary
        "error",
        "tool_use",
        "stop",
    ]
    assert len(notices(events, "compacted")) == 1
    assert model.requests[5].messages[0].text == f"Do it.\n\n{SUMMARY}"


async def test_conversation_that_is_refused_twice_fails_with_the_reason(tmp_path):
    class RefusingModel(WorkingModel):
        async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
            if request.system_prompt == SUMMARY_INSTRUCTIONS or len(self.requests) < 4:
                return await super().reply(request, on_delta)
            self.requests.append(request)
            return ModelReply(stop_reason="error", error=OVERFLOW)

    model = RefusingModel(calls=9)
    events = await run(model, tmp_path, ContextWindow(1_000_000))
    assert len(model.requests) == 6
    assert events[-1].error == (
        f"The conversation exceeds the model's context window and cannot be shortened further. {OVERFLOW}"
    )


async def test_task_that_is_too_long_by_itself_fails_without_a_summary(tmp_path):
    class RefusingModel(WorkingModel):
        async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
            return ModelReply(stop_reason="error", error=OVERFLOW)

    model = RefusingModel(calls=0)
    events = await run(model, tmp_path)
    assert model.summarized == []
    assert events == [
        MessageEnded(
            stop_reason="error",
            model="maker/model",
            usage=Usage(turns=1),
            error=f"The conversation exceeds the model's context window and cannot be shortened further. {OVERFLOW}",
        )
    ]


async def test_results_that_the_model_has_not_seen_are_cut_only_beyond_the_window(tmp_path):
    model = WorkingModel(calls=1, size=25_000)
    await run(model, tmp_path)
    assert len(model.requests[-1].messages[-1].text) == 25_000
    model = WorkingModel(calls=1, size=40_000)
    await run(model, tmp_path)
    assert len(model.requests[-1].messages[-1].text) < 1200


async def test_assumed_window_is_a_notice_that_names_the_setting(tmp_path):
    model = WorkingModel(calls=2)
    events = await run(model, tmp_path, ContextWindow(32_000, is_assumed=True))
    assert notices(events, "context_window") == [
        Notice(
            "context_window",
            "The context window of maker/model is unknown; 32000 tokens are assumed. Set context_window in "
            "[providers.maker] of your config.toml.",
        )
    ]


async def test_prompt_of_a_long_session_is_kept_beside_the_summary(tmp_path):
    history = tuple(
        Message(role=role, text=f"{number} " + "y" * 3000) for number in range(9) for role in ("user", "assistant")
    )
    model = WorkingModel(calls=0)
    await run(model, tmp_path, history=history)
    first, *rest = model.requests[0].messages
    assert first.text == SUMMARY
    assert rest[-1] == Message(role="user", text="Do it.")
    assert rest[0].role == "assistant"


async def test_record_gives_the_conversation_that_the_model_had(tmp_path):
    model = WorkingModel(calls=9)
    events = await run(model, tmp_path)
    queued = RunQueued(name="e", agent="explorer", task="Do it.", cwd="/", surface="single")
    origin = EventSource(run="r", session="s", root="r", parent_tool_use_id="c")
    builder = MessageBuilder()
    for number, event in enumerate((queued, *events)):
        builder.add(EventRecord(origin, number, 1.0, event))
    live = [replace(message, provider_block=None) for message in model.requests[-1].messages]
    assert list(builder.messages()) == [*live, Message(role="assistant", text="Done.")]


def test_rendered_conversation_fits_by_shorter_results_then_by_its_middle():
    messages = [Message(role="user", text="Task."), Message(role="tool", text="r" * 9000, call="1")]
    assert len(render_conversation(messages, 6000)) < 4300
    assert len(render_conversation(messages, 2000)) < 1200
    assert len(render_conversation([Message(role="user", text="ü" * 9000)], 2000).encode()) < 2000


def test_images_are_summarized_by_their_text(tmp_path):
    image = ImageBlock("image/png", "AAAA")
    messages = [Message(role="tool", text="[Image]", call="1", images=(image,))]
    assert render_conversation(messages, 6000) == "Result of a tool: [Image]"


async def test_summary_that_would_take_the_last_request_is_not_asked_for(tmp_path):
    model = WorkingModel(calls=30)
    events = await run(model, tmp_path, limits=Limits(max_turns=9))
    assert model.summarized == []
    assert [notice.message for notice in notices(events, "compaction_failed")] == [
        "The earlier conversation could not be summarized: the budget of the run leaves no room for it."
    ]
    assert len(notices(events, "wrap_up")) == 1
