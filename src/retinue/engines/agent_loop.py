"""The agent loop: a model replies, its tools are called, until it has nothing more to call.

Per assistant message it emits the deltas as they come, the whole blocks, the tool calls, `message_ended`, and
only then the results of the calls, so the events between two `message_ended` are one message and a transcript
can be rebuilt from them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import anyio
import msgspec
from msgspec import Struct

from retinue.engines.base import Emit
from retinue.engines.toolbox import AgentToolbox, ToolOutcome, ToolSchema, finalize_tool
from retinue.model.events import (
    Finalized,
    MessageEnded,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Finalization, Usage
from retinue.model.runs import Message, RunSpec, ToolUse
from retinue.model.tool_names import FINALIZE_TOOL

OnDelta = Callable[[TextDelta | ThinkingDelta], Awaitable[None]]
"""Where a model tells what it is writing, while it writes. Awaiting it is a checkpoint."""


class ModelRequest(Struct, frozen=True):
    """What a model is asked to continue."""

    system_prompt: str
    messages: Sequence[Message]
    """The conversation so far. It goes on growing: a model that keeps it copies it."""
    tools: tuple[ToolSchema, ...] = ()


class ModelReply(Struct, frozen=True, kw_only=True):
    """One whole assistant message."""

    content: tuple[Thinking | Text | ToolUse, ...] = ()
    """In the order the model wrote it; the text also of what was said as deltas."""
    stop_reason: StopReason = "stop"
    model: str | None = None
    """The model that really answered, where the provider says so."""
    usage: Usage = Usage()
    error: str | None = None
    """The provider's words, where the stop reason is `error`."""

    @property
    def text(self) -> str:
        return "\n\n".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def tool_calls(self) -> tuple[ToolUse, ...]:
        """What it wants called; nothing if the message was cut short, as its calls may be cut too."""
        if self.stop_reason not in ("stop", "tool_use"):
            return ()
        return tuple(block for block in self.content if isinstance(block, ToolUse))


class ChatModel(Protocol):
    """What the loop converses with."""

    name: str

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        """The next assistant message. A provider's failure is a reply with stop reason `error`, not an exception.

        Raises:
            EngineError: this model cannot be used at all.
        """


async def run_agent_loop(model: ChatModel, spec: RunSpec, toolbox: AgentToolbox, emit: Emit) -> None:
    """Carries out a spec: from its history and prompt to the model's last message or a valid finalization.

    Of the toolbox only what the spec grants can be seen or called.
    """
    tools = toolbox.restricted_to(spec.grant.tools)
    if spec.callback:
        from retinue.engines.delegation_client import list_tools

        tools = tools.with_tools(*await list_tools(spec.callback))
    if spec.finalize:
        tools = tools.with_tools(finalize_tool())
    messages = _initial_messages(spec)
    request = ModelRequest(spec.instructions, messages, tools.schemas)
    while True:
        reply = await model.reply(request, emit)
        calls = reply.tool_calls
        await _emit_reply(reply, calls, model.name, emit)
        if not calls:
            return
        outcomes = await _call_tools(tools, calls, emit)
        if await _emit_finalizations(calls, outcomes, emit):
            return
        messages.append(Message(role="assistant", text=reply.text, calls=calls))
        messages.extend(
            Message(role="tool", text=outcome.text, call=use.id, is_error=outcome.is_error)
            for use, outcome in zip(calls, outcomes, strict=True)
        )


def _initial_messages(spec: RunSpec) -> list[Message]:
    """The conversation up to the model's turn. Two user messages in a row, which providers refuse, are one."""
    messages, prompt = list(spec.history), spec.prompt
    if messages and messages[-1].role == "user":
        prompt = f"{messages.pop().text}\n\n{prompt}"
    return [*messages, Message(role="user", text=prompt)]


async def _emit_reply(reply: ModelReply, calls: tuple[ToolUse, ...], model: str, emit: Emit) -> None:
    for block in reply.content:
        if not isinstance(block, ToolUse):
            await emit(block)
    for use in calls:
        await emit(ToolCalled(use.id, use.name, use.args))
    await emit(
        MessageEnded(
            stop_reason="tool_use" if calls else reply.stop_reason,
            model=reply.model or model,
            usage=msgspec.structs.replace(reply.usage, turns=1),
            error=reply.error,
        )
    )


async def _call_tools(tools: AgentToolbox, calls: tuple[ToolUse, ...], emit: Emit) -> list[ToolOutcome]:
    """Runs the calls of one message side by side and reports each in the order they were asked for."""
    if len(calls) == 1:
        outcome = await tools.call(calls[0])
        await _emit_outcome(calls[0], outcome, emit)
        return [outcome]

    outcomes: dict[int, ToolOutcome] = {}
    ready = [anyio.Event() for _ in calls]

    async def run(index: int) -> None:
        outcomes[index] = await tools.call(calls[index])
        ready[index].set()

    async with anyio.create_task_group() as running:
        for index in range(len(calls)):
            running.start_soon(run, index)
        for index, use in enumerate(calls):
            await ready[index].wait()
            await _emit_outcome(use, outcomes[index], emit)
    return [outcomes[index] for index in range(len(calls))]


async def _emit_outcome(use: ToolUse, outcome: ToolOutcome, emit: Emit) -> None:
    await emit(ToolReturned(use.id, use.name, outcome.text, outcome.is_error))


async def _emit_finalizations(calls: tuple[ToolUse, ...], outcomes: list[ToolOutcome], emit: Emit) -> bool:
    """Tells of every valid finalize call (the last one counts) and whether there was one."""
    valid = [
        use
        for use, outcome in zip(calls, outcomes, strict=True)
        if use.name == FINALIZE_TOOL and not outcome.is_error
    ]
    for use in valid:
        await emit(Finalized(msgspec.convert(use.args, Finalization)))
    return bool(valid)
