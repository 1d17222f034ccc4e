"""Parse Claude Code's messages into events.

    system init                        the session and its tools
    system api_retry, compact_boundary notices
    stream_event                       a streamed message: its start, deltas, usage, stop reason
    assistant                          one whole block of a message, or a provider error in the form of a block
    user                               tool results
    result                             the end of the run, and its cost
    command_lifecycle                  the state of a steering message

Claude Code runs tools while the message that calls them is still streaming: their results are held until its end. A
message without a stream, because Claude Code retried without one, ends with the message after it. The cost of a run
is known at its very end, so the message that may be the last is held back until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct, structs

from retinue.engines.claude.tools import convert_arguments, to_retinue_name
from retinue.engines.claude.wire import IncomingLine
from retinue.engines.json_lines import (
    RecordCounts,
    content_blocks,
    join_text_blocks,
    merge_deltas,
    parse_finalization,
    to_number,
    to_text,
)
from retinue.model.events import (
    CONTINUED_NOTICE_CODE,
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
    ToolReturned,
)
from retinue.model.results import Usage
from retinue.model.runs import ToolArguments
from retinue.model.tool_names import FINALIZE_TOOL, is_delegation


class ModelRequestStarted(Struct, frozen=True):
    """Claude Code is about to send the first model request."""

    session: str
    tools: tuple[str, ...]
    """The tools it has, by its names."""


class ResultReceived(Struct, frozen=True):
    """The run has ended."""

    subtype: str
    errors: str = ""
    """The reasons, where the provider is not the cause."""


class MessageAccepted(Struct, frozen=True):
    """Claude Code has accepted a steering message."""

    name: str


class MessageDelivered(Struct, frozen=True):
    """The agent has received a steering message."""

    name: str


ClaudeMessage = Event | ModelRequestStarted | ResultReceived | MessageAccepted | MessageDelivered


def parse_usage(value: Any, before: Usage = Usage()) -> Usage:  # noqa: B008 - it is frozen
    """Return the usage of one message; a later count replaces an earlier one where it has a value."""
    fields = value if isinstance(value, dict) else {}
    return Usage(
        input=to_number(fields.get("input_tokens")) or before.input,
        output=to_number(fields.get("output_tokens")) or before.output,
        cache_read=to_number(fields.get("cache_read_input_tokens")) or before.cache_read,
        cache_write=to_number(fields.get("cache_creation_input_tokens")) or before.cache_write,
        turns=1,
    ).clamped()


def parse_cost(result: Mapping[str, Any]) -> float | None:
    """Return the cost of a run in dollars, or None if Claude Code does not know the price of a model.

    This is not its total, which keeps counting when a session is resumed.
    """
    used = result.get("model_usage_since_last_result")
    models = list(used.values()) if isinstance(used, dict) else []
    costs = [_model_cost(model) for model in models]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


def _model_cost(model: Any) -> float | None:
    if not isinstance(model, dict) or model.get("costBasis") == "unknown":
        return None
    cost = model.get("costUSD")
    return float(cost) if isinstance(cost, int | float) else None


def join_content(content: Any) -> str:
    """Return the text of a tool result."""
    if isinstance(content, str):
        return content
    return join_text_blocks(content)


_STOP: Mapping[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    # The model continues by itself.
    "pause_turn": "tool_use",
    "compaction": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "error",
}
_REFUSED_MESSAGE = "The model refused to answer (refusal)."
_TRUNCATED_MESSAGE = "The answer ended before it was complete."


class OpenMessage(Struct):
    """The assistant message that is being streamed."""

    id: str
    model: str | None
    usage: Usage = Usage()
    stop: str = ""
    calls: list[str] = msgspec.field(default_factory=list)
    has_content: bool = False
    """True once an event of the message was emitted."""

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> OpenMessage:
        """Return the message at its start, or all of it if it was not streamed."""
        return cls(
            id=to_text(message.get("id")),
            model=to_text(message.get("model")) or None,
            usage=parse_usage(message.get("usage")),
            stop=to_text(message.get("stop_reason")),
        )

    @property
    def is_truncated(self) -> bool:
        """Return whether the message ends here without a stop reason."""
        return self.has_content and not (self.calls or self.stop)

    def to_event(self) -> MessageEnded:
        reason, error = _stop_reason(self)
        return MessageEnded(stop_reason=reason, model=self.model, usage=self.usage, error=error)


def _stop_reason(message: OpenMessage) -> tuple[StopReason, str | None]:
    """Return the stop reason of a message, and its text if it is an error."""
    if message.calls:
        return "tool_use", None
    reason = _STOP.get(message.stop, "error")
    if reason != "error":
        return reason, None
    if message.stop == "refusal":
        return reason, _REFUSED_MESSAGE
    return (
        reason,
        f"Claude ended its message with an unknown stop reason: {message.stop}"
        if message.stop
        else _TRUNCATED_MESSAGE,
    )


SYNTHETIC_MODEL = "<synthetic>"
"""The model name of messages written by Claude Code itself."""

OUTPUT_LIMIT_NOTICE = "The model reached its output limit and continues: the answer consists of several messages."

TOO_LONG_MARKER = "output token maximum"
"""Claude Code's text after the model reached its output limit repeatedly; the message before reports the same."""


class ClaudeEventReader(RecordCounts):
    """Parser for the messages of one run."""

    def __init__(self) -> None:
        super().__init__()
        self._message: OpenMessage | None = None
        self._is_streamed = False
        self._calls: dict[str, tuple[str, ToolArguments]] = {}
        self._early_results: list[Event] = []
        """Results of tools called by a message that is not complete."""
        self._held_events: list[Event] = []
        self._hit_output_limit = False
        """True if the last message reached the model's output limit; Claude Code then lets the model continue."""
        self.is_within_answer = False
        """True if the output ended while an answer was being written."""
        self._readers: Mapping[str, Callable[[Mapping[str, Any]], Iterable[ClaudeMessage]]] = {
            "system": _read_system,
            "stream_event": self._read_stream_event,
            "assistant": self._read_assistant,
            "user": self._read_user,
            "result": self._read_result,
            "command_lifecycle": _read_lifecycle,
        }

    @property
    def has_open_calls(self) -> bool:
        """Return whether a tool call has no result yet."""
        return bool(self._calls)

    def read(self, lines: Iterable[IncomingLine]) -> list[ClaudeMessage]:
        """Parse the lines into messages and merge consecutive deltas."""
        return merge_deltas(chain.from_iterable(map(self._read_line, lines)))

    def release_held(self) -> list[Event]:
        """Return the events held back; the first is the message that may have been the last."""
        held, self._held_events = self._held_events, []
        return held

    def finish(self) -> list[Event]:
        """Return the remaining events when the output has ended."""
        if self._message:
            self.is_within_answer = self._message.is_truncated
        return self._drain()

    def _drain(self) -> list[Event]:
        return [*self.release_held(), *self._close_message(), *self.release_held()]

    def _read_line(self, line: IncomingLine) -> Iterable[ClaudeMessage]:
        if line.value is None:
            return self._read_other_line(line)
        self.is_truncated = False
        kind = to_text(line.value.get("type"))
        if kind != "stream_event":
            self.stdout += line.size
        # Messages of an agent inside Claude Code are not messages of this run.
        reader = None if line.value.get("parent_tool_use_id") else self._readers.get(kind)
        return reader(line.value) if reader else ()

    def _read_other_line(self, line: IncomingLine) -> Iterable[ClaudeMessage]:
        if not line.raw:
            self.dropped += line.size
            message = f"A line of {line.size} bytes from Claude Code was too long and was left out."
            return (Notice("line_too_long", message),) if line.size else ()
        self.count_noise(line.raw)
        return ()

    # -- a message -----------------------------------------------------------------------------------

    def _read_stream_event(self, record: Mapping[str, Any]) -> Iterable[ClaudeMessage]:
        match record.get("event"):
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}} if text:
                yield from self._emit_in_message(TextDelta(text))
            case {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": str(text)}} if text:
                yield from self._emit_in_message(ThinkingDelta(text))
            case {"type": "message_start", "message": dict(message)}:
                yield from self._open_message(message)
                self._is_streamed = True
            case {"type": "message_delta", "delta": {"stop_reason": reason}, **rest} if self._message:
                self._message.stop = to_text(reason) or self._message.stop
                self._message.usage = parse_usage(rest.get("usage"), self._message.usage)
            case {"type": "message_stop"}:
                yield from self._close_message()

    def _read_assistant(self, record: Mapping[str, Any]) -> Iterable[ClaudeMessage]:
        message = record.get("message")
        if not isinstance(message, dict):
            return
        if message.get("model") == SYNTHETIC_MODEL:
            return  # an error of the provider, which the result reports too
        if self._message is None or self._message.id != to_text(message.get("id")):
            yield from self._open_message(message)
        for block in content_blocks(message.get("content")):
            match block.get("type"):
                case "thinking" if text := to_text(block.get("thinking")):
                    yield from self._emit_in_message(Thinking(text))
                case "text" if text := to_text(block.get("text")):
                    yield from self._emit_in_message(Text(text))
                case "tool_use":
                    yield from self._emit_in_message(self._tool_called(block))

    def _open_message(self, message: Mapping[str, Any]) -> Iterable[Event]:
        yield from self._drain()
        if self._hit_output_limit:
            yield Notice(CONTINUED_NOTICE_CODE, OUTPUT_LIMIT_NOTICE)
        self._message = OpenMessage.from_message(message)
        self._is_streamed = False

    def _emit_in_message(self, event: Event) -> Iterable[Event]:
        if self._message:
            self._message.has_content = True
        yield from self._hold_or_emit(event)

    def _tool_called(self, block: Mapping[str, Any]) -> ToolCalled:
        call, args = to_text(block.get("id")), block.get("input")
        name = to_retinue_name(to_text(block.get("name")))
        arguments = args if isinstance(args, dict) else {"arguments": args}
        self._calls[call] = name, convert_arguments(arguments) if is_delegation(name) else arguments
        if self._message:
            self._message.calls.append(name)
        return ToolCalled(call, *self._calls[call])

    def _close_message(self) -> Iterable[Event]:
        """End the message that is being streamed, if there is one."""
        message, self._message = self._message, None
        if message is None or not (message.has_content or message.stop):
            return
        ended = message.to_event()
        self._hit_output_limit = ended.stop_reason == "length"
        if ended.stop_reason in {"stop", "length"} or FINALIZE_TOOL in message.calls:
            self._held_events.append(ended)
        else:
            yield from self._hold_or_emit(ended)
        early, self._early_results = self._early_results, []
        for event in early:
            yield from self._hold_or_emit(event)

    def _hold_or_emit(self, event: Event) -> Iterable[Event]:
        if self._held_events:
            self._held_events.append(event)
        else:
            yield event

    # -- what comes after it -------------------------------------------------------------------------

    def _read_user(self, record: Mapping[str, Any]) -> Iterable[ClaudeMessage]:
        message = record.get("message")
        results = self._tool_results(message.get("content") if isinstance(message, dict) else None)
        if self._message and self._is_streamed:
            self._early_results += results
            return
        yield from self._close_message()
        for event in results:
            yield from self._hold_or_emit(event)

    def _tool_results(self, content: Any) -> Iterable[Event]:
        for block in content_blocks(content):
            call, is_error = to_text(block.get("tool_use_id")), block.get("is_error") is True
            if block.get("type") != "tool_result" or call not in self._calls:
                continue  # of an earlier run
            name, args = self._calls.pop(call)
            yield ToolReturned(call, name, join_content(block.get("content")), is_error)
            if name == FINALIZE_TOOL and not is_error and (finalization := parse_finalization(args)):
                yield Finalized(finalization)

    def _read_result(self, record: Mapping[str, Any]) -> Iterable[ClaudeMessage]:
        cost = parse_cost(record)
        failed, subtype = record.get("is_error") is True, to_text(record.get("subtype"))
        errors = record.get("errors")
        why = "; ".join(map(to_text, errors)) if isinstance(errors, list) else ""
        is_too_long = TOO_LONG_MARKER in to_text(record.get("result"))
        if failed and subtype == "success" and not is_too_long:
            if self._message and self._message.calls:
                yield from self._close_message()
            yield from self.release_held()
            yield self._provider_failure(record, cost)
        else:
            broke_off = why if failed and not is_too_long else None
            yield from _attach_cost([*self._close_message(), *self.release_held()], cost, broke_off)
        self._hit_output_limit = False
        yield ResultReceived(subtype if failed else "success", why)

    def _provider_failure(self, record: Mapping[str, Any], cost: float | None) -> MessageEnded:
        message, self._message = self._message or OpenMessage(id="", model=None, usage=Usage(turns=1)), None
        known = (to_text(record.get("api_error_status")), to_text(record.get("api_error_type")))
        # Status and kind identify the error more reliably than its text.
        error = ": ".join(filter(None, (" ".join(filter(None, known)), to_text(record.get("result")))))
        usage = structs.replace(message.usage, cost=cost)
        return MessageEnded(stop_reason="error", model=message.model, usage=usage, error=error or "no reason given")


def _attach_cost(events: list[Event], cost: float | None, broke_off: str | None) -> list[Event]:
    """Return the last events of a run with its cost, in its last message or in the reason why it was stopped."""
    if cost is None:
        return events
    for place, event in enumerate(events):
        if isinstance(event, MessageEnded):
            costly = structs.replace(event, usage=structs.replace(event.usage, cost=cost))
            return [*events[:place], costly, *events[place + 1 :]]
    if broke_off is None:
        return events  # the answer was already reported, and no message may follow it
    return [*events, MessageEnded(stop_reason="error", usage=Usage(cost=cost), error=broke_off)]


def _read_lifecycle(record: Mapping[str, Any]) -> Iterable[ClaudeMessage]:
    """Yield the new state of a steering message, by the name it was sent under."""
    match record:
        case {"command_uuid": str(name), "state": "queued"}:
            yield MessageAccepted(name)
        case {"command_uuid": str(name), "state": "started"}:
            yield MessageDelivered(name)


def _read_system(record: Mapping[str, Any]) -> Iterable[ClaudeMessage]:
    """Yield the messages in a record of type `system`."""
    match record:
        case {"subtype": "init", "session_id": str(session), "tools": list(tools)}:
            yield ModelRequestStarted(session, tuple(map(to_text, tools)))
        case {"subtype": "api_retry"}:
            attempt, max_attempts = to_number(record.get("attempt")), to_number(record.get("max_retries"))
            pause = to_number(record.get("retry_delay_ms")) / 1000
            why = " ".join(filter(None, (to_text(record.get("error_status")), to_text(record.get("error")))))
            yield Notice(
                "provider_retry", f"Claude Code retries in {pause:g}s ({attempt} of {max_attempts}) after: {why}"
            )
        case {"subtype": "compact_boundary"}:
            message = "Claude Code compacts its conversation, which is too long for the model."
            yield Notice("compaction", message)
