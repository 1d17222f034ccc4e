"""Answers as Anthropic messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from tests.support.model_server.answer import (
    ApiDialect,
    ModelTurn,
    ServerSentEvent,
    ToolCall,
    split_chunks,
    split_tokens,
)

SIGNATURE = "c2NyaXB0ZWQ="
"""Signature of thinking blocks, which programs send back unchanged; any value will do."""
ERRORS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Anthropic's names of errors by status; others are `invalid_request_error` or `api_error`."""


def encode_turn(answer: ModelTurn) -> Mapping[str, Any]:
    return {**_message(answer), "content": _blocks(answer), "stop_reason": _stop_reason(answer)}


def stream_turn(answer: ModelTurn) -> Iterator[ServerSentEvent]:
    yield _event("message_start", message=_message(answer))
    for at, block in enumerate(_blocks(answer)):
        empty, deltas = _block_stream(block)
        yield _event("content_block_start", index=at, content_block=empty)
        for delta in deltas:
            is_word = delta["type"] == "text_delta"
            yield _event("content_block_delta", is_word=is_word, index=at, delta=delta)
        yield _event("content_block_stop", index=at)
    ending = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage=_usage(answer))
    yield _event("message_stop")


def encode_error(status: int, message: str) -> Mapping[str, Any]:
    kind = ERRORS.get(status, "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


MESSAGES = ApiDialect(whole=encode_turn, stream=stream_turn, error=encode_error)


def _message(answer: ModelTurn) -> dict[str, Any]:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(answer),
    }


def _blocks(answer: ModelTurn) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.thinking:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": SIGNATURE})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    return [*blocks, *(_encode_tool_use(call) for call in answer.calls)]


def _encode_tool_use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.args}


def _block_stream(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block as it starts, and its deltas."""
    match block["type"]:
        case "thinking":
            thoughts = [{"type": "thinking_delta", "thinking": word} for word in split_tokens(block["thinking"])]
            signed = {"type": "signature_delta", "signature": SIGNATURE}
            return {**block, "thinking": "", "signature": ""}, [*thoughts, signed]
        case "text":
            return {**block, "text": ""}, [
                {"type": "text_delta", "text": word} for word in split_tokens(block["text"])
            ]
        case _:
            arguments = msgspec.json.encode(block["input"]).decode()
            parts = [{"type": "input_json_delta", "partial_json": piece} for piece in split_chunks(arguments)]
            return {**block, "input": {}}, parts


def _event(name: str, *, is_word: bool = False, **fields: Any) -> ServerSentEvent:
    return ServerSentEvent({"type": name, **fields}, event=name, is_word=is_word)


def _stop_reason(answer: ModelTurn) -> str:
    if answer.is_too_long:
        return "max_tokens"
    return "tool_use" if answer.calls else "end_turn"


def _usage(answer: ModelTurn) -> dict[str, int]:
    return {
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
