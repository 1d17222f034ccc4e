"""OpenAI chat completions, the API of OpenAI and of most other servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeGuard

import msgspec
from msgspec import Struct

from retinue.engines.agent_loop import ModelReply, ModelRequest
from retinue.engines.api.wire import (
    Delta,
    JsonObject,
    ModelOptions,
    ProviderStreamError,
    ReplyBuilder,
    data_url,
    get_count,
    get_index,
    get_object,
    get_text,
    result_text,
)
from retinue.model.events import StopReason
from retinue.model.results import Usage
from retinue.model.runs import Message, ProviderBlock

STOP_REASONS: Mapping[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "eos": "stop",
}
CONTENT_FILTER = "The provider stopped the answer: content_filter."
IMAGES_TEXT = {"type": "text", "text": "Images of the tool results above:"}
RESULTS_READ = "I have read the results."
MAX_COST = 1e6
"""Dollars of one reply; a provider that states more, or less than nothing, states no cost."""
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Fields in which servers put the model's thinking: DeepSeek, vLLM and others; OpenRouter and Ollama."""


class ChatQuirks(Struct, frozen=True, kw_only=True):
    """What a server of this API demands beyond the others."""

    requires_reasoning: bool = False
    """Messages with tool calls must have `reasoning_content`, empty where it is not known any more."""
    answers_results: bool = False
    """Between tool results and a message of the user there must be one of the model."""


QUIRKS: Mapping[str, ChatQuirks] = {
    "deepseek": ChatQuirks(requires_reasoning=True),
    "mistral": ChatQuirks(answers_results=True),
}
"""Quirks by provider."""


class ChatWire:
    """The wire of chat completions."""

    name = "openai-chat"

    def __init__(self, provider: str = "openai") -> None:
        self._quirks = QUIRKS.get(provider, ChatQuirks())

    def path(self, model: str) -> str:
        return "chat/completions"

    def headers(self, key: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def encode(self, request: ModelRequest, options: ModelOptions) -> JsonObject:
        messages = [{"role": "system", "content": request.system_prompt}] if request.system_prompt else []
        body: JsonObject = {
            "model": options.model,
            "messages": [*messages, *self._encode_messages(request.messages, options)],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
                }
                for tool in request.tools
            ]
            if not request.allow_calls:
                body["tool_choice"] = "none"
        if options.max_output_tokens:
            body["max_tokens"] = options.max_output_tokens
        if options.effort:
            body["reasoning_effort"] = EFFORTS.get(options.effort, options.effort)
        return body

    def reader(self) -> ChatReader:
        return ChatReader(self.name)

    def _encode_messages(self, messages: Iterable[Message], options: ModelOptions) -> Iterator[JsonObject]:
        """Yield the messages; images, which only users may send, follow the last tool result of their turn."""
        images: list[JsonObject] = []
        before = ""
        for message in messages:
            if message.role != "tool" and images:
                yield {"role": "user", "content": [IMAGES_TEXT, *images]}
                images, before = [], "user"
            if self._quirks.answers_results and (before, message.role) == ("tool", "user"):
                yield {"role": "assistant", "content": RESULTS_READ}
            yield self._encode_message(message, options)
            if options.images:
                images += [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in message.images]
            before = message.role
        if images:
            yield {"role": "user", "content": [IMAGES_TEXT, *images]}

    def _encode_message(self, message: Message, options: ModelOptions) -> JsonObject:
        if message.role == "user":
            return {"role": "user", "content": message.text}
        if message.role == "tool":
            return {"role": "tool", "tool_call_id": message.call, "content": result_text(message, options)}
        encoded: JsonObject = {"role": "assistant", "content": message.text or None}
        if message.calls:
            encoded["tool_calls"] = [
                {
                    "id": use.id,
                    "type": "function",
                    "function": {"name": use.name, "arguments": msgspec.json.encode(use.args).decode()},
                }
                for use in message.calls
            ]
            if self._quirks.requires_reasoning:
                encoded["reasoning_content"] = ""
        block = message.provider_block
        if block and block.wire == self.name:
            encoded |= block.content
        return encoded


EFFORTS = {"off": "none", "max": "xhigh"}
"""Names of the thinking levels that differ from ours."""


class ChatReader:
    """Parser for the chunks of one reply."""

    def __init__(self, wire: str) -> None:
        self._wire = wire
        self._reply = ReplyBuilder()
        self._details: list[JsonObject] = []
        self._reasoning: dict[str, list[str]] = {}
        """Thinking by the field in which it came: servers want it back there with the calls it led to."""
        self._has_calls = False
        self._refusal: list[str] = []

    @property
    def usage(self) -> Usage:
        return self._reply.usage

    def read(self, event: JsonObject) -> Iterable[Delta]:
        if error := event.get("error"):
            raise ProviderStreamError(describe_error(error))
        self._reply.model = get_text(event.get("model")) or self._reply.model
        if usage := get_object(event.get("usage")):
            self._reply.usage = parse_usage(usage)
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices:
            return ()
        choice = get_object(choices[0])
        if reason := get_text(choice.get("finish_reason")):
            self._finish_reason(reason)
        # Servers that do not stream answer with the whole message.
        return list(self._read_delta(get_object(choice.get("delta" if "delta" in choice else "message"))))

    def _read_delta(self, delta: JsonObject) -> Iterator[Delta]:
        for field in REASONING_FIELDS:
            if text := get_text(delta.get(field)):
                self._reasoning.setdefault(field, []).append(text)
                yield from self._reply.add_thinking(0, text)
                break
        content = delta.get("content")
        for part in content if isinstance(content, list) else ():
            yield from self._read_part(get_object(part))
        yield from self._reply.add_text(0, get_text(content))
        self._refusal.append(get_text(delta.get("refusal")))
        details = delta.get("reasoning_details")
        self._details += (
            [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
        )
        calls = delta.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            self._has_calls = True
            function = get_object(get_object(call).get("function"))
            index = get_object(call).get("index")
            self._reply.add_call(
                position if index is None else get_index(index),
                call=get_text(get_object(call).get("id")),
                name=get_text(function.get("name")),
                arguments=get_text(function.get("arguments")),
            )

    def _read_part(self, part: JsonObject) -> Iterator[Delta]:
        """Read a part of a content that is a list, as Mistral's models that think send it."""
        thoughts = part.get("thinking")
        for thought in thoughts if isinstance(thoughts, list) else ():
            yield from self._reply.add_thinking(0, get_text(get_object(thought).get("text")))
        yield from self._reply.add_text(0, get_text(part.get("text")))

    def _finish_reason(self, reason: str) -> None:
        self._reply.stop_reason = STOP_REASONS.get(reason, "error")
        if reason == "content_filter":
            self._reply.error = CONTENT_FILTER
        elif reason not in STOP_REASONS:
            self._reply.error = f"The provider ended the answer with an unknown reason: {reason}"

    def finish(self) -> ModelReply:
        if refusal := "".join(self._refusal):
            self._reply.stop_reason, self._reply.error = "error", f"The model refused: {refusal}"
        if self._details:
            # Sent back unchanged: models that think between tool calls need it.
            self._reply.provider_block = ProviderBlock(self._wire, {"reasoning_details": self._details})
        elif self._reasoning and self._has_calls:
            texts = {field: "".join(parts) for field, parts in self._reasoning.items()}
            self._reply.provider_block = ProviderBlock(self._wire, texts)
        return self._reply.build()


def parse_usage(usage: JsonObject) -> Usage:
    """Return the usage; the provider counts cached tokens as part of the prompt."""
    cached = get_count(get_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    cached = cached or get_count(usage.get("prompt_cache_hit_tokens"))
    cost = usage.get("cost")
    return Usage(
        input=max(get_count(usage.get("prompt_tokens")) - cached, 0),
        output=get_count(usage.get("completion_tokens")),
        cache_read=cached,
        cost=float(cost) if _is_cost(cost) else None,
    )


def _is_cost(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_COST


def describe_error(error: object) -> str:
    """Return a provider's error object as one line: status or code, then its message."""
    fields = get_object(error)
    code = fields.get("code") or fields.get("status") or fields.get("type")
    message = get_text(fields.get("message")) or (
        error if isinstance(error, str) else msgspec.json.encode(error).decode()
    )
    return f"{code}: {message}" if code else message
