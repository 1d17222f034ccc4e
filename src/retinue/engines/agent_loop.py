"""The agent loop: a model replies and its tools are called, until a reply calls no tool.

Per assistant message it emits the deltas as they arrive, the whole blocks, the tool calls, `message_ended`, and
only then the results of the calls, so the events between two `message_ended` are one message and a transcript
can be rebuilt from them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import anyio
import msgspec
from msgspec import Struct

from retinue.engines.base import Completion, Emit, EngineError
from retinue.engines.toolbox import (
    AgentToolbox,
    InvalidToolUse,
    ToolOutcome,
    ToolSchema,
    delegation_tools,
    finalize_tool,
    make_tool,
    server_tools,
)
from retinue.model.events import (
    BUDGET_WAIT_END_NOTICE_CODE,
    BUDGET_WAIT_NOTICE_CODE,
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
from retinue.model.runs import Message, ProviderBlock, RequestBudget, RequestGrant, RequestSize, RunSpec, ToolUse
from retinue.model.tool_names import FINALIZE_TOOL
from retinue.output.provider_errors import CONTEXT_OVERFLOW, classify_error
from retinue.support.tasks import BackgroundTasks

if TYPE_CHECKING:
    from retinue.engines.compaction import Compactor


class ReplyStarted(Struct, frozen=True):
    """The provider has accepted a request and starts to reply."""

    read_usage: Callable[[], Usage]
    """Returns the usage that the provider has stated so far."""


ModelOutput = TextDelta | ThinkingDelta | Notice | ReplyStarted
OnDelta = Callable[[ModelOutput], Awaitable[None]]
"""Receives the deltas of a model while it writes, and notices about it. Awaiting it is a checkpoint."""

MAX_INVALID_MESSAGES = 3
"""Messages in a row whose tool calls all have invalid arguments after which a run fails."""
WRAP_UP_PROMPT = (
    "{reason} Give your final answer now, from what you have, and state what is missing. Call no more tools."
)
WRAP_UP_FINALIZE_PROMPT = "{reason} Call subagent_finalize now with what you have, and no other tool."
WRAP_UP_NOTICE = "The agent was asked for its final answer early. {reason}"
WRAP_UP_TOKENS = 100
"""Tokens of the prompt that asks for the last answer."""
BUDGET_WAIT = "The next request waits: other runs have reserved the remainder of the shared budget."
BUDGET_WAIT_END = "The request that waited for a budget is sent."
USAGE_ESTIMATED = "{model} states no usage: its tokens are estimated for the budget of the run."
RESULT_LEFT_OUT = "[Left out: the result does not fit what is left of the budget of the run.]"
CANCELLED_ESTIMATED = (
    "The reply of {model} was cancelled before its usage was stated in full: its tokens are estimated."
)
COST_TIMEOUT = 1.0
"""Seconds that the end of a cancelled run waits for the price of its last request."""
CALL_STOPPED = "Cancelled: the time of the run is nearly over; the remaining time is reserved for the answer."
NO_ROOM_ERROR = "The conversation exceeds the model's context window and cannot be shortened further. {error}"
INVALID_CALLS_ERROR = f"The model sent {MAX_INVALID_MESSAGES} messages in a row with invalid JSON in its tool calls."


class ModelRequest(Struct, frozen=True):
    """The conversation that a model continues."""

    system_prompt: str
    messages: Sequence[Message]
    """Messages so far. The list keeps growing: a model that stores it copies it."""
    tools: tuple[ToolSchema, ...] = ()
    allow_calls: bool = True
    """False for the last turn of a run: the tools stay declared, and none may be called."""
    max_output_tokens: int | None = None
    """Output limit that the budgets of the run leave; None for that of the model."""


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
    # Not kept beside it: a run holds what it was granted only.
    toolbox = (await _granted_tools(spec, toolbox)).behind(spec.gate)
    if steering is not None:
        await emit(Completion.PENDING)
    conversation = _Conversation(model, spec, toolbox, emit, [] if steering is None else steering, compactor)
    while True:
        calls = await conversation.ask()
        finalizations: list[Finalization] = []
        async with _start_calls(conversation.limit_tools(toolbox), calls, spec.budget) as results:
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
    """The messages of a run, and the requests that the budgets of the run allow."""

    def __init__(
        self,
        model: ChatModel,
        spec: RunSpec,
        tools: AgentToolbox,
        emit: Emit,
        steering: list[str],
        compactor: Compactor | None,
    ) -> None:
        self._model = model
        self._compactor = compactor
        self._task = spec.prompt if spec.task in spec.prompt else f"{spec.task}\n\n{spec.prompt}"
        self._messages = _initial_messages(spec)
        self._request = ModelRequest(spec.instructions, self._messages, tools.schemas)
        self._finalize = spec.finalize
        self._reserver = RequestReserver(model, spec.budget, emit)
        self._emit = emit
        self._steering = steering
        self._is_wrapping_up = False
        self._is_estimated = False
        self._invalid_messages = 0
        self._last: ModelReply | None = None
        self._last_calls: tuple[ToolUse, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the last reply calls no tool and no steering waits, or there can be no other reply."""
        last = self._last
        if last is None or self._last_calls:
            return False
        return last.stop_reason == "error" or self._is_wrapping_up or not self._steering

    @property
    def has_only_invalid_calls(self) -> bool:
        return self._invalid_messages >= MAX_INVALID_MESSAGES

    async def ask(self) -> tuple[ToolUse, ...]:
        """Emit the model's next message and return its calls.

        A conversation that is refused as too long is compacted and sent again. A request is reserved until its usage
        has been emitted, and at no other time.
        """
        while True:
            if self._compactor:
                await self._compactor.make_room(self._request, self._messages, self._task)
            async with self._reserver.reserve(self._measure) as grant:
                reply = await self._request_reply(await self._next_request(grant))
                if not reply.is_overflow:
                    for event in self._add_reply(await self._count_usage(reply)):
                        await self._emit(event)
                    return self._last_calls
            is_final = not await self._recover()
            if is_final:
                reply = msgspec.structs.replace(reply, error=NO_ROOM_ERROR.format(error=reply.error))
            for event in self._add_reply(reply) if is_final else _reply_events(reply, (), self._model.name):
                await self._emit(event)
            if is_final:
                return self._last_calls

    async def _request_reply(self, request: ModelRequest) -> ModelReply:
        """Return the reply; if it is cancelled, emit the usage of what arrived, as far as that is known."""
        reply = PartialReply(self._emit)
        try:
            return await self._model.reply(request, reply.receive)
        except anyio.get_cancelled_exc_class():
            if reply.started and self._compactor:
                await self._emit_cancelled(reply, self._compactor.estimate(request))
            raise

    async def _emit_cancelled(self, reply: PartialReply, request_tokens: int) -> None:
        usage, is_estimated = reply.count_usage(request_tokens)
        name = self._model.name
        with anyio.CancelScope(shield=True):
            if isinstance(self._model, PricedModel):
                with anyio.move_on_after(COST_TIMEOUT):
                    usage = await self._model.add_cost(usage)
            if is_estimated:
                await self._emit(Notice("usage_estimated", CANCELLED_ESTIMATED.format(model=name)))
            usage = msgspec.structs.replace(usage, turns=1)
            await self._emit(MessageEnded(stop_reason="aborted", model=name, usage=usage))

    async def _count_usage(self, reply: ModelReply) -> ModelReply:
        """Return the reply with the usage that its budgets count, estimated where a server states none."""
        if reply.stop_reason == "error" or self._compactor is None:
            return reply
        usage = self._reserver.estimate_usage(reply.usage, self._compactor.estimate_reply(reply))
        if usage == reply.usage:
            return reply
        if not self._is_estimated:
            self._is_estimated = True
            await self._emit(Notice("usage_estimated", USAGE_ESTIMATED.format(model=reply.model or self._model.name)))
        return msgspec.structs.replace(reply, usage=usage)

    def _measure(self) -> tuple[int, int] | None:
        """Return the tokens of the next request, and without the results of the last calls; None if unknown."""
        if self._compactor is None:
            return None
        tokens = self._compactor.estimate(self._request) + sum(map(len, self._steering))
        results = (self._messages[at] for at in self._find_last_results())
        return tokens, tokens - sum(map(self._compactor.estimate_result, results))

    def _find_last_results(self) -> list[int]:
        """Return where the results of the last calls are; texts follow them where a request is sent again."""
        last = max((at for at, message in enumerate(self._messages) if message.role == "assistant"), default=-1)
        return [at for at in range(last + 1, len(self._messages)) if self._messages[at].role == "tool"]

    async def _next_request(self, grant: RequestGrant) -> ModelRequest:
        """Return the request with pending steering, within its grant; the last one asks for the answer."""
        if grant.leaves_out_results:
            for at in self._find_last_results():
                self._messages[at] = msgspec.structs.replace(self._messages[at], text=RESULT_LEFT_OUT, images=())
        while self._steering:
            text = self._steering.pop(0)
            self._messages.append(Message(role="user", text=text))
            await self._emit(SteeringDelivered(text))
        if grant.last_reason and not self._is_wrapping_up:
            self._is_wrapping_up = True
            await self._emit(Notice("wrap_up", WRAP_UP_NOTICE.format(reason=grant.last_reason)))
            prompt = WRAP_UP_FINALIZE_PROMPT if self._finalize else WRAP_UP_PROMPT
            self._messages.append(Message(role="user", text=prompt.format(reason=grant.last_reason)))
            self._request = msgspec.structs.replace(self._request, allow_calls=self._finalize)
        return msgspec.structs.replace(self._request, max_output_tokens=grant.output)

    async def _recover(self) -> bool:
        compactor = self._compactor
        return compactor is not None and await compactor.recover(self._request, self._messages, self._task)

    def _add_reply(self, reply: ModelReply) -> Iterator[Event]:
        """Add a reply to the conversation and return its events."""
        calls = reply.tool_calls if self._request.allow_calls else ()
        self._last, self._last_calls = reply, calls
        is_invalid = bool(calls) and all(isinstance(use, InvalidToolUse) for use in calls)
        self._invalid_messages = self._invalid_messages + 1 if is_invalid else 0
        self._messages.append(
            Message(role="assistant", text=reply.text, calls=calls, provider_block=reply.provider_block)
        )
        if self._compactor:
            self._compactor.add_reply(self._request, reply.usage)
        return _reply_events(reply, calls, self._model.name)

    def limit_tools(self, tools: AgentToolbox) -> AgentToolbox:
        """Return the tools that execute the last calls: in the last turn those of a message that finalizes."""
        if self._is_wrapping_up and not any(use.name == FINALIZE_TOOL for use in self._last_calls):
            return tools.restricted_to((FINALIZE_TOOL,))
        return tools

    def add_result(self, use: ToolUse, outcome: ToolOutcome) -> None:
        self._messages.append(
            Message(role="tool", text=outcome.text, call=use.id, is_error=outcome.is_error, images=outcome.images)
        )


async def _granted_tools(spec: RunSpec, toolbox: AgentToolbox) -> AgentToolbox:
    tools = toolbox.restricted_to(spec.grant.tools).with_tools(*map(make_tool, spec.functions))
    if spec.delegation:
        tools = tools.with_tools(*delegation_tools(spec.delegation))
    if spec.tool_servers:
        tools = tools.with_tools(*await server_tools(spec.tool_servers))
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
    tools: AgentToolbox, calls: tuple[ToolUse, ...], budget: RequestBudget | None
) -> AsyncIterator[list[Callable[[], Awaitable[ToolOutcome]]]]:
    """Start the calls of one message side by side, and yield functions that wait for their outcomes.

    Calls are stopped when the time of the run is nearly over, except those of a message that finalizes.
    """
    if not calls:
        yield []
        return
    pending = [_PendingCall(tools, use) for use in calls]
    async with BackgroundTasks(*(each.run for each in pending)) as group:
        if budget and not any(use.name == FINALIZE_TOOL for use in calls):
            group.start_soon(_stop_late_calls, pending, budget)
        yield [each.wait for each in pending]


async def _stop_late_calls(calls: Sequence[_PendingCall], budget: RequestBudget) -> None:
    while (end := budget.calls_end) > anyio.current_time():  # noqa: ASYNC110 - the end moves while this waits
        await anyio.sleep_until(end)
    for call in calls:
        call.scope.cancel()


class _PendingCall:
    """A tool call that runs in a task of its own."""

    def __init__(self, tools: AgentToolbox, use: ToolUse) -> None:
        self._tools = tools
        self._use = use
        self._done = anyio.Event()
        self._error: EngineError | None = None
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            try:
                self._outcome = await self._tools.call(self._use)
            except EngineError as error:
                self._error = error
        if self.scope.cancelled_caught:
            self._outcome = ToolOutcome(CALL_STOPPED, is_error=True)
        self._done.set()

    async def wait(self) -> ToolOutcome:
        await self._done.wait()
        if self._error:
            raise self._error
        return self._outcome


class PartialReply:
    """A reply while it arrives."""

    def __init__(self, emit: Emit) -> None:
        self.started: ReplyStarted | None = None
        self._emit = emit
        self._chars = 0

    async def receive(self, output: ModelOutput) -> None:
        if isinstance(output, ReplyStarted):
            self.started, self._chars = output, 0
            return
        if not isinstance(output, Notice):
            self._chars += len(output.text)
        await self._emit(output)

    def count_usage(self, request_tokens: int) -> tuple[Usage, bool]:
        """Return the usage so far, and whether part of it is estimated: what the provider has not stated."""
        from retinue.engines.compaction import BYTES_PER_TOKEN

        stated = self.started.read_usage() if self.started else Usage()
        has_input = stated.input + stated.cache_read + stated.cache_write > 0
        output = max(stated.output, self._chars // BYTES_PER_TOKEN)
        counted = msgspec.structs.replace(
            stated, input=stated.input if has_input else request_tokens, output=output, cost=None
        )
        return counted, not has_input or output > stated.output


@runtime_checkable
class PricedModel(Protocol):
    """A model whose usage has a price."""

    async def add_cost(self, usage: Usage) -> Usage:
        """Return the usage with its cost in dollars, unless that cannot be known."""


@runtime_checkable
class SizedModel(Protocol):
    """A model whose replies have an output limit, so that its requests can be reserved in a budget."""

    @property
    def max_output_tokens(self) -> int:
        """Most tokens of a reply."""

    async def find_prices(self, input_tokens: int) -> tuple[float, float]:
        """Return the dollars for a token of a request of this size and of its reply; 0 if free or unknown."""


class RequestReserver:
    """Reserves the requests of a run. Requests of a model without an output limit have an unknown size."""

    def __init__(self, model: object, budget: RequestBudget | None, emit: Emit) -> None:
        self._model = model if isinstance(model, SizedModel) else None
        self._budget = budget
        self._emit = emit
        self._size: RequestSize | None = None
        """Size of the last request, if the run has a budget and the size is known."""

    @asynccontextmanager
    async def reserve(self, measure: Callable[[], tuple[int, int] | None]) -> AsyncIterator[RequestGrant]:
        """Reserve a request for the block, in which no other one may be reserved.

        `measure` returns its tokens, and those without the results of the last calls, if they are known.

        Raises:
            EngineError: `budget`: the request cannot fit any more.
        """
        if self._budget is None:
            yield RequestGrant()
            return
        self._size = await self._find_size(self._budget, measure)
        async with self._budget.reserve(self._size, self._report_wait) as grant:
            yield grant

    def estimate_usage(self, usage: Usage, reply_tokens: int) -> Usage:
        """Return the usage of the last request; estimated if its budget needs it and the provider gave no counts."""
        if usage.tokens or not self._size:
            return usage
        size = self._size
        price = size.input * size.input_price + reply_tokens * size.output_price
        cost = usage.cost if usage.cost is not None else price or None
        return Usage(input=size.input, output=reply_tokens, cost=cost)

    async def _find_size(
        self, budget: RequestBudget, measure: Callable[[], tuple[int, int] | None]
    ) -> RequestSize | None:
        if not self._model or not budget.is_limited or (tokens := measure()) is None:
            return None
        total, least = (count + WRAP_UP_TOKENS for count in tokens)
        prices = await self._model.find_prices(total) if budget.limits_cost else (0.0, 0.0)
        return RequestSize(
            input=total,
            least_input=least,
            output=self._model.max_output_tokens,
            input_price=prices[0],
            output_price=prices[1],
        )

    async def _report_wait(self, begins: bool) -> None:
        code, text = (
            (BUDGET_WAIT_NOTICE_CODE, BUDGET_WAIT) if begins else (BUDGET_WAIT_END_NOTICE_CODE, BUDGET_WAIT_END)
        )
        await self._emit(Notice(code, text))
