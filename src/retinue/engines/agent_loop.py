"""The agent loop: a model replies and its tools are called, until a reply calls no tool.

Per assistant message it emits the deltas as they arrive, the whole blocks, the tool calls, `message_ended`, and
only then the results of the calls, so the events between two `message_ended` are one message and a transcript
can be rebuilt from them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
import msgspec
from msgspec import Struct

from retinue.engines.base import Completion, Emit
from retinue.engines.toolbox import (
    AgentToolbox,
    InvalidToolUse,
    ToolOutcome,
    ToolSchema,
    delegation_tools,
    finalize_tool,
    make_tool,
)
from retinue.model.events import (
    Event,
    Finalized,
    MessageEnded,
    Notice,
    SteeringDelivered,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Finalization, Usage
from retinue.model.runs import Limits, Message, ProviderBlock, RunSpec, ToolUse
from retinue.model.tool_names import FINALIZE_TOOL
from retinue.output.provider_errors import CONTEXT_OVERFLOW, classify_error

if TYPE_CHECKING:
    from retinue.engines.compaction import Compactor

OnDelta = Callable[[TextDelta | ThinkingDelta | Notice], Awaitable[None]]
"""Receives the deltas of a model while it writes, and notices about it. Awaiting it is a checkpoint."""

MAX_INVALID_MESSAGES = 3
"""Messages in a row whose tool calls all have invalid arguments after which a run fails."""
MAX_WRAP_UP_SECONDS = 60.0
"""Seconds before the timeout at which an agent is asked for its answer; a tenth of shorter timeouts."""
WRAP_UP_PROMPT = "{reason} Give your final answer now, from what you have; say what is missing. Call no more tools."
WRAP_UP_FINALIZE_PROMPT = "{reason} Call subagent_finalize now with what you have, and no other tool."
WRAP_UP_NOTICE = "The agent was asked for its final answer early. {reason}"
NO_ROOM_ERROR = "The conversation exceeds the model's context window and cannot be made shorter. {error}"
INVALID_CALLS_ERROR = f"The model sent {MAX_INVALID_MESSAGES} messages in a row with invalid JSON in its tool calls."


class ModelRequest(Struct, frozen=True):
    """The conversation that a model continues."""

    system_prompt: str
    messages: Sequence[Message]
    """Messages so far. The list keeps growing: a model that stores it copies it."""
    tools: tuple[ToolSchema, ...] = ()
    allow_calls: bool = True
    """False for the last turn of a run: the tools stay declared, and none may be called."""


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
    provider_block: ProviderBlock | None = None

    @property
    def text(self) -> str:
        return "\n\n".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def tool_calls(self) -> tuple[ToolUse, ...]:
        """The calls of the message; none if it was cut short, because its calls may be incomplete."""
        if self.stop_reason not in ("stop", "tool_use"):
            return ()
        return tuple(block for block in self.content if isinstance(block, ToolUse))

    @property
    def is_overflow(self) -> bool:
        """Whether the provider refused the request as too long."""
        return self.stop_reason == "error" and classify_error(self.error) == CONTEXT_OVERFLOW


class ChatModel(Protocol):
    """A language model, or rules in its place."""

    name: str

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        """Return the next assistant message. A provider's failure is a reply with stop reason `error`.

        Raises:
            EngineError: this model cannot be used at all.
        """


async def run_agent_loop(
    model: ChatModel,
    spec: RunSpec,
    toolbox: AgentToolbox,
    emit: Emit,
    *,
    steering: list[str] | None = None,
    compactor: Compactor | None = None,
) -> None:
    """Run a spec from its history and prompt to the model's last message or a valid finalization.

    The model sees and calls only those tools of the toolbox that the spec grants. Texts that are added to `steering`
    meanwhile become user messages before the next request. The compactor keeps them within the model's window.
    """
    tools = _granted_tools(spec, toolbox)
    if steering is not None:
        await emit(Completion.PENDING)
    conversation = _Conversation(spec, tools, emit, [] if steering is None else steering, compactor)
    while True:
        reply = await conversation.ask(model)
        calls = conversation.add_reply(reply)
        for event in _reply_events(reply, calls, model.name):
            await emit(event)
        finalizations: list[Finalization] = []
        async with _start_calls(tools, calls) as results:
            for use, result in zip(calls, results, strict=True):
                outcome = await result()
                await emit(ToolReturned(use.id, use.name, outcome.text, outcome.is_error))
                conversation.add_result(use, outcome)
                if use.name == FINALIZE_TOOL and not outcome.is_error:
                    finalizations.append(Finalization.from_arguments(use.args))
        for finalization in finalizations:
            await emit(Finalized(finalization))
        if conversation.has_only_invalid_calls:
            await emit(MessageEnded(stop_reason="error", model=model.name, error=INVALID_CALLS_ERROR))
        if finalizations or conversation.has_only_invalid_calls or conversation.is_over:
            break
    if steering is not None:
        await emit(Completion.REPORTED)


class _Conversation:
    """The messages of a run, and the limits that decide which request is its last."""

    def __init__(
        self, spec: RunSpec, tools: AgentToolbox, emit: Emit, steering: list[str], compactor: Compactor | None
    ) -> None:
        self._compactor = compactor
        self._task = spec.prompt if spec.task in spec.prompt else f"{spec.task}\n\n{spec.prompt}"
        self._messages = _initial_messages(spec)
        self._request = ModelRequest(spec.instructions, self._messages, tools.schemas)
        self._finalize = spec.finalize
        self._limit = _WrapUpLimit(spec.limits)
        self._emit = emit
        self._steering = steering
        self._is_wrapping_up = False
        self._invalid_messages = 0
        self._last: ModelReply | None = None
        self._last_calls: tuple[ToolUse, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the last reply calls no tool and no steering waits, or the provider failed."""
        last = self._last
        return last is not None and (last.stop_reason == "error" or not (self._last_calls or self._steering))

    @property
    def has_only_invalid_calls(self) -> bool:
        return self._invalid_messages >= MAX_INVALID_MESSAGES

    async def ask(self, model: ChatModel) -> ModelReply:
        """Return the model's next message. A conversation that is refused as too long is compacted and sent again."""
        while True:
            reply = await model.reply(await self._next_request(), self._emit)
            if not reply.is_overflow:
                return reply
            if not await self._recover():
                return msgspec.structs.replace(reply, error=NO_ROOM_ERROR.format(error=reply.error))
            for event in _reply_events(reply, (), model.name):
                await self._emit(event)

    async def _next_request(self) -> ModelRequest:
        """Return the request with pending steering; the last one that the limits allow asks for the answer."""
        while self._steering:
            text = self._steering.pop(0)
            self._messages.append(Message(role="user", text=text))
            await self._emit(SteeringDelivered(text))
        if not self._is_wrapping_up and (reason := self._find_last_turn_reason()):
            self._is_wrapping_up = True
            await self._emit(Notice("wrap_up", WRAP_UP_NOTICE.format(reason=reason)))
            prompt = WRAP_UP_FINALIZE_PROMPT if self._finalize else WRAP_UP_PROMPT
            self._messages.append(Message(role="user", text=prompt.format(reason=reason)))
            self._request = msgspec.structs.replace(self._request, allow_calls=self._finalize)
        if self._compactor:
            await self._compactor.make_room(self._request, self._messages, self._task)
        return self._request

    def _find_last_turn_reason(self) -> str | None:
        return self._limit.find_reason(self._compactor.usage if self._compactor else Usage())

    async def _recover(self) -> bool:
        compactor = self._compactor
        return compactor is not None and await compactor.recover(self._request, self._messages, self._task)

    def add_reply(self, reply: ModelReply) -> tuple[ToolUse, ...]:
        """Add a reply and return the calls to execute."""
        calls = reply.tool_calls if self._request.allow_calls else ()
        self._last, self._last_calls = reply, calls
        self._limit.add(reply.usage)
        is_invalid = bool(calls) and all(isinstance(use, InvalidToolUse) for use in calls)
        self._invalid_messages = self._invalid_messages + 1 if is_invalid else 0
        self._messages.append(
            Message(role="assistant", text=reply.text, calls=calls, provider_block=reply.provider_block)
        )
        if self._compactor:
            self._compactor.add_reply(self._request, reply.usage)
        return calls

    def add_result(self, use: ToolUse, outcome: ToolOutcome) -> None:
        self._messages.append(
            Message(role="tool", text=outcome.text, call=use.id, is_error=outcome.is_error, images=outcome.images)
        )


class _WrapUpLimit:
    """The limits of a run, and whether the next request is the last one they allow."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spent = Usage()
        self._last = Usage()
        self._deadline = anyio.current_time() + limits.timeout - min(limits.timeout / 10, MAX_WRAP_UP_SECONDS)

    def add(self, usage: Usage) -> None:
        self._last = msgspec.structs.replace(usage, turns=1)
        self._spent += self._last

    def find_reason(self, summaries: Usage) -> str | None:
        """Return why the next request must be the last; None before the first request and while there is room.

        The next request costs at least as much as the last one. Summaries of the conversation count, too.
        """
        limits, spent, last = self._limits, self._spent + summaries, self._last
        if not spent.turns:
            return None
        if limits.max_turns and spent.turns >= limits.max_turns - 1:
            return f"Turn {spent.turns + 1} of {limits.max_turns} is the last one."
        if limits.max_tokens and spent.tokens + last.tokens > limits.max_tokens:
            return f"{spent.tokens} of {limits.max_tokens} tokens are spent."
        cost = spent.cost or 0.0
        if limits.max_cost and cost + (last.cost or 0.0) > limits.max_cost:
            return f"${cost:.4f} of ${limits.max_cost:.4f} are spent."
        if anyio.current_time() >= self._deadline:
            return f"The time of {limits.timeout:g}s is nearly over."
        return None


def _granted_tools(spec: RunSpec, toolbox: AgentToolbox) -> AgentToolbox:
    tools = toolbox.restricted_to(spec.grant.tools).with_tools(*map(make_tool, spec.functions))
    if spec.delegation:
        tools = tools.with_tools(*delegation_tools(spec.delegation))
    return tools.with_tools(finalize_tool(spec.output_schema)) if spec.finalize else tools


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
        stop_reason="tool_use" if calls else "stop" if reply.stop_reason == "tool_use" else reply.stop_reason,
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
    if len(calls) <= 1:
        yield [partial(tools.call, use) for use in calls]
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
