"""The parts all provider APIs share: the request, the reply that grows with its stream, and tool arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from retinue.engines.agent_loop import ModelReply, ModelRequest
from retinue.engines.toolbox import InvalidToolUse
from retinue.model.events import StopReason, Text, TextDelta, Thinking, ThinkingDelta
from retinue.model.results import Usage
from retinue.model.runs import ImageBlock, Message, ProviderBlock, ToolUse

JsonObject = dict[str, Any]
Delta = TextDelta | ThinkingDelta
OWN_CALL_PREFIX = "retinue-call-"
"""Start of the ids of tool calls to which the provider gave none; such ids are not sent back."""
DEFAULT_MAX_TOKENS = 32_000
"""Output limit of a request without one of its own: what is reserved for its reply, and sent where it is required."""
IMAGES_NOT_SHOWN = "[This model does not accept images: the image was left out.]"
MAX_QUOTED_CHARS = 200
"""Characters of invalid tool arguments that are quoted to the model."""


class ModelOptions(Struct, frozen=True, kw_only=True):
    """The choices of a run that go into each of its requests."""

    model: str
    """As the provider spells it, without the provider's name."""
    effort: str | None = None
    """Thinking level: `off, minimal, low, medium, high, xhigh, max`."""
    max_output_tokens: int | None = None
    images: bool = True
    """Whether the model takes the images of tool results; else their text says that they are not shown."""
    sends_budget_limits: bool = True
    """Whether the output limit that a budget leaves is sent."""


class StreamReader(Protocol):
    """Parser for the stream of one reply."""

    @property
    def usage(self) -> Usage:
        """The usage that the provider has stated so far."""

    def read(self, event: JsonObject) -> Iterable[Delta]:
        """Take in one event of the stream and return the deltas in it.

        Raises:
            ProviderStreamError: the event reports a failure of the provider.
        """

    def finish(self) -> ModelReply:
        """Return the reply when the stream has ended.

        Raises:
            ProviderStreamError: the stream ended before the reply was complete.
        """


class Wire(Protocol):
    """One provider API: how a request is written and a streamed reply is read."""

    name: str

    def path(self, model: str) -> str:
        """Return the path of a streaming request, relative to the base URL."""

    def headers(self, key: str) -> Mapping[str, str]:
        """Return the headers that carry the key."""

    def encode(self, request: ModelRequest, options: ModelOptions) -> JsonObject:
        """Return the body of a streaming request. Equal conversations have byte-equal beginnings, for caches."""

    def reader(self) -> StreamReader: ...


class ProviderStreamError(Exception):
    """Raised if a stream reports an error or ends early."""


class TruncatedStreamError(ProviderStreamError):
    """Raised if a stream ends without a stop reason."""


class ReplyBuilder:
    """The blocks of a reply in the order in which they begin, each complete when the stream has ended."""

    def __init__(self) -> None:
        self._blocks: dict[object, _Block] = {}
        self.model: str | None = None
        self.usage = Usage()
        self.stop_reason: StopReason | None = None
        self.error: str | None = None
        self.provider_block: ProviderBlock | None = None

    def add_text(self, key: object, text: str) -> Iterable[Delta]:
        if text:
            self._block(key, "text").parts.append(text)
            yield TextDelta(text)

    def add_thinking(self, key: object, text: str) -> Iterable[Delta]:
        if text:
            self._block(key, "thinking").parts.append(text)
            yield ThinkingDelta(text)

    def add_call(self, key: object, *, call: str = "", name: str = "", arguments: str = "") -> None:
        """Start or continue a tool call; providers send its id and name once and its arguments in pieces."""
        block = self._block(key, "call")
        block.call, block.name = block.call or call, block.name or name
        if arguments:
            block.parts.append(arguments)

    def build(self) -> ModelReply:
        """Return the reply.

        Raises:
            TruncatedStreamError: the stream ended without a stop reason.
        """
        if self.stop_reason is None:
            raise TruncatedStreamError("The stream ended without a stop reason: connection closed")
        blocks = [block.finish() for block in self._blocks.values()]
        content = rename_repeated_calls(blocks)
        if content != blocks:
            self.provider_block = None  # it has the repeated ids, which no results could answer
        return ModelReply(
            content=tuple(content),
            stop_reason=self.stop_reason,
            model=self.model,
            usage=self.usage,
            error=self.error,
            provider_block=self.provider_block,
        )

    def _block(self, key: object, kind: str) -> _Block:
        return self._blocks.setdefault((kind, key), _Block(kind))


class _Block:
    """One block of a reply while it is streamed."""

    __slots__ = ("call", "kind", "name", "parts")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[str] = []
        self.call = ""
        self.name = ""

    def finish(self) -> Text | Thinking | ToolUse:
        whole = "".join(self.parts)
        if self.kind == "call":
            return parse_call(self.call or make_call_id(), self.name, whole)
        return Text(whole) if self.kind == "text" else Thinking(whole)


def make_call_id() -> str:
    """Return an id for a tool call of a provider that gives none."""
    return f"{OWN_CALL_PREFIX}{os.urandom(8).hex()}"


def parse_call(call: str, name: str, arguments: str) -> ToolUse:
    """Return a tool call; arguments that are no JSON object make one that is answered with an error."""
    try:
        parsed = msgspec.json.decode(arguments) if arguments.strip() else {}
    except (msgspec.DecodeError, RecursionError) as error:
        return InvalidToolUse(call, name, {}, f"{error}: {arguments[:MAX_QUOTED_CHARS]}")
    if not isinstance(parsed, dict):
        return InvalidToolUse(call, name, {}, f"expected an object, got: {arguments[:MAX_QUOTED_CHARS]}")
    return ToolUse(call, name, parsed)


def rename_repeated_calls(blocks: list[Text | Thinking | ToolUse]) -> list[Text | Thinking | ToolUse]:
    """Give tool calls that repeat an id a new one: results are matched by id."""
    seen: set[str] = set()
    unique: list[Text | Thinking | ToolUse] = []
    for block in blocks:
        if isinstance(block, ToolUse):
            number, call = 2, block.id
            while call in seen:
                call, number = f"{block.id}_{number}", number + 1
            seen.add(call)
            block = msgspec.structs.replace(block, id=call)  # noqa: PLW2901 - the block with its id
        unique.append(block)
    return unique


def result_text(message: Message, options: ModelOptions) -> str:
    """Return the text of a tool result, which says so if its images are not sent."""
    return f"{message.text}\n\n{IMAGES_NOT_SHOWN}" if message.images and not options.images else message.text


def data_url(image: ImageBlock) -> str:
    return f"data:{image.media_type};base64,{image.data}"


def get_object(value: Any) -> JsonObject:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def get_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def get_index(value: Any) -> int | str:
    """Return what numbers a block of a reply, in a form that can be a key whatever it is."""
    return value if isinstance(value, int | str) else repr(value)


def get_count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
