"""Answers as OpenAI chat completions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.model_server.answer import (
    ApiDialect,
    ModelTurn,
    ServerSentEvent,
    ToolCall,
    split_chunks,
    split_tokens,
)


def encode_turn(answer: ModelTurn) -> Mapping[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.thinking:
        message["reasoning_content"] = answer.thinking
    if answer.calls:
        message["tool_calls"] = [_encode_call(call, call.arguments) for call in answer.calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(answer)}
    return {**_chunk_frame(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def stream_turn(answer: ModelTurn) -> Iterator[ServerSentEvent]:
    frame = _chunk_frame(answer, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], reason: str | None = None, *, is_word: bool = False) -> ServerSentEvent:
        return ServerSentEvent(
            {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}, is_word=is_word
        )

    yield chunk({"role": "assistant", "content": ""})
    for word in split_tokens(answer.thinking):
        yield chunk({"reasoning_content": word})
    for word in split_tokens(answer.text):
        yield chunk({"content": word}, is_word=True)
    for at, call in enumerate(answer.calls):
        yield chunk({"tool_calls": [{"index": at, **_encode_call(call, "")}]})
        for piece in split_chunks(call.arguments):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    yield chunk({}, _finish_reason(answer))
    yield ServerSentEvent({**frame, "choices": [], "usage": _usage(answer)})
    yield ServerSentEvent("[DONE]")


def encode_error(status: int, message: str) -> Mapping[str, Any]:
    return {"error": {"message": message, "type": "scripted_error", "code": status}}


CHAT = ApiDialect(whole=encode_turn, stream=stream_turn, error=encode_error)


def _chunk_frame(answer: ModelTurn, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": int(time.time()), "model": answer.model}


def _encode_call(call: ToolCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _finish_reason(answer: ModelTurn) -> str:
    if answer.is_too_long:
        return "length"
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: ModelTurn) -> dict[str, int]:
    total = answer.input_tokens + answer.output_tokens
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": total,
    }
