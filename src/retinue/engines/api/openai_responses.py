"""OpenAI responses, with reasoning items kept across the turns of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from retinue.engines.agent_loop import ModelReply, ModelRequest
from retinue.engines.api.openai_chat import CONTENT_FILTER, EFFORTS, describe_error
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
    make_call_id,
    parse_call,
    result_text,
)
from retinue.model.results import Usage
from retinue.model.runs import Message, ProviderBlock


class ResponsesWire:
    """The wire of the responses API. Nothing is stored by the provider: each request has the whole conversation."""

    name = "openai-responses"

    def path(self, model: str) -> str:
        return "responses"

    def headers(self, key: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def encode(self, request: ModelRequest, options: ModelOptions) -> JsonObject:
        body: JsonObject = {
            "model": options.model,
            "input": [item for message in request.messages for item in self._encode_message(message, options)],
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        if request.system_prompt:
            body["instructions"] = request.system_prompt
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema,
                    "strict": False,
                }
                for tool in request.tools
            ]
            if not request.allow_calls:
                body["tool_choice"] = "none"
        if options.max_output_tokens:
            body["max_output_tokens"] = options.max_output_tokens
        if options.effort:
            body["reasoning"] = {"effort": EFFORTS.get(options.effort, options.effort), "summary": "auto"}
        return body

    def reader(self) -> ResponsesReader:
        return ResponsesReader(self.name)

    def _encode_message(self, message: Message, options: ModelOptions) -> Iterator[JsonObject]:
        block = message.provider_block
        if message.role == "user":
            yield {"role": "user", "content": [{"type": "input_text", "text": message.text}]}
        elif message.role == "tool":
            yield {
                "type": "function_call_output",
                "call_id": message.call,
                "output": _encode_result(message, options),
            }
        elif block and block.wire == self.name:
            yield from block.content["output"]
        else:
            if message.text:
                content = [{"type": "output_text", "text": message.text}]
                yield {"type": "message", "role": "assistant", "content": content}
            for use in message.calls:
                arguments = msgspec.json.encode(use.args).decode()
                yield {"type": "function_call", "call_id": use.id, "name": use.name, "arguments": arguments}


def _encode_result(message: Message, options: ModelOptions) -> str | list[JsonObject]:
    if not message.images or not options.images:
        return result_text(message, options)
    images = [{"type": "input_image", "image_url": data_url(image)} for image in message.images]
    return [{"type": "input_text", "text": message.text}, *images]


class ResponsesReader:
    """Parser for the events of one reply."""

    def __init__(self, wire: str) -> None:
        self._wire = wire
        self._reply = ReplyBuilder()
        self._items: list[JsonObject] = []
        self._streamed: set[object] = set()
        self._has_calls = False
        self._refusal = ""

    @property
    def usage(self) -> Usage:
        return self._reply.usage

    def read(self, event: JsonObject) -> Iterable[Delta]:
        kind, index = get_text(event.get("type")), get_index(event.get("output_index"))
        match kind:
            case "response.output_text.delta":
                self._streamed.add(index)
                return list(self._reply.add_text(index, get_text(event.get("delta"))))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._streamed.add(index)
                return list(self._reply.add_thinking(index, get_text(event.get("delta"))))
            case "response.output_item.done":
                return list(self._read_item(index, get_object(event.get("item"))))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._read_end(get_object(event.get("response")))
            case "error":
                raise ProviderStreamError(describe_error(get_object(event.get("error")) or event))
        return ()

    def _read_item(self, index: object, item: JsonObject) -> Iterator[Delta]:
        if item.get("type") == "function_call":
            call = get_text(item.get("call_id")) or make_call_id()
            item = {**item, "call_id": call, "name": get_text(item.get("name"))}
        if item.get("type") == "function_call" and parse_call("", "", get_text(item.get("arguments"))).args == {}:
            self._items.append({**item, "arguments": "{}"})  # invalid JSON would make the next request invalid
        else:
            self._items.append(item)
        match item:
            case {"type": "function_call", "call_id": str(call), "name": str(name)}:
                self._has_calls = True
                self._reply.add_call(index, call=call, name=name, arguments=get_text(item.get("arguments")))
            case {"type": "message", "content": list(parts)}:
                for part in map(get_object, parts):
                    self._refusal += get_text(part.get("refusal"))
                    if index not in self._streamed:
                        yield from self._reply.add_text(index, get_text(part.get("text")))
            case {"type": "reasoning", "summary": list(parts)} if index not in self._streamed:
                for part in map(get_object, parts):
                    yield from self._reply.add_thinking(index, get_text(part.get("text")))

    def _read_end(self, response: JsonObject) -> None:
        self._reply.model = get_text(response.get("model")) or None
        self._reply.usage = _parse_usage(get_object(response.get("usage")))
        if error := response.get("error"):
            raise ProviderStreamError(describe_error(error))
        match get_object(response.get("incomplete_details")).get("reason"):
            case None:
                self._reply.stop_reason = "tool_use" if self._has_calls else "stop"
            case "max_output_tokens":
                self._reply.stop_reason = "length"
            case "content_filter":
                self._reply.stop_reason, self._reply.error = "error", CONTENT_FILTER
            case reason:
                self._reply.stop_reason = "error"
                self._reply.error = f"The provider ended the answer with an unknown reason: {reason}"

    def finish(self) -> ModelReply:
        if self._refusal:
            self._reply.stop_reason, self._reply.error = "error", f"The model refused: {self._refusal}"
        self._reply.provider_block = ProviderBlock(self._wire, {"output": self._items})
        return self._reply.build()


def _parse_usage(usage: JsonObject) -> Usage:
    cached = get_count(get_object(usage.get("input_tokens_details")).get("cached_tokens"))
    return Usage(
        input=max(get_count(usage.get("input_tokens")) - cached, 0),
        output=get_count(usage.get("output_tokens")),
        cache_read=cached,
    )
