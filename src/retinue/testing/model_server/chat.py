"""Answers as OpenAI chat completions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from retinue.testing.model_server.answer import Answer, Spelling, Sse, ToolCall, pieces, words


def whole(answer: Answer) -> Mapping[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.thinking:
        message["reasoning_content"] = answer.thinking
    if answer.calls:
        message["tool_calls"] = [_call(call, call.arguments) for call in answer.calls]
    choice = {"index": 0, "message": message, "finish_reason": _reason(answer)}
    return {**_frame(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def stream(answer: Answer) -> Iterator[Sse]:
    frame = _frame(answer, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], reason: str | None = None, *, is_word: bool = False) -> Sse:
        return Sse({**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}, is_word=is_word)

    yield chunk({"role": "assistant", "content": ""})
    for word in words(answer.thinking):
        yield chunk({"reasoning_content": word})
    for word in words(answer.text):
        yield chunk({"content": word}, is_word=True)
    for at, call in enumerate(answer.calls):
        yield chunk({"tool_calls": [{"index": at, **_call(call, "")}]})
        for piece in pieces(call.arguments):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    yield chunk({}, _reason(answer))
    yield Sse({**frame, "choices": [], "usage": _usage(answer)})
    yield Sse("[DONE]")


def error(status: int, message: str) -> Mapping[str, Any]:
    return {"error": {"message": message, "type": "scripted_error", "code": status}}


CHAT = Spelling(whole=whole, stream=stream, error=error)


def _frame(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": int(time.time()), "model": answer.model}


def _call(call: ToolCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _reason(answer: Answer) -> str:
    if answer.is_too_long:
        return "length"
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    total = answer.input_tokens + answer.output_tokens
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": total,
    }
