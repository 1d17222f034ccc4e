"""Parse pi's output lines into events. Lines that only repeat earlier lines are not decoded.

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

import anyio
from msgspec import Struct

from retinue.engines.base import Emit
from retinue.engines.json_lines import (
    LineTooLong,
    RecordCounts,
    content_blocks,
    decode_line,
    join_text_blocks,
    merge_deltas,
    parse_finalization,
    to_number,
    to_text,
)
from retinue.engines.pi.installation import explain_node_error
from retinue.engines.process.child import ChildProcess
from retinue.engines.process_reporter import ProcessReporter, ProgramInfo, wait_for_exit
from retinue.model.events import (
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
from retinue.model.results import Usage
from retinue.model.tool_names import FINALIZE_TOOL

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

REPEATING_TYPES = frozenset({b"message_update", b"tool_execution_update"})
"""Lines that repeat what came before: they count as raw output only."""


_IGNORED_TYPES = frozenset({b"session", b"agent_start", b"turn_start", b"message_start", b"turn_end", b"agent_end"})
"""Lines without new information."""


class AgentIdle(Struct, frozen=True):
    """pi reports that its agent is done and will not continue by itself."""


class CommandResponse(Struct, frozen=True):
    """The response to a command."""

    id: str
    error: str | None = None
    """Why the command failed; None if it succeeded."""


class UserMessageDelivered(Struct, frozen=True):
    """A user message reached the agent: its task or a steering message."""


class ExtensionPrompt(Struct, frozen=True):
    """A question of an extension."""

    id: str | None
    """The name under which it waits for the answer; None if our own extension has answered it."""
    title: str


class ExtensionReady(Struct, frozen=True):
    """Our own extension has configured the process for a run."""

    missing: tuple[str, ...] = ()
    """Tools this pi does not have."""


PiMessage = Event | AgentIdle | CommandResponse | UserMessageDelivered | ExtensionPrompt | ExtensionReady


class PiEventReader(RecordCounts):
    """Parser for the output lines of one process while it serves one run."""

    def __init__(self) -> None:
        super().__init__()
        self._partial_results: dict[str, str] = {}
        self._reported_calls: set[str] = set()
        self._is_finalized = False
        self._readers: Mapping[str, Callable[[Mapping[str, Any]], Iterable[PiMessage]]] = {
            "message_end": self._message_end,
            "tool_execution_start": self._tool_start,
            "tool_execution_update": self._tool_update,
            "tool_execution_end": self._tool_end,
            "auto_retry_start": _read_retry,
            "compaction_start": _read_compaction,
            "auto_compaction_start": _read_compaction,
            "extension_error": _read_extension_error,
            "agent_settled": lambda _: (AgentIdle(),),
            "response": _read_response,
            "extension_ui_request": _read_extension_prompt,
        }

    def read(self, lines: Iterable[bytes | LineTooLong]) -> list[PiMessage]:
        """Parse the lines into messages and merge consecutive deltas."""
        return merge_deltas(chain.from_iterable(map(self._read_line, lines)))

    def _read_line(self, line: bytes | LineTooLong) -> Iterable[PiMessage]:
        if isinstance(line, LineTooLong):
            self.dropped += line.size
            return (Notice("line_too_long", f"A line of {line.size} bytes from pi was too long and was left out."),)
        found = _KIND.match(line)
        kind = found[1] if found else None
        if kind == b"message_update":
            self.is_truncated = not line.endswith(b"}")
            return _read_delta(line)
        if kind not in REPEATING_TYPES:
            self.stdout += len(line)
        if kind in _IGNORED_TYPES:
            self.is_truncated = not line.endswith(b"}")
            return ()
        record = decode_line(line if found else _strip_noise(line))
        if not isinstance(record, dict):
            self.count_noise(line)
            return ()
        self.is_truncated = False
        reader = self._readers.get(to_text(record.get("type")))
        return reader(record) if reader else ()

    # -- by type -----------------------------------------------------------------------------------

    def _message_end(self, record: Mapping[str, Any]) -> Iterable[PiMessage]:
        message = record.get("message")
        role = message.get("role") if isinstance(message, dict) else None
        if role == "user":
            yield UserMessageDelivered()
        if not isinstance(message, dict) or role != "assistant":
            return
        if self._is_finalized and message.get("stopReason") == "aborted":
            return  # our extension stopped pi before its next model request
        for block in content_blocks(message.get("content")):
            match block.get("type"):
                case "thinking" if text := to_text(block.get("thinking")):
                    yield Thinking(text)
                case "text" if text := to_text(block.get("text")):
                    yield Text(text)
                case "toolCall":
                    yield self._tool_called(block.get("id"), block.get("name"), block.get("arguments"))
        reason = to_text(message.get("stopReason"))
        error = to_text(message.get("errorMessage"))
        if reason not in _STOP:
            error = error or f"pi ended its message with an unknown stop reason: {reason}"
        yield MessageEnded(
            stop_reason=_STOP.get(reason, "error"),
            model=_message_model(message),
            usage=_message_usage(message.get("usage")),
            error=error or None,
        )

    def _tool_called(self, call: Any, name: Any, args: Any) -> ToolCalled:
        self._reported_calls.add(to_text(call))
        return ToolCalled(to_text(call), to_text(name), args if isinstance(args, dict) else {"arguments": args})

    def _tool_start(self, record: Mapping[str, Any]) -> Iterable[PiMessage]:
        # A tool called by another tool is part of no message.
        if to_text(record.get("toolCallId")) not in self._reported_calls:
            yield self._tool_called(record.get("toolCallId"), record.get("toolName"), record.get("args"))

    def _tool_update(self, record: Mapping[str, Any]) -> Iterable[PiMessage]:
        call, text = to_text(record.get("toolCallId")), _result_text(record.get("partialResult"))
        before = self._partial_results.get(call, "")
        self._partial_results[call] = text
        # Past pi's own limit an update repeats only the end of the output: then all of it counts as new.
        if news := text.removeprefix(before):
            yield ToolDelta(call, news)

    def _tool_end(self, record: Mapping[str, Any]) -> Iterable[PiMessage]:
        call, name = to_text(record.get("toolCallId")), to_text(record.get("toolName"))
        self._partial_results.pop(call, None)
        result, is_error = record.get("result"), record.get("isError") is True
        yield ToolReturned(call, name, _result_text(result), is_error)
        if name == FINALIZE_TOOL and not is_error and (finalization := parse_finalization(_result_details(result))):
            self._is_finalized = True
            yield Finalized(finalization)


def _read_retry(record: Mapping[str, Any]) -> Iterable[PiMessage]:
    attempt, max_attempts, delay = (record.get(key) for key in ("attempt", "maxAttempts", "delayMs"))
    pause = f" in {delay / 1000:g}s" if isinstance(delay, int) else ""
    message = f"pi retries{pause} ({attempt} of {max_attempts}) after: {to_text(record.get('errorMessage'))}"
    yield Notice("provider_retry", message)


def _read_compaction(_: Mapping[str, Any]) -> Iterable[PiMessage]:
    yield Notice("compaction", "pi compacts its conversation, which is too long for the model.")


def _read_extension_error(record: Mapping[str, Any]) -> Iterable[PiMessage]:
    where, error = to_text(record.get("extensionPath")), to_text(record.get("error"))
    yield Notice("extension_error", f"An extension of pi failed ({where}): {error}")


def _read_response(record: Mapping[str, Any]) -> Iterable[PiMessage]:
    failed = record.get("success") is not True
    yield CommandResponse(
        to_text(record.get("id")), (to_text(record.get("error")) or "no reason given") if failed else None
    )


def _read_extension_prompt(record: Mapping[str, Any]) -> Iterable[PiMessage]:
    message = to_text(record.get("message"))
    if to_text(record.get("method")) in {"select", "confirm", "input", "editor"}:
        yield ExtensionPrompt(to_text(record.get("id")), to_text(record.get("title")) or message)
    elif message.startswith("retinue "):
        yield _read_own_message(message.removeprefix("retinue "))


def _read_own_message(text: str) -> PiMessage:
    """Return what our own extension reported: that it is ready, or a question that it answered."""
    match decode_line(text.encode(errors="replace")):
        case {"question": title}:
            return ExtensionPrompt(None, to_text(title))
        case {"missing": [*tools]}:
            return ExtensionReady(tuple(map(to_text, tools)))
        case _:
            return ExtensionReady()


def _read_delta(line: bytes) -> Iterable[PiMessage]:
    """Return the new text of an update. Quotes inside JSON strings are escaped, so the marks match only outside."""
    found = _DELTA.match(line, max(line.find(_EVENT), 0))
    if found and (end := _STRING_END.match(line, found.end())):
        text = decode_line(line[found.end() - 1 : end.end()])
        if isinstance(text, str) and text:
            yield TextDelta(text) if found[1] == b"text" else ThinkingDelta(text)


def _strip_noise(line: bytes) -> bytes:
    """Return the line from its first JSON object on, without byte order marks and terminal sequences before it."""
    start = line.find(b'{"')
    return line[start:] if start > 0 else line


def _result_text(result: Any) -> str:
    """Return the text of a tool's result."""
    return join_text_blocks(result.get("content")) if isinstance(result, dict) else ""


def _result_details(result: Any) -> Any:
    return result.get("details") if isinstance(result, dict) else None


def _message_model(message: Mapping[str, Any]) -> str | None:
    provider, model = to_text(message.get("provider")), to_text(message.get("model"))
    return "/".join(filter(None, (provider, model))) or None


def _message_usage(value: Any) -> Usage:
    fields = value if isinstance(value, dict) else {}
    cost = fields.get("cost")
    total = cost.get("total") if isinstance(cost, dict) else None
    return Usage(
        input=to_number(fields.get("input")),
        output=to_number(fields.get("output")),
        cache_read=to_number(fields.get("cacheRead")),
        cache_write=to_number(fields.get("cacheWrite")),
        cost=float(total) if isinstance(total, int | float) else None,
        turns=1,
    ).clamped()


PI = ProgramInfo(name="pi", records="events", check_command="pi -p hello", explain=explain_node_error)

STDERR_POLL_INTERVAL = 0.5
"""Seconds between two checks of stderr while stdout is silent."""


class PiReporter(ProcessReporter):
    """Reporter of one run on a pi process that may have served earlier runs."""

    def __init__(self, child: ChildProcess, reader: PiEventReader, emit: Emit) -> None:
        super().__init__(PI, child, reader, emit, stderr_before=child.stderr_bytes)
        self.reader = reader
        self.late_messages = 0
        """Events after the agent was done; they are not part of the run."""

    @property
    def succeeded(self) -> bool:
        """Return whether the run ended without a provider error or abort and without late events."""
        return self._stop_reason in {"stop", "tool_use", "length"} and not self.late_messages

    async def receive(self) -> bytes:
        """Return the next chunk of stdout; count stderr meanwhile, even while stdout is silent."""
        while True:
            with anyio.move_on_after(STDERR_POLL_INTERVAL):
                return await self._process.receive()
            await self.count(0)

    async def finish(self) -> None:
        """Report the end of the run; its process may continue to run."""
        await self.flush_counts()
        if self.late_messages:
            message = f"pi sent {self.late_messages} more events after its last answer; they were left out."
            await self._emit(Notice("late_events", message))

    async def finish_after_exit(self) -> None:
        """Report the end of a run whose process has exited, and stop what the process left behind.

        Raises:
            EngineError: it printed nothing, or its output ended within a record.
        """
        await self.finish()
        await self.report_leftovers()
        end = await self.report_exit(await wait_for_exit(self._process))
        if end.signal:
            return  # the signal is the reason, whatever it cut off
        if self.reader.is_truncated:
            raise PI.truncated_error(end)
        if not self.reader.stdout and end.code:
            raise PI.produced_nothing_error(self._process, self.reader, end)
