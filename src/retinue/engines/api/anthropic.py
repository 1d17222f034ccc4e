"""Anthropic messages, with thinking blocks and their signatures, and breakpoints for the prompt cache."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from retinue.engines.agent_loop import ModelReply, ModelRequest
from retinue.engines.api.openai_chat import describe_error
from retinue.engines.api.wire import (
    DEFAULT_MAX_TOKENS,
    Delta,
    JsonObject,
    ModelOptions,
    ProviderStreamError,
    ReplyBuilder,
    get_count,
    get_index,
    get_object,
    get_text,
    parse_call,
    result_text,
)
from retinue.model.events import StopReason
from retinue.model.results import Usage
from retinue.model.runs import Message, ProviderBlock

API_VERSION = "2023-06-01"
CACHED = {"type": "ephemeral"}
MIN_BUDGET = 1024
THINKING_TOKENS = {"minimal": 1024, "low": 4096, "medium": 10_240, "high": 20_480, "xhigh": 28_672, "max": 30_720}
"""Thinking budgets of the levels for models before 4.6, which have no levels of their own."""
EFFORTS = {"minimal": "low"}
"""Names of the thinking levels that differ from ours."""
_BUDGETED_MODEL = r"claude-(?:3|(?:opus|sonnet|haiku)-4-(?:[0-5](?!\d)|20\d{6})|(?:opus|sonnet)-4(?:-20\d{6})?$)"
"""Models that take a thinking budget; later ones refuse it and decide by the effort level."""
STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "pause_turn": "stop",
}
STOP_ERRORS = {
    "refusal": "The model refused to answer.",
    "model_context_window_exceeded": "The conversation exceeds the model's context window.",
}


class AnthropicWire:
    """The wire of the messages API."""

    name = "anthropic"

    def path(self, model: str) -> str:
        return "v1/messages"

    def headers(self, key: str) -> Mapping[str, str]:
        return {"x-api-key": key, "anthropic-version": API_VERSION}

    def encode(self, request: ModelRequest, options: ModelOptions) -> JsonObject:
        max_tokens = options.max_output_tokens or DEFAULT_MAX_TOKENS
        body: JsonObject = {
            "model": options.model,
            "max_tokens": max_tokens,
            "messages": self._encode_messages(request.messages, options),
            "stream": True,
        }
        if request.system_prompt:
            body["system"] = [{"type": "text", "text": request.system_prompt, "cache_control": CACHED}]
        if request.tools:
            tools: list[JsonObject] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                for tool in request.tools
            ]
            tools[-1]["cache_control"] = CACHED
            body["tools"] = tools
            if not request.allow_calls:
                body["tool_choice"] = {"type": "none"}
        return body | _encode_effort(options.model, options.effort, max_tokens)

    def reader(self) -> AnthropicReader:
        return AnthropicReader(self.name)

    def _encode_messages(self, messages: Iterable[Message], options: ModelOptions) -> list[JsonObject]:
        """Return the messages; tool results of one turn are one user message.

        The ends of this request and of the one before are cached: a breakpoint finds an earlier one only within 20
        blocks, and a turn with parallel calls has more.
        """
        encoded: list[JsonObject] = []
        for message in messages:
            role = "assistant" if message.role == "assistant" else "user"
            content = self._encode_content(message, options)
            if encoded and encoded[-1]["role"] == role:
                encoded[-1]["content"] += content
            else:
                encoded.append({"role": role, "content": content})
        for turn in [each for each in encoded if each["role"] == "user" and each["content"]][-2:]:
            *others, last = turn["content"]
            turn["content"] = [*others, {**last, "cache_control": CACHED}]
        return encoded

    def _encode_content(self, message: Message, options: ModelOptions) -> list[JsonObject]:
        block = message.provider_block
        if block and block.wire == self.name:
            content: list[JsonObject] = block.content["content"]
            return list(content)
        if message.role == "tool":
            result: JsonObject = {"type": "tool_result", "tool_use_id": message.call}
            result["content"] = _encode_result(message, options)
            return [{**result, "is_error": True} if message.is_error else result]
        text: list[JsonObject] = [{"type": "text", "text": message.text}] if message.text.strip() else []
        calls = [{"type": "tool_use", "id": use.id, "name": use.name, "input": use.args} for use in message.calls]
        return [*text, *calls]


def _encode_result(message: Message, options: ModelOptions) -> str | list[JsonObject]:
    if not message.images or not options.images:
        return result_text(message, options)
    images = [
        {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}
        for image in message.images
    ]
    return [{"type": "text", "text": message.text}, *images]


def _encode_effort(model: str, effort: str | None, max_tokens: int) -> JsonObject:
    """Return the fields of a thinking level; without one the model's own default holds."""
    if not effort or effort == "off":
        return {}
    if re.match(_BUDGETED_MODEL, model):
        budget = min(THINKING_TOKENS.get(effort, 0), max_tokens - 1)
        return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= MIN_BUDGET else {}
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": EFFORTS.get(effort, effort)}}


class AnthropicReader:
    """Parser for the events of one reply."""

    def __init__(self, wire: str) -> None:
        self._wire = wire
        self._reply = ReplyBuilder()
        self._blocks: dict[object, JsonObject] = {}
        self._parts: dict[object, dict[str, list[str]]] = {}
        """The pieces of the texts and arguments of each block, joined when the stream has ended."""

    @property
    def usage(self) -> Usage:
        return self._reply.usage

    def read(self, event: JsonObject) -> Iterable[Delta]:
        index = get_index(event.get("index"))
        match event.get("type"):
            case "message_start":
                message = get_object(event.get("message"))
                self._reply.model = get_text(message.get("model")) or None
                self._reply.usage = _parse_usage(get_object(message.get("usage")))
            case "content_block_start":
                return self._start_block(index, get_object(event.get("content_block")))
            case "content_block_delta":
                return self._read_delta(index, get_object(event.get("delta")))
            case "message_delta":
                self._read_end(get_object(event.get("delta")), get_object(event.get("usage")))
            case "error":
                raise ProviderStreamError(describe_error(event.get("error")))
        return ()

    def _start_block(self, index: object, block: JsonObject) -> Iterable[Delta]:
        self._blocks[index] = dict(block)
        match block:
            case {"type": "tool_use", "id": str(call), "name": str(name)}:
                self._reply.add_call(index, call=call, name=name)
                self._add_part(index, "input", "")
            case {"type": "text", "text": str(text)}:
                return list(self._reply.add_text(index, text))
            case {"type": "thinking", "thinking": str(text)}:
                return list(self._reply.add_thinking(index, text))
        return ()

    def _read_delta(self, index: object, delta: JsonObject) -> Iterable[Delta]:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                self._add_part(index, "text", text)
                return list(self._reply.add_text(index, text))
            case {"type": "thinking_delta", "thinking": str(text)}:
                self._add_part(index, "thinking", text)
                return list(self._reply.add_thinking(index, text))
            case {"type": "signature_delta", "signature": str(signature)}:
                self._add_part(index, "signature", signature)
            case {"type": "input_json_delta", "partial_json": str(part)}:
                self._add_part(index, "input", part)
                self._reply.add_call(index, arguments=part)
        return ()

    def _add_part(self, index: object, field: str, part: str) -> None:
        self._parts.setdefault(index, {}).setdefault(field, []).append(part)

    def _read_end(self, delta: JsonObject, usage: JsonObject) -> None:
        self._reply.usage = _parse_usage(usage, self._reply.usage)
        reason = get_text(delta.get("stop_reason"))
        if not reason:
            return
        self._reply.stop_reason = STOP_REASONS.get(reason, "error")
        if reason not in STOP_REASONS:
            unknown = f"The provider ended the answer with an unknown reason: {reason}"
            self._reply.error = STOP_ERRORS.get(reason, unknown)

    def finish(self) -> ModelReply:
        for index, fields in self._parts.items():
            block = self._blocks.get(index, {})
            for field, parts in fields.items():
                whole = "".join(parts)
                block[field] = (
                    parse_call("", "", whole).args if field == "input" else get_text(block.get(field)) + whole
                )
        # The API refuses empty texts, though its models write some.
        blocks = [block for block in self._blocks.values() if block.get("type") != "text" or block.get("text")]
        reply = self._reply.build()
        calls = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
        if self._parts.keys() <= self._blocks.keys() and calls == [use.id for use in reply.tool_calls]:
            return msgspec.structs.replace(reply, provider_block=ProviderBlock(self._wire, {"content": blocks}))
        return reply  # without blocks that have no beginning, or calls that no result answers


def _parse_usage(usage: JsonObject, before: Usage = Usage()) -> Usage:  # noqa: B008 - frozen
    """Return the usage; counts at the end of a stream replace those at its start."""
    return Usage(
        input=get_count(usage.get("input_tokens")) or before.input,
        output=get_count(usage.get("output_tokens")) or before.output,
        cache_read=get_count(usage.get("cache_read_input_tokens")) or before.cache_read,
        cache_write=get_count(usage.get("cache_creation_input_tokens")) or before.cache_write,
    )
