"""Gemini's generateContent, with thought signatures kept across the turns of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from retinue.engines.agent_loop import ModelReply, ModelRequest
from retinue.engines.api.openai_chat import describe_error
from retinue.engines.api.wire import (
    OWN_CALL_PREFIX,
    Delta,
    JsonObject,
    ModelOptions,
    ProviderStreamError,
    ReplyBuilder,
    get_count,
    get_object,
    get_text,
    result_text,
)
from retinue.model.results import Usage
from retinue.model.runs import Message, ProviderBlock

BLOCKED = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "OTHER"}
)
INVALID_CALLS = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
"""Reasons that Gemini gives in place of an invalid call: the same request often succeeds."""
THINKING_LEVELS = {
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}


class GeminiWire:
    """The wire of `streamGenerateContent`."""

    name = "gemini"

    def path(self, model: str) -> str:
        return f"v1beta/models/{model}:streamGenerateContent?alt=sse"

    def headers(self, key: str) -> Mapping[str, str]:
        return {"x-goog-api-key": key}

    def encode(self, request: ModelRequest, options: ModelOptions) -> JsonObject:
        body: JsonObject = {"contents": self._encode_messages(request.messages, options)}
        if request.system_prompt:
            body["systemInstruction"] = {"parts": [{"text": request.system_prompt}]}
        if request.tools:
            declarations = [
                {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declarations}]
            if not request.allow_calls:
                body["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
        config: JsonObject = {}
        if options.max_output_tokens:
            config["maxOutputTokens"] = options.max_output_tokens
        if options.effort == "off":
            config["thinkingConfig"] = {"thinkingBudget": 0}
        elif options.effort:
            level = THINKING_LEVELS.get(options.effort, options.effort)
            config["thinkingConfig"] = {"thinkingLevel": level, "includeThoughts": True}
        if config:
            body["generationConfig"] = config
        return body

    def reader(self) -> GeminiReader:
        return GeminiReader(self.name)

    def _encode_messages(self, messages: Iterable[Message], options: ModelOptions) -> list[JsonObject]:
        """Return the contents; the results of one turn's calls are one content, each with the name of its call."""
        names: dict[str, str] = {}
        contents: list[JsonObject] = []
        for message in messages:
            role = "model" if message.role == "assistant" else "user"
            names |= {use.id: use.name for use in message.calls}
            parts = self._encode_parts(message, names, options)
            if contents and contents[-1]["role"] == role:
                contents[-1]["parts"] += parts
            else:
                contents.append({"role": role, "parts": parts})
        return contents

    def _encode_parts(self, message: Message, names: Mapping[str, str], options: ModelOptions) -> list[JsonObject]:
        block = message.provider_block
        if block and block.wire == self.name:
            parts: list[JsonObject] = block.content["parts"]
            return list(parts)
        if message.role == "tool":
            name = names.get(message.call or "", "")
            response = {"error" if message.is_error else "output": result_text(message, options)}
            result = {"functionResponse": {**_call_id(message.call or ""), "name": name, "response": response}}
            images = message.images if options.images else ()
            return [result, *({"inlineData": {"mimeType": image.media_type, "data": image.data}} for image in images)]
        text: list[JsonObject] = [{"text": message.text}] if message.text else []
        calls = [{"functionCall": {**_call_id(use.id), "name": use.name, "args": use.args}} for use in message.calls]
        return [*text, *calls]


class GeminiReader:
    """Parser for the chunks of one reply."""

    def __init__(self, wire: str) -> None:
        self._wire = wire
        self._reply = ReplyBuilder()
        self._parts: list[JsonObject] = []
        self._has_calls = False
        self._run = 0
        """Number of the current run of text or thought parts, which are one block."""
        self._kind = ""

    @property
    def usage(self) -> Usage:
        return self._reply.usage

    def read(self, event: JsonObject) -> Iterable[Delta]:
        if error := event.get("error"):
            raise ProviderStreamError(describe_error(error))
        self._reply.model = get_text(event.get("modelVersion")) or self._reply.model
        if usage := get_object(event.get("usageMetadata")):
            self._reply.usage = _parse_usage(usage)
        if reason := get_text(get_object(event.get("promptFeedback")).get("blockReason")):
            self._reply.stop_reason = "error"
            self._reply.error = f"The provider blocked the prompt: {reason}."
        candidates = event.get("candidates")
        candidate = get_object(candidates[0]) if isinstance(candidates, list) and candidates else {}
        parts = get_object(candidate.get("content")).get("parts")
        deltas = [
            delta
            for part in (parts if isinstance(parts, list) else ())
            for delta in self._read_part(get_object(part))
        ]
        if reason := get_text(candidate.get("finishReason")):
            self._finish_reason(reason)
        return deltas

    def _read_part(self, part: JsonObject) -> Iterator[Delta]:
        if call := get_object(part.get("functionCall")):
            self._has_calls = True
            self._next_block("call")
            arguments = msgspec.json.encode(get_object(call.get("args"))).decode()
            identity = {"call": get_text(call.get("id")), "name": get_text(call.get("name"))}
            self._reply.add_call(self._run, **identity, arguments=arguments)
        elif text := get_text(part.get("text")):
            kind = "thinking" if part.get("thought") is True else "text"
            self._next_block(kind)
            add = self._reply.add_thinking if kind == "thinking" else self._reply.add_text
            yield from add(self._run, text)
        self._parts.append(part)

    def _next_block(self, kind: str) -> None:
        if kind != self._kind or kind == "call":
            self._kind, self._run = kind, self._run + 1

    def _finish_reason(self, reason: str) -> None:
        if reason == "STOP":
            self._reply.stop_reason = "tool_use" if self._has_calls else "stop"
        elif reason == "MAX_TOKENS":
            self._reply.stop_reason = "length"
        elif reason in INVALID_CALLS:
            raise ProviderStreamError(f"The model sent an invalid tool call: {reason}")
        else:
            self._reply.stop_reason = "error"
            self._reply.error = (
                f"The provider stopped the answer: {reason}."
                if reason in BLOCKED
                else f"The provider ended the answer with an unknown reason: {reason}"
            )

    def finish(self) -> ModelReply:
        self._reply.provider_block = ProviderBlock(self._wire, {"parts": self._parts})
        return self._reply.build()


def _call_id(call: str) -> JsonObject:
    return {} if call.startswith(OWN_CALL_PREFIX) else {"id": call}


def _parse_usage(usage: JsonObject) -> Usage:
    """Return the usage; thoughts are output, and cached tokens are part of the prompt."""
    cached = get_count(usage.get("cachedContentTokenCount"))
    return Usage(
        input=max(get_count(usage.get("promptTokenCount")) - cached, 0),
        output=get_count(usage.get("candidatesTokenCount")) + get_count(usage.get("thoughtsTokenCount")),
        cache_read=cached,
    )
