"""pi's lines → events. Each line is looked at once; what only repeats what is known is not decoded at all.

    session                                  --mode json only
    agent_start, turn_start, message_start   nothing new in them
    message_update                           a delta, beside the whole message so far in older versions
    message_end                              assistant: blocks, usage, stop reason; user: that the agent has it
    tool_execution_start | _update | _end    _update repeats the output so far
    auto_retry_start, compaction_start …     notices
    agent_end                                may be followed by a retry
    agent_settled                            the end of a run
    response, extension_ui_request           the conversation over --mode rpc

Versions from 0.73 to 1.5 differ only in what they add.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct

from retinue.engines.json_lines import blocks_of, decoded, finalization_of, number_of, text_of, text_of_blocks
from retinue.engines.lines import TooLong
from retinue.engines.record_counts import RecordCounts, joined
from retinue.events import (
    Event,
    Finalized,
    MessageEnded,
    Notice,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolDelta,
    ToolReturned,
)
from retinue.tool_names import FINALIZE
from retinue.types import Usage

_KIND = re.compile(rb'\{(?:"id":"[^"]*",)?"type":"([a-z_]+)"')
_EVENT = b'"assistantMessageEvent":{'
_DELTA = re.compile(rb'"assistantMessageEvent":\{"type":"(text|thinking)_delta",(?:"contentIndex":\d+,)?"delta":"')
_STRING_END = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*"')

_STOP: Mapping[str, StopReason] = {
    "stop": "stop",
    "toolUse": "tool_use",
    "length": "length",
    "error": "error",
    "aborted": "aborted",
}

REPEATING = frozenset({b"message_update", b"tool_execution_update"})
"""Lines that repeat what came before: they count as raw output only."""


_SILENT = frozenset({b"session", b"agent_start", b"turn_start", b"message_start", b"turn_end", b"agent_end"})
"""Lines in which nothing is new."""


class Settled(Struct, frozen=True):
    """pi will not go on by itself."""


class Response(Struct, frozen=True):
    """The answer to a command."""

    id: str
    error: str | None = None
    """Why it was not done."""


class Given(Struct, frozen=True):
    """The agent was given a message of the user's: its task, or what it was told meanwhile."""


class Dialog(Struct, frozen=True):
    """An extension asks a question, and waits for the answer."""

    id: str
    title: str


class Configured(Struct, frozen=True):
    """Our own extension has made the process ready for a run."""

    missing: tuple[str, ...] = ()
    """Tools this pi does not have."""


Said = Event | Settled | Response | Given | Dialog | Configured


class Reader(RecordCounts):
    """The lines of one process while it serves one run."""

    def __init__(self) -> None:
        super().__init__()
        self._printed: dict[str, str] = {}
        self._called: set[str] = set()
        self._is_finalized = False
        self._readers: Mapping[str, Callable[[Mapping[str, Any]], Iterable[Said]]] = {
            "message_end": self._message_end,
            "tool_execution_start": self._tool_start,
            "tool_execution_update": self._tool_update,
            "tool_execution_end": self._tool_end,
            "auto_retry_start": _retry,
            "compaction_start": _compaction,
            "auto_compaction_start": _compaction,
            "extension_error": _extension_error,
            "agent_settled": lambda _: (Settled(),),
            "response": _response,
            "extension_ui_request": _asked,
        }

    def read(self, lines: Iterable[bytes | TooLong]) -> list[Said]:
        """What the lines say, with deltas that follow each other as one."""
        return joined(chain.from_iterable(map(self._one, lines)))

    def _one(self, line: bytes | TooLong) -> Iterable[Said]:
        if isinstance(line, TooLong):
            self.dropped += line.size
            return (Notice("line_too_long", f"A line of {line.size} bytes from pi was too long and is left out."),)
        found = _KIND.match(line)
        kind = found[1] if found else None
        if kind == b"message_update":
            self.is_cut = not line.endswith(b"}")
            return _delta(line)
        if kind not in REPEATING:
            self.stdout += len(line)
        if kind in _SILENT:
            self.is_cut = not line.endswith(b"}")
            return ()
        record = decoded(line if found else _without_noise(line))
        if not isinstance(record, dict):
            self.no_record(line)
            return ()
        self.is_cut = False
        reader = self._readers.get(text_of(record.get("type")))
        return reader(record) if reader else ()

    # -- by type -----------------------------------------------------------------------------------

    def _message_end(self, record: Mapping[str, Any]) -> Iterable[Said]:
        message = record.get("message")
        role = message.get("role") if isinstance(message, dict) else None
        if role == "user":
            yield Given()
        if not isinstance(message, dict) or role != "assistant":
            return
        if self._is_finalized and message.get("stopReason") == "aborted":
            return  # our extension has stopped pi before it asked the model again
        for block in blocks_of(message.get("content")):
            match block.get("type"):
                case "thinking" if text := text_of(block.get("thinking")):
                    yield Thinking(text)
                case "text" if text := text_of(block.get("text")):
                    yield Text(text)
                case "toolCall":
                    yield self._call(block.get("id"), block.get("name"), block.get("arguments"))
        reason = text_of(message.get("stopReason"))
        error = text_of(message.get("errorMessage"))
        if reason not in _STOP:
            error = error or f"pi ended its message with an unknown stop reason: {reason}"
        yield MessageEnded(
            stop_reason=_STOP.get(reason, "error"),
            model=_model(message),
            usage=_usage(message.get("usage")),
            error=error or None,
        )

    def _call(self, call: Any, name: Any, args: Any) -> ToolCalled:
        self._called.add(text_of(call))
        return ToolCalled(text_of(call), text_of(name), args if isinstance(args, dict) else {"arguments": args})

    def _tool_start(self, record: Mapping[str, Any]) -> Iterable[Said]:
        # A tool called by a tool stands in no message.
        if text_of(record.get("toolCallId")) not in self._called:
            yield self._call(record.get("toolCallId"), record.get("toolName"), record.get("args"))

    def _tool_update(self, record: Mapping[str, Any]) -> Iterable[Said]:
        call, text = text_of(record.get("toolCallId")), _content(record.get("partialResult"))
        before = self._printed.get(call, "")
        self._printed[call] = text
        # Past pi's own limit only the end of the output is repeated: then all of it is shown as new.
        if news := text.removeprefix(before):
            yield ToolDelta(call, news)

    def _tool_end(self, record: Mapping[str, Any]) -> Iterable[Said]:
        call, name = text_of(record.get("toolCallId")), text_of(record.get("toolName"))
        self._printed.pop(call, None)
        result, is_error = record.get("result"), record.get("isError") is True
        yield ToolReturned(call, name, _content(result), is_error)
        if name == FINALIZE and not is_error and (finalization := finalization_of(_details(result))):
            self._is_finalized = True
            yield Finalized(finalization)


def _retry(record: Mapping[str, Any]) -> Iterable[Said]:
    attempt, most, delay = (record.get(key) for key in ("attempt", "maxAttempts", "delayMs"))
    pause = f" in {delay / 1000:g}s" if isinstance(delay, int) else ""
    message = f"pi tries again{pause} ({attempt} of {most}) after: {text_of(record.get('errorMessage'))}"
    yield Notice("provider_retry", message)


def _compaction(_: Mapping[str, Any]) -> Iterable[Said]:
    yield Notice("compaction", "pi shortens its conversation, as it grew too long for the model.")


def _extension_error(record: Mapping[str, Any]) -> Iterable[Said]:
    where, error = text_of(record.get("extensionPath")), text_of(record.get("error"))
    yield Notice("extension_error", f"An extension of pi failed ({where}): {error}")


def _response(record: Mapping[str, Any]) -> Iterable[Said]:
    failed = record.get("success") is not True
    yield Response(text_of(record.get("id")), (text_of(record.get("error")) or "no reason given") if failed else None)


def _asked(record: Mapping[str, Any]) -> Iterable[Said]:
    message = text_of(record.get("message"))
    if text_of(record.get("method")) in {"select", "confirm", "input", "editor"}:
        yield Dialog(text_of(record.get("id")), text_of(record.get("title")) or message)
    elif message.startswith("retinue "):
        told = decoded(message.removeprefix("retinue ").encode(errors="replace"))
        missing = told.get("missing") if isinstance(told, dict) else None
        yield Configured(tuple(map(text_of, missing)) if isinstance(missing, list) else ())


def _delta(line: bytes) -> Iterable[Said]:
    """The text that is new in an update. A quote within a string is escaped, so the marks cannot be within one."""
    found = _DELTA.match(line, max(line.find(_EVENT), 0))
    if found and (end := _STRING_END.match(line, found.end())):
        text = decoded(line[found.end() - 1 : end.end()])
        if isinstance(text, str) and text:
            yield TextDelta(text) if found[1] == b"text" else ThinkingDelta(text)


def _without_noise(line: bytes) -> bytes:
    """From the record on: terminals are told things, and byte order marks written, before it."""
    start = line.find(b'{"')
    return line[start:] if start > 0 else line


def _content(result: Any) -> str:
    """The text of a tool's result."""
    return text_of_blocks(result.get("content")) if isinstance(result, dict) else ""


def _details(result: Any) -> Any:
    return result.get("details") if isinstance(result, dict) else None


def _model(message: Mapping[str, Any]) -> str | None:
    provider, model = text_of(message.get("provider")), text_of(message.get("model"))
    return "/".join(filter(None, (provider, model))) or None


def _usage(value: Any) -> Usage:
    said = value if isinstance(value, dict) else {}
    cost = said.get("cost")
    total = cost.get("total") if isinstance(cost, dict) else None
    return Usage(
        input=number_of(said.get("input")),
        output=number_of(said.get("output")),
        cache_read=number_of(said.get("cacheRead")),
        cache_write=number_of(said.get("cacheWrite")),
        cost=float(total) if isinstance(total, int | float) else None,
        turns=1,
    ).credible()
