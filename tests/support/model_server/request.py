"""Requests to the model, parsed from the three APIs into one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec
from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]
Json = Mapping[str, Any]


class BadRequestError(ValueError):
    """A request that cannot be parsed; the message names the reason."""


class ApiKind(StrEnum):
    CHAT = "/chat/completions"
    RESPONSES = "/responses"
    MESSAGES = "/messages"
    GEMINI = ":streamGenerateContent"


class ChatMessage(Struct, frozen=True):
    """One turn of a conversation, as text."""

    role: Role
    text: str


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A request for a model's turn."""

    path: str
    api: ApiKind
    model: str
    stream: bool
    tools: tuple[str, ...]
    """Names of the offered tools, in order."""
    system: str
    messages: tuple[ChatMessage, ...]
    reasoning: str
    """The requested effort, in the API's own words; empty if none."""
    headers: Mapping[str, str]
    """Headers with names in lower case."""
    body: Json
    """The whole decoded body."""

    @property
    def prompt(self) -> str:
        """The last message of the user."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")


def read_request(path: str, headers: Mapping[str, str], content: bytes) -> ChatRequest:
    """Parse a request from its body.

    Raises:
        BadRequestError: the file does not contain a JSON object, or not what the API of this path takes.
    """
    api = next(api for api in ApiKind if path.partition("?")[0].endswith(api.value))
    try:
        body = msgspec.json.decode(content, type=dict[str, Any])
        return ChatRequest(
            path=path,
            api=api,
            model=_model_name(api, path, body),
            stream=bool(body.get("stream")) or api is ApiKind.GEMINI,
            tools=tuple(_tool_names(body.get("tools") or ())),
            system=_system_prompt(api, body),
            messages=tuple(TURNS[api](body)),
            reasoning=_reasoning(body),
            headers=headers,
            body=body,
        )
    except msgspec.DecodeError as error:
        raise BadRequestError(f"The body is no JSON object: {error}.") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise BadRequestError(f"The body is not what {api.value} takes: {error!r}.") from error


def _chat_turns(body: Json) -> Iterator[ChatMessage]:
    for message in body["messages"]:
        role = message["role"]
        yield ChatMessage(
            role if role in {"user", "assistant", "tool"} else "system", _content_text(message.get("content"))
        )


def _messages_turns(body: Json) -> Iterator[ChatMessage]:
    for message in body["messages"]:
        content = message["content"]
        results = [part for part in content if part.get("type") == "tool_result"] if isinstance(content, list) else []
        if results:
            yield ChatMessage("tool", _content_text(results))
            # What the user said meanwhile comes in the same message as the results.
            content = [part for part in content if part.get("type") == "text"]
        if content or not results:
            yield ChatMessage("assistant" if message["role"] == "assistant" else "user", _content_text(content))


def _responses_turns(body: Json) -> Iterator[ChatMessage]:
    items = body["input"]
    if isinstance(items, str):
        yield ChatMessage("user", items)
        return
    before: Role | None = None
    for item in items:
        role, text = _responses_item(item)
        # One turn of the model is a run of items: reasoning, text, calls.
        if not role == before == "assistant":
            yield ChatMessage(role, text)
        before = role


def _responses_item(item: Json) -> tuple[Role, str]:
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role", "user")
        return (role if role in {"user", "assistant"} else "system"), _content_text(item.get("content"))
    if kind == "reasoning" or kind.endswith("_call"):
        return "assistant", ""
    return "tool", _content_text(item.get("output"))


def _gemini_turns(body: Json) -> Iterator[ChatMessage]:
    for content in body["contents"]:
        results = [part for part in content["parts"] if "functionResponse" in part]
        if results:
            yield ChatMessage("tool", "\n".join(str(part["functionResponse"]["response"]) for part in results))
        texts = [part["text"] for part in content["parts"] if part.get("text")]
        if texts or not results:
            yield ChatMessage("assistant" if content["role"] == "model" else "user", "\n".join(texts))


TURNS = {
    ApiKind.CHAT: _chat_turns,
    ApiKind.RESPONSES: _responses_turns,
    ApiKind.MESSAGES: _messages_turns,
    ApiKind.GEMINI: _gemini_turns,
}


def _model_name(api: ApiKind, path: str, body: Json) -> str:
    if api is ApiKind.GEMINI:
        return path.partition("?")[0].rpartition("/")[2].removesuffix(api.value)
    return str(body.get("model", ""))


def _system_prompt(api: ApiKind, body: Json) -> str:
    if api is ApiKind.MESSAGES:
        return _content_text(body.get("system"))
    if api is ApiKind.GEMINI:
        return "\n".join(part["text"] for part in body.get("systemInstruction", {}).get("parts", ()))
    texts = [body["instructions"]] if body.get("instructions") else []
    turns = TURNS[api](body)
    return "\n".join([*texts, *(turn.text for turn in turns if turn.role == "system")])


def _tool_names(tools: Sequence[Json]) -> Iterator[str]:
    for tool in tools:
        if "functionDeclarations" in tool:
            yield from (declared["name"] for declared in tool["functionDeclarations"])
        elif tool.get("type") == "namespace":
            yield from (f"{tool['name']}.{inner['name']}" for inner in tool["tools"])
        else:
            yield str(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type"))


def _reasoning(body: Json) -> str:
    match body:
        case {"reasoning_effort": str(effort)} | {"reasoning": {"effort": str(effort)}}:
            return effort
        case {"thinking": {"type": "enabled", "budget_tokens": int(budget)}}:
            return f"enabled {budget}"
        case {"thinking": {"type": str(kind)}}:
            return kind
        case _:
            return ""


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_content_text(part) for part in content)
    if isinstance(content, dict):
        return _content_text(content.get("text", content.get("content")))
    return ""
