"""OpenAI chat completions, the API of OpenAI and of most other servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from retinue.engines.agent_loop import ModelReply, ModelRequest
from retinue.engines.api.wire import (
    Delta,
    JsonObject,
    ModelOptions,
    ProviderStreamError,
    ReplyBuilder,
    get_count,
    get_object,
    get_text,
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
CONTENT_FILTER = "The provider stopped the answer: content_filter. Rephrase the task or use another model."
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Fields in which servers put the model's thinking: DeepSeek, vLLM and others; OpenRouter and Ollama."""


class ChatWire:
    """The wire of chat completions."""

    name = "openai-chat"

    def path(self, model: str) -> str:
        return "chat/completions"

    def headers(self, key: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def encode(self, request: ModelRequest, options: ModelOptions) -> JsonObject:
        messages = [{"role": "system", "content": request.system_prompt}] if request.system_prompt else []
        body: JsonObject = {
            "model": options.model,
            "messages": [*messages, *map(self._encode_message, request.messages)],
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

    def _encode_message(self, message: Message) -> JsonObject:
        if message.role == "user":
            return {"role": "user", "content": message.text}
        if message.role == "tool":
            return {"role": "tool", "tool_call_id": message.call, "content": message.text}
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
        self._refusal: list[str] = []

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
        return list(self._read_delta(get_object(choice.get("delta"))))

    def _read_delta(self, delta: JsonObject) -> Iterator[Delta]:
        for field in REASONING_FIELDS:
            yield from self._reply.add_thinking(0, get_text(delta.get(field)))
        yield from self._reply.add_text(0, get_text(delta.get("content")))
        self._refusal.append(get_text(delta.get("refusal")))
        details = delta.get("reasoning_details")
        self._details += (
            [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
        )
        calls = delta.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            function = get_object(get_object(call).get("function"))
            index = get_object(call).get("index")
            self._reply.add_call(
                position if index is None else index,
                call=get_text(get_object(call).get("id")),
                name=get_text(function.get("name")),
                arguments=get_text(function.get("arguments")),
            )

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
        cost=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )


def describe_error(error: object) -> str:
    """Return a provider's error object as one line: status or code, then its message."""
    fields = get_object(error)
    code = fields.get("code") or fields.get("status") or fields.get("type")
    message = get_text(fields.get("message")) or (
        error if isinstance(error, str) else msgspec.json.encode(error).decode()
    )
    return f"{code}: {message}" if code else message
