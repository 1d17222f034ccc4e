"""Turn what a server sends into what a model reads: tools with usable schemas, and results with text and images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from retinue.model.runs import ImageBlock, ServerAnswer
from retinue.output.truncate import truncate_result
from retinue.output.untrusted_text import sanitize_text, to_one_line, wrap_untrusted

MAX_DESCRIPTION_CHARS = 2048
"""Characters of a tool's description, as in Claude Code."""
MAX_TOOL_NAME_CHARS = 256
MAX_IMAGES = 8
"""Images of one result."""
MAX_IMAGE_CHARS = 5_000_000
"""Characters of an image as base64: the smallest limit of the providers."""
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

Redact = Callable[[str], str]


class ServerTool(Struct, frozen=True):
    """A tool as its server describes it."""

    name: str
    description: str
    schema: dict[str, Any]


class InvalidToolError(Exception):
    """A tool that cannot be offered to a model; the message names it and the reason."""


def parse_tool(given: object, redact: Redact) -> ServerTool:
    """Return a tool of a server's list.

    Raises:
        InvalidToolError: it has no name, or no JSON Schema of an object.
    """
    from retinue.output.schemas import OutputSchemaError, parse_schema

    found = given if isinstance(given, Mapping) else {}
    name, schema = found.get("name"), found.get("inputSchema")
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_TOOL_NAME_CHARS:
        raise InvalidToolError("a tool without a usable name")
    shown = to_one_line(name, 80)
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise InvalidToolError(f"{shown}: its schema is not that of an object")
    try:
        checked = parse_schema({**schema, "type": "object"})
    except OutputSchemaError as error:
        raise InvalidToolError(f"{shown}: its schema {to_one_line(str(error), 200)}") from error
    described = found.get("description")
    text = sanitize_text(redact(described)) if isinstance(described, str) else ""
    if len(text) > MAX_DESCRIPTION_CHARS:
        text = f"{text[: MAX_DESCRIPTION_CHARS - 1]}…"
    return ServerTool(name, text, checked)


def convert_result(server: str, result: Mapping[str, Any], redact: Redact) -> ServerAnswer:
    """Return the result of a call: its text redacted, cut, and marked as foreign, with the images models take."""
    content = result.get("content")
    parts = list(content) if isinstance(content, list) else []
    images = tuple(_take_images(parts))
    texts = [text for part in parts if (text := _describe_part(part, images))]
    if not texts and not images:
        structured = result.get("structuredContent")
        texts = [msgspec.json.encode(structured).decode()] if structured is not None else ["(no output)"]
    text = wrap_untrusted(truncate_result(redact("\n".join(texts))), f"MCP server {server}") if texts else ""
    return ServerAnswer(text, is_error=result.get("isError") is True, images=images)


def _take_images(parts: list[Any]) -> Iterator[ImageBlock]:
    taken = 0
    for part in parts:
        match part:
            case {"type": "image", "data": str(data), "mimeType": str(kind)}:
                if kind in IMAGE_TYPES and len(data) <= MAX_IMAGE_CHARS and taken < MAX_IMAGES:
                    taken += 1
                    yield ImageBlock(kind, data)


def _describe_part(part: object, images: tuple[ImageBlock, ...]) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            is_shown = any(image.data is data for image in images)
            return f"[{kind}]" if is_shown else f"[{kind}: left out, {len(data)} characters as base64]"
        case {"type": "resource", "resource": {"text": str(text), **others}}:
            return f"{others.get('uri', '')}:\n{text}"
        case {"type": "resource_link", "uri": str(uri), **others}:
            return f"{others.get('name', '')}: {uri}"
        case {"type": str(kind)}:
            return f"[{kind}: left out]"
        case _:
            return "[a part that is no content: left out]"
