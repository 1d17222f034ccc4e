"""Models of pydantic-ai behind our own protocol, for providers that no wire of ours reaches."""

from __future__ import annotations

import base64
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec

from retinue.engines.agent_loop import ModelReply, ModelRequest, OnDelta, ReplyStarted
from retinue.engines.api.connections import HttpClients
from retinue.engines.api.extra_providers import EXTRA_WIRE, INSTALL_HINT
from retinue.engines.api.openai_chat import CONTENT_FILTER, describe_error
from retinue.engines.api.pricing import PriceList
from retinue.engines.api.retries import (
    RequestFailedError,
    make_connection_error,
    make_status_error,
    reply_with_retries,
)
from retinue.engines.api.wire import (
    DEFAULT_MAX_TOKENS,
    ModelOptions,
    ProviderStreamError,
    parse_call,
    rename_repeated_calls,
)
from retinue.engines.base import EngineError, engine_error
from retinue.model.errors import ErrorCode
from retinue.model.events import Notice, StopReason, Text, TextDelta, Thinking, ThinkingDelta
from retinue.model.results import Usage
from retinue.model.runs import Message, ProviderBlock, Secret, ToolUse

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

USUAL_PACKAGES_HINT = (
    f"`{INSTALL_HINT}` installs those of Bedrock, Google Cloud, Azure and OpenAI-compatible servers."
)
MAX_ERROR_CHARS = 500
MAX_REPLY_CHARS = 64 * 2**20
"""Characters of one streamed reply; an endless stream ends here."""
STOP_REASONS: Mapping[str | None, StopReason] = {
    "stop": "stop",
    "tool_call": "tool_use",
    "length": "length",
    "content_filter": "error",
    "error": "error",
}


class PydanticModel:
    """A model of pydantic-ai as a `ChatModel`."""

    def __init__(self, model: Model[Any], provider: str, options: ModelOptions, prices: PriceList) -> None:
        self.name = f"{provider}/{options.model}"
        self._model = model
        self._provider = provider
        self._options = options
        self._prices = prices

    @property
    def max_output_tokens(self) -> int:
        return self._options.max_output_tokens or DEFAULT_MAX_TOKENS

    async def find_prices(self, input_tokens: int) -> tuple[float, float]:
        return await self._prices.find_token_prices(self._provider, self._options.model, input_tokens)

    async def add_cost(self, usage: Usage) -> Usage:
        return await self._prices.add_cost(usage, self._provider, self._options.model)

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        """Return the next message; a provider's failure is a reply with stop reason `error`."""
        effort = self._options.effort
        if effort and not self._model.profile.get("supports_thinking"):
            self._options = msgspec.structs.replace(self._options, effort=None)
            message = f"{self.name} takes no effort {effort}; its own default is used."
            await on_delta(Notice("not_applied", message, preference="thinking"))
        return await reply_with_retries(self._provider, partial(self._stream_reply, request), on_delta)

    async def _stream_reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        """Send one request and return its reply.

        Raises:
            RequestFailedError: the request failed, or its connection was lost.
            ProviderStreamError: the stream ended early.
        """
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.exceptions import ContentFilterError

        messages, size = encode_messages(request.messages), 0
        settings, parameters = self._encode_settings(request), encode_parameters(request)
        try:
            async with model_request_stream(
                self._model, messages, model_settings=settings, model_request_parameters=parameters
            ) as stream:
                self._prices.start_loading()
                await on_delta(ReplyStarted(lambda: _decode_usage(stream.get())))
                async with aclosing(aiter(stream)) as events:  # type: ignore[type-var]  # it is a generator
                    async for event in events:
                        delta, received = _read_event(event)
                        size += received
                        if size > MAX_REPLY_CHARS:
                            raise RequestFailedError(
                                f"The reply is larger than {MAX_REPLY_CHARS >> 20} MiB", retryable=False
                            )
                        if delta is not None:
                            await on_delta(delta)
                response = stream.get()
        except ContentFilterError:
            return ModelReply(stop_reason="error", error=CONTENT_FILTER)
        except _library_errors() as error:
            raise to_request_error(error) from error
        return await self._read_response(response)

    async def _read_response(self, response: ModelResponse) -> ModelReply:
        if response.state != "complete":
            raise ProviderStreamError(f"The stream ended without a stop reason: {response.state}")
        reply = decode_response(response)
        model = f"{self._provider}/{reply.model}" if reply.model else None
        return msgspec.structs.replace(reply, model=model, usage=await self.add_cost(reply.usage))

    def _encode_settings(self, request: ModelRequest) -> ModelSettings:
        # Retries are ours: the wait is an event, and cancellation ends it.
        settings: ModelSettings = {"max_retries": 0}
        if request.tools and not request.allow_calls:
            settings["tool_choice"] = "none"
        if limit := request.max_output_tokens or self._options.max_output_tokens:
            settings["max_tokens"] = limit
        match self._options.effort:
            case "off":
                settings["thinking"] = False
            case "minimal" | "low" | "medium" | "high" | "xhigh" | "max" as effort:
                settings["thinking"] = effort
        for name in self._model.unsupported_settings:  # each would be a warning on stderr
            settings.pop(name, None)
        return settings


class PydanticModels:
    """The models of an engine, each made once, in a thread: their libraries take seconds to import."""

    def __init__(self, clients: HttpClients, stack: AsyncExitStack) -> None:
        self._clients = clients
        self._stack = stack
        self._models: dict[tuple[object, ...], Model[Any]] = {}
        self._making = anyio.Lock()

    async def get_model(
        self, provider: str, model: str, arguments: Mapping[str, Secret], environ: Mapping[str, str]
    ) -> Model[Any]:
        """Return a model of a provider.

        Raises:
            EngineError: a package of the provider is missing, or its settings are not valid.
        """
        from retinue.engines.api.connections import find_route

        values = {name: secret.reveal() for name, secret in arguments.items()}
        key = (provider, model, *sorted(values.items()), find_route("https://localhost", environ))
        async with self._making:
            if key not in self._models:
                make_client = partial(self._clients.get_client, environ=environ)
                self._models[key] = await anyio.to_thread.run_sync(make_model, provider, model, values, make_client)
                if owner := self._models[key].provider:
                    await self._stack.enter_async_context(owner)
            return self._models[key]


def make_model(
    provider: str, model: str, arguments: Mapping[str, str], make_client: Callable[[str], object]
) -> Model[Any]:
    """Return a model of pydantic-ai with these arguments of its provider; nothing else is read from the environment.

    Raises:
        EngineError: a package of the provider is missing, or its settings are not valid.
    """
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    name = f"{provider}/{model}" if provider == "gateway" else f"{provider}:{model}"
    try:
        return infer_model(name, partial(_make_provider, arguments=arguments, make_client=make_client))
    except ImportError as error:
        message = f"The provider {provider} needs a package that is not installed. {USUAL_PACKAGES_HINT} {error}"
        raise _unusable(message, "not_installed") from error
    except (UserError, ValueError, OSError) as error:
        raise _unusable(f"The provider {provider} cannot be used: {error}", "invalid_settings") from error


def _make_provider(name: str, arguments: Mapping[str, str], make_client: Callable[[str], object]) -> Any:
    from pydantic_ai.providers import infer_provider_class
    from pydantic_ai.providers.gateway import gateway_provider

    values: dict[str, object] = dict(arguments)
    if path := arguments.get("credentials"):
        from google.auth import load_credentials_from_file

        values["credentials"], _ = load_credentials_from_file(path)
    upstream = name.removeprefix("gateway/")
    make = partial(gateway_provider, upstream) if upstream != name else infer_provider_class(name)
    # Libraries that need a client of their own kind make one.
    annotation = str(inspect.signature(make).parameters.get("http_client", ""))
    if "OpenAI" in annotation or "AsyncHTTPClient" in annotation:
        values["http_client"] = make_client("https://localhost")
    return make(**values)


def encode_parameters(request: ModelRequest) -> ModelRequestParameters:
    """Return the system prompt and tools of a request."""
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.schema))
            for tool in request.tools
        ],
        instruction_parts=[InstructionPart(request.system_prompt)] if request.system_prompt else None,
    )


def encode_messages(messages: Iterable[Message]) -> list[ModelMessage]:
    """Return a conversation; user messages and tool results in a row are one request."""
    from pydantic_ai.messages import ModelRequest as PydanticRequest

    encoded: list[ModelMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            names |= {use.id: use.name for use in message.calls}
            encoded.append(_encode_reply(message))
        else:
            last = encoded[-1] if encoded else None
            before = last.parts if isinstance(last, PydanticRequest) else ()
            request = PydanticRequest(parts=[*before, *_encode_request_parts(message, names)])
            encoded[len(encoded) - bool(before) :] = [request]
    return encoded


def _encode_reply(message: Message) -> ModelResponse:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    if message.provider_block and message.provider_block.wire == EXTRA_WIRE:
        response: ModelResponse = message.provider_block.content["response"]
        return response
    text = [TextPart(message.text)] if message.text else []
    return ModelResponse(parts=[*text, *(ToolCallPart(use.name, use.args, use.id) for use in message.calls)])


def _encode_request_parts(message: Message, names: Mapping[str, str]) -> Sequence[ModelRequestPart]:
    from pydantic_ai.messages import BinaryContent, ToolReturnPart, UserPromptPart

    if message.role == "user":
        return [UserPromptPart(message.text)]
    images = [BinaryContent(base64.b64decode(image.data), media_type=image.media_type) for image in message.images]
    call = message.call or ""
    content = [message.text, *images] if images else message.text
    return [ToolReturnPart(names.get(call, ""), content, call, outcome="failed" if message.is_error else "success")]


def _read_event(event: ModelResponseStreamEvent) -> tuple[TextDelta | ThinkingDelta | None, int]:
    """Return the delta of an event, if any, and the number of characters that arrived with it."""
    from pydantic_ai.messages import (
        PartDeltaEvent,
        PartStartEvent,
        TextPart,
        TextPartDelta,
        ThinkingPart,
        ThinkingPartDelta,
        ToolCallPartDelta,
    )

    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return (TextDelta(text) if text else None), len(text)
        case (
            PartStartEvent(part=ThinkingPart(content=text))
            | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text)))
        ):
            return (ThinkingDelta(text) if text else None), len(text)
        case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=str(text))):
            return None, len(text)
    return None, 0


def decode_response(response: ModelResponse) -> ModelReply:
    """Return a whole message. It is kept for its provider unless we had to change one of its calls."""
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    blocks: list[Text | Thinking | ToolUse] = []
    for part in response.parts:
        match part:
            case TextPart(content=text) if text:
                blocks.append(Text(text))
            case ThinkingPart(content=text) if text:
                blocks.append(Thinking(text))
            case ToolCallPart():
                arguments = part.args if isinstance(part.args, str) else msgspec.json.encode(part.args or {}).decode()
                blocks.append(parse_call(part.tool_call_id, part.tool_name, arguments))
    content = rename_repeated_calls(blocks)
    calls = [block for block in content if isinstance(block, ToolUse)]
    is_unchanged = content == blocks and all(type(use) is ToolUse for use in calls)
    stop_reason = STOP_REASONS.get(response.finish_reason, "tool_use" if calls else "stop")
    if stop_reason == "stop" and calls:
        stop_reason = "tool_use"
    error = CONTENT_FILTER if response.finish_reason == "content_filter" else "The provider ended the answer."
    return ModelReply(
        content=tuple(content),
        stop_reason=stop_reason,
        model=response.model_name,
        usage=_decode_usage(response),
        error=error if stop_reason == "error" else None,
        provider_block=ProviderBlock(EXTRA_WIRE, {"response": response}) if is_unchanged else None,
    )


def _decode_usage(response: ModelResponse) -> Usage:
    """Return the usage; cached tokens are part of pydantic-ai's input."""
    usage = response.usage
    return Usage(
        input=max(usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens, 0),
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        cost=None if usage.cost is None else float(usage.cost),
    )


def _library_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions with which a request fails; those of Google's logins are not pydantic-ai's."""
    from pydantic_ai.exceptions import AgentRunError, UserError

    login = sys.modules.get("google.auth.exceptions")
    return (AgentRunError, UserError, *((login.GoogleAuthError,) if login else ()))


def to_request_error(error: Exception) -> RequestFailedError:
    """Return our error for one of pydantic-ai, in words that our failure codes are found by."""
    from pydantic_ai import exceptions

    detail = str(error)[:MAX_ERROR_CHARS]
    match error:
        case exceptions.ModelHTTPError():
            body = describe_error(error.body)[:MAX_ERROR_CHARS] if error.body else detail
            return make_status_error(error.status_code, body, error.retry_after)
        case exceptions.ModelTimeoutError() | exceptions.ModelRequestTimeout():
            return RequestFailedError(f"The provider timed out: {detail}", retryable=True)
        case exceptions.ModelConnectionError():
            return make_connection_error(_root_cause(error)[:MAX_ERROR_CHARS])
        case exceptions.ModelAPIError():
            transient = (
                exceptions.ModelRateLimitError,
                exceptions.ModelUnavailableError,
                exceptions.ModelServerError,
            )
            return RequestFailedError(detail, retryable=isinstance(error, transient), retry_after=error.retry_after)
        case exceptions.UnexpectedModelBehavior():
            return RequestFailedError(f"The provider sent a malformed reply: {detail}", retryable=True)
        case _:
            return RequestFailedError(f"The request could not be made: {detail}", retryable=False)


def _root_cause(error: BaseException) -> str:
    """Return the message of the first error in a chain: libraries repeat it in fewer words."""
    while error.__cause__ and str(error.__cause__):
        error = error.__cause__
    return str(error)


def _unusable(message: str, reason: str) -> EngineError:
    return engine_error(message, code=ErrorCode.SPAWN_FAILED, reason=reason)
