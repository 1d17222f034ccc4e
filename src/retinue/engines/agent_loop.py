"""The agent loop: a model replies and its tools are called, until a reply calls no tool.

Per assistant message it emits the deltas as they arrive, the whole blocks, the tool calls, `message_ended`, and
only then the results of the calls, so the events between two `message_ended` are one message and a transcript
can be rebuilt from them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

import anyio
import msgspec
from msgspec import Struct

from retinue.engines.base import Emit
from retinue.engines.toolbox import AgentToolbox, ToolOutcome, ToolSchema, finalize_tool
from retinue.model.events import (
    Event,
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
"""Receives the deltas of a model while it writes. Awaiting it is a checkpoint."""


class ModelRequest(Struct, frozen=True):
    """The conversation that a model continues."""

    system_prompt: str
    messages: Sequence[Message]
    """Messages so far. The list keeps growing: a model that stores it copies it."""
    tools: tuple[ToolSchema, ...] = ()


class ModelReply(Struct, frozen=True, kw_only=True):
    """One whole assistant message."""

    content: tuple[Thinking | Text | ToolUse, ...] = ()
    """Blocks in the order the model wrote them; complete, also where they were sent as deltas."""
    stop_reason: StopReason = "stop"
    model: str | None = None
    """The model that answered, where the provider reports it."""
    usage: Usage = Usage()
    error: str | None = None
    """The provider's message, where the stop reason is `error`."""

    @property
    def text(self) -> str:
        return "\n\n".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def tool_calls(self) -> tuple[ToolUse, ...]:
        """The calls of the message; none if it was cut short, because its calls may be incomplete."""
        if self.stop_reason not in ("stop", "tool_use"):
            return ()
        return tuple(block for block in self.content if isinstance(block, ToolUse))


class ChatModel(Protocol):
    """A language model, or rules in its place."""

    name: str

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        """Return the next assistant message. A provider's failure is a reply with stop reason `error`.

        Raises:
            EngineError: this model cannot be used at all.
        """


async def run_agent_loop(model: ChatModel, spec: RunSpec, toolbox: AgentToolbox, emit: Emit) -> None:
    """Run a spec from its history and prompt to the model's last message or a valid finalization.

    The model sees and calls only those tools of the toolbox that the spec grants.
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
        for event in _reply_events(reply, calls, model.name):
            await emit(event)
        if not calls:
            return
        messages.append(Message(role="assistant", text=reply.text, calls=calls))
        finalizations: list[Finalization] = []
        async with _start_calls(tools, calls) as results:
            for use, result in zip(calls, results, strict=True):
                outcome = await result()
                await emit(ToolReturned(use.id, use.name, outcome.text, outcome.is_error))
                messages.append(Message(role="tool", text=outcome.text, call=use.id, is_error=outcome.is_error))
                if use.name == FINALIZE_TOOL and not outcome.is_error:
                    finalizations.append(msgspec.convert(use.args, Finalization))
        for finalization in finalizations:
            await emit(Finalized(finalization))
        if finalizations:
            return


def _initial_messages(spec: RunSpec) -> list[Message]:
    """Return the conversation up to the model's turn. Two user messages in a row, which providers refuse, are one."""
    messages, prompt = list(spec.history), spec.prompt
    if messages and messages[-1].role == "user":
        prompt = f"{messages.pop().text}\n\n{prompt}"
    return [*messages, Message(role="user", text=prompt)]


def _reply_events(reply: ModelReply, calls: tuple[ToolUse, ...], model: str) -> Iterator[Event]:
    for block in reply.content:
        if not isinstance(block, ToolUse):
            yield block
    for use in calls:
        yield ToolCalled(use.id, use.name, use.args)
    yield MessageEnded(
        stop_reason="tool_use" if calls else reply.stop_reason,
        model=reply.model or model,
        usage=msgspec.structs.replace(reply.usage, turns=1),
        error=reply.error,
    )


@asynccontextmanager
async def _start_calls(
    tools: AgentToolbox, calls: tuple[ToolUse, ...]
) -> AsyncIterator[list[Callable[[], Awaitable[ToolOutcome]]]]:
    """Start the calls of one message side by side, and yield functions that wait for their outcomes.

    A single call runs where its outcome is awaited.
    """
    if len(calls) == 1:
        yield [partial(tools.call, calls[0])]
        return
    pending = [_PendingCall(tools, use) for use in calls]
    async with anyio.create_task_group() as group:
        for each in pending:
            group.start_soon(each.run)
        yield [each.wait for each in pending]


class _PendingCall:
    """A tool call that runs in a task of its own."""

    def __init__(self, tools: AgentToolbox, use: ToolUse) -> None:
        self._tools = tools
        self._use = use
        self._done = anyio.Event()

    async def run(self) -> None:
        self._outcome = await self._tools.call(self._use)
        self._done.set()

    async def wait(self) -> ToolOutcome:
        await self._done.wait()
        return self._outcome
