"""One turn of the model, before it is encoded for an API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from tests.support.model_server.request import ChatRequest
from tests.support.model_server.script import ScriptedTurn

CHUNK_CHARS = 200
"""Characters of a tool call's arguments that are sent at once."""
CHARACTERS_PER_TOKEN = 4


class ToolCall(Struct, frozen=True):
    id: str
    name: str
    args: Mapping[str, Any]

    @property
    def arguments(self) -> str:
        return msgspec.json.encode(self.args).decode()


class ModelTurn(Struct, frozen=True, kw_only=True):
    """One turn of the model."""

    id: str
    model: str
    thinking: str
    text: str
    calls: tuple[ToolCall, ...]
    is_too_long: bool
    """Ended at the model's output limit."""
    input_tokens: int
    output_tokens: int


class ServerSentEvent(Struct, frozen=True):
    """One server-sent event."""

    data: Mapping[str, Any] | str
    event: str = ""
    is_word: bool = False
    """Contains a word of the text: words are paced, and a cut comes after one."""

    def encode(self) -> bytes:
        data = self.data.encode() if isinstance(self.data, str) else msgspec.json.encode(self.data)
        name = f"event: {self.event}\n".encode() if self.event else b""
        return name + b"data: " + data + b"\n\n"


class ApiDialect(Struct, frozen=True):
    """How one API encodes a turn."""

    whole: Callable[[ModelTurn], Mapping[str, Any]]
    stream: Callable[[ModelTurn], Iterator[ServerSentEvent]]
    error: Callable[[int, str], Mapping[str, Any]]


def build_turn(step: ScriptedTurn, request: ChatRequest, number: int) -> ModelTurn:
    """Return the turn that a step gives for a request.

    A tool the request does not offer is named in the text instead: programs send side requests, for titles and the
    like, that hold the same prompt and offer nothing.
    """
    offered = [call for call in step.calls if call.force or call.tool in request.tools]
    missing = [call.tool for call in step.calls if call not in offered]
    note = f"[not offered: {', '.join(missing)}]" if missing else ""
    return ModelTurn(
        id=f"{number:06d}",
        model=request.model,
        thinking=step.thinking,
        text=" ".join(filter(None, (step.text, note))),
        calls=tuple(ToolCall(f"call_{number:06d}_{at}", call.tool, call.args) for at, call in enumerate(offered)),
        is_too_long=step.length,
        input_tokens=_estimate_tokens(request.body),
        output_tokens=_estimate_tokens(step),
    )


def split_tokens(text: str) -> list[str]:
    """Split a text into the pieces in which it is streamed."""
    return re.findall(r"\s*\S+\s*|\s+", text)


def split_chunks(text: str) -> Iterator[str]:
    return (text[at : at + CHUNK_CHARS] for at in range(0, len(text), CHUNK_CHARS))


def _estimate_tokens(value: object) -> int:
    return max(1, len(msgspec.json.encode(value)) // CHARACTERS_PER_TOKEN)
