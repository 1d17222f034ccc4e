"""Answers as OpenAI responses."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.model_server import chat
from tests.support.model_server.answer import (
    ApiDialect,
    ModelTurn,
    ServerSentEvent,
    ToolCall,
    split_chunks,
    split_tokens,
)


def encode_turn(answer: ModelTurn) -> Mapping[str, Any]:
    usage = {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
    how = {"status": _status(answer), "incomplete_details": TOO_LONG if answer.is_too_long else None}
    return {**_response(answer), **how, "output": _items(answer), "usage": usage}


def stream_turn(answer: ModelTurn) -> Iterator[ServerSentEvent]:
    numbers = itertools.count()

    def event(name: str, *, is_word: bool = False, **fields: Any) -> ServerSentEvent:
        return ServerSentEvent(
            {"type": name, "sequence_number": next(numbers), **fields}, event=name, is_word=is_word
        )

    yield event("response.created", response=_response(answer))
    for at, item in enumerate(_items(answer)):
        empty, deltas = _item_stream(item)
        yield event("response.output_item.added", output_index=at, item=empty)
        for name, fields in deltas:
            is_word = name == "response.output_text.delta"
            yield event(name, is_word=is_word, output_index=at, item_id=item["id"], **fields)
        yield event("response.output_item.done", output_index=at, item=item)
    yield event(f"response.{_status(answer)}", response=encode_turn(answer))


RESPONSES = ApiDialect(whole=encode_turn, stream=stream_turn, error=chat.encode_error)

TOO_LONG = {"reason": "max_output_tokens"}
Deltas = Iterator[tuple[str, dict[str, Any]]]


def _status(answer: ModelTurn) -> str:
    return "incomplete" if answer.is_too_long else "completed"


def _response(answer: ModelTurn) -> dict[str, Any]:
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": int(time.time()),
        "model": answer.model,
        "status": "in_progress",
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _items(answer: ModelTurn) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        items.append({"type": "reasoning", "id": f"rs_{answer.id}", "summary": summary, "encrypted_content": "eA=="})
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        message = {"type": "message", "id": f"msg_{answer.id}", "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    items.extend(_encode_call(call) for call in answer.calls)
    return items


def _encode_call(call: ToolCall) -> dict[str, Any]:
    # Tools offered in a namespace are called by both names, apart.
    namespace, _, name = call.name.rpartition(".")
    item = {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": name}
    item |= {"arguments": call.arguments, "status": "completed"}
    return {**item, "namespace": namespace} if namespace else item


def _item_stream(item: dict[str, Any]) -> tuple[dict[str, Any], Deltas]:
    """Return an item as it starts, and the events that complete it."""
    match item["type"]:
        case "reasoning":
            return {**item, "summary": []}, _reasoning_deltas(item["summary"][0])
        case "message":
            return {**item, "content": [], "status": "in_progress"}, _message_deltas(item["content"][0])
        case _:
            return {**item, "arguments": "", "status": "in_progress"}, _call_deltas(item["arguments"])


def _reasoning_deltas(part: dict[str, Any]) -> Deltas:
    place = {"summary_index": 0}
    yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
    for word in split_tokens(part["text"]):
        yield "response.reasoning_summary_text.delta", {**place, "delta": word}
    yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
    yield "response.reasoning_summary_part.done", {**place, "part": part}


def _message_deltas(part: dict[str, Any]) -> Deltas:
    place = {"content_index": 0}
    yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
    for word in split_tokens(part["text"]):
        yield "response.output_text.delta", {**place, "delta": word}
    yield "response.output_text.done", {**place, "text": part["text"]}
    yield "response.content_part.done", {**place, "part": part}


def _call_deltas(arguments: str) -> Deltas:
    for piece in split_chunks(arguments):
        yield "response.function_call_arguments.delta", {"delta": piece}
    yield "response.function_call_arguments.done", {"arguments": arguments}
