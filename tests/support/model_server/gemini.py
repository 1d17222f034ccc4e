"""Answers in the form of Gemini's generateContent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.model_server.answer import ApiDialect, ModelTurn, ServerSentEvent, split_tokens

SIGNATURE = "c2NyaXB0ZWQ="
"""Signature of a thought; providers want it back unchanged."""


def encode_turn(answer: ModelTurn) -> Mapping[str, Any]:
    return _chunk(answer, _parts(answer), finish="MAX_TOKENS" if answer.is_too_long else "STOP")


def stream_turn(answer: ModelTurn) -> Iterator[ServerSentEvent]:
    for word in split_tokens(answer.thinking):
        yield ServerSentEvent(_chunk(answer, [{"text": word, "thought": True}]))
    for word in split_tokens(answer.text):
        yield ServerSentEvent(_chunk(answer, [{"text": word}]), is_word=True)
    yield ServerSentEvent(_chunk(answer, _calls(answer), finish="MAX_TOKENS" if answer.is_too_long else "STOP"))


def encode_error(status: int, message: str) -> Mapping[str, Any]:
    return {"error": {"code": status, "message": message, "status": ERRORS.get(status, "INTERNAL")}}


ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
GEMINI = ApiDialect(whole=encode_turn, stream=stream_turn, error=encode_error)


def _parts(answer: ModelTurn) -> list[dict[str, Any]]:
    thoughts = [{"text": answer.thinking, "thought": True}] if answer.thinking else []
    texts = [{"text": answer.text}] if answer.text else []
    return [*thoughts, *texts, *_calls(answer)]


def _calls(answer: ModelTurn) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"name": call.name, "args": call.args}, "thoughtSignature": SIGNATURE}
        for call in answer.calls
    ]


def _chunk(answer: ModelTurn, parts: list[dict[str, Any]], finish: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    usage = {
        "promptTokenCount": answer.input_tokens,
        "candidatesTokenCount": answer.output_tokens,
        "totalTokenCount": answer.input_tokens + answer.output_tokens,
    }
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": answer.model}
