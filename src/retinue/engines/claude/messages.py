"""Claude Code's messages → events. Each is looked at once.

    system init                        the session and its tools
    system api_retry, compact_boundary notices
    stream_event                       a message as it is written: its beginning, deltas, usage, stop reason
    assistant                          one whole block of a message; or an error of the provider, as if it were one
    user                               results of tools
    result                             the end of the run, and what it cost
    command_lifecycle                  what becomes of a text that was said meanwhile

Claude Code runs tools while the message that calls them is still being written: their results wait for its end. A
message of which no stream is seen, because Claude Code asked again without one, ends with what comes after it. The
cost of a run is known at its very end: so the message that looks like the last is held back until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from msgspec import structs

from retinue.engines.claude.delegating import as_ours
from retinue.engines.claude.open_message import OpenMessage
from retinue.engines.claude.own_tools import our_name
from retinue.engines.claude.said import Ended, Said, of_lifecycle, of_system
from retinue.engines.claude.values import content_of, cost_of, usage_of
from retinue.engines.claude.wire import Heard
from retinue.engines.json_lines import blocks_of, finalization_of, text_of
from retinue.engines.record_counts import RecordCounts, joined
from retinue.events import (
    CONTINUED,
    Event,
    Finalized,
    MessageEnded,
    Notice,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.tool_names import FINALIZE, is_delegation
from retinue.types import Args, Usage

SYNTHETIC = "<synthetic>"
"""The model of messages that Claude Code itself has written."""

WENT_ON = "The model reached its output limit and goes on where it stopped: its answer is of several messages."

TOO_LONG = "output token maximum"
"""What it says when the model has reached its output limit time and again: the message before says the same."""


class Reader(RecordCounts):
    """The messages of one run."""

    def __init__(self) -> None:
        super().__init__()
        self._message: OpenMessage | None = None
        self._is_streamed = False
        self._calls: dict[str, tuple[str, Args]] = {}
        self._early: list[Event] = []
        """Results of tools called by a message that is not complete."""
        self._held: list[Event] = []
        self._was_cut_off = False
        """Whether the last message reached the model's output limit; Claude Code then has it go on."""
        self.is_within_answer = False
        """Whether the output has ended while an answer was being written."""
        self._readers: Mapping[str, Callable[[Mapping[str, Any]], Iterable[Said]]] = {
            "system": of_system,
            "stream_event": self._stream_event,
            "assistant": self._assistant,
            "user": self._user,
            "result": self._result,
            "command_lifecycle": of_lifecycle,
        }

    @property
    def has_open_calls(self) -> bool:
        """Whether a tool call has no result yet."""
        return bool(self._calls)

    def read(self, lines: Iterable[Heard]) -> list[Said]:
        """What the lines say, with deltas that follow each other as one."""
        return joined(chain.from_iterable(map(self._one, lines)))

    def release(self) -> list[Event]:
        """What was held back; its first is the message that may have been the last."""
        held, self._held = self._held, []
        return held

    def end(self) -> list[Event]:
        """What is left when the output has ended."""
        if self._message:
            self.is_within_answer = self._message.is_cut
        return self._rest()

    def _rest(self) -> list[Event]:
        return [*self.release(), *self._close(), *self.release()]

    def _one(self, line: Heard) -> Iterable[Said]:
        if line.value is None:
            return self._no_message(line)
        self.is_cut = False
        kind = text_of(line.value.get("type"))
        if kind != "stream_event":
            self.stdout += line.size
        # What an agent within Claude Code says is no message of this run.
        reader = None if line.value.get("parent_tool_use_id") else self._readers.get(kind)
        return reader(line.value) if reader else ()

    def _no_message(self, line: Heard) -> Iterable[Said]:
        if not line.raw:
            self.dropped += line.size
            message = f"A line of {line.size} bytes from Claude Code was too long and is left out."
            return (Notice("line_too_long", message),) if line.size else ()
        self.no_record(line.raw)
        return ()

    # -- a message -----------------------------------------------------------------------------------

    def _stream_event(self, record: Mapping[str, Any]) -> Iterable[Said]:
        match record.get("event"):
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}} if text:
                yield from self._told(TextDelta(text))
            case {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": str(text)}} if text:
                yield from self._told(ThinkingDelta(text))
            case {"type": "message_start", "message": dict(message)}:
                yield from self._open(message)
                self._is_streamed = True
            case {"type": "message_delta", "delta": {"stop_reason": reason}, **rest} if self._message:
                self._message.stop = text_of(reason) or self._message.stop
                self._message.usage = usage_of(rest.get("usage"), self._message.usage)
            case {"type": "message_stop"}:
                yield from self._close()

    def _assistant(self, record: Mapping[str, Any]) -> Iterable[Said]:
        message = record.get("message")
        if not isinstance(message, dict):
            return
        if message.get("model") == SYNTHETIC:
            return  # an error of the provider, which the result says as well
        if self._message is None or self._message.id != text_of(message.get("id")):
            yield from self._open(message)
        for block in blocks_of(message.get("content")):
            match block.get("type"):
                case "thinking" if text := text_of(block.get("thinking")):
                    yield from self._told(Thinking(text))
                case "text" if text := text_of(block.get("text")):
                    yield from self._told(Text(text))
                case "tool_use":
                    yield from self._told(self._call(block))

    def _open(self, message: Mapping[str, Any]) -> Iterable[Event]:
        yield from self._rest()
        if self._was_cut_off:
            yield Notice(CONTINUED, WENT_ON)
        self._message = OpenMessage.of(message)
        self._is_streamed = False

    def _told(self, event: Event) -> Iterable[Event]:
        if self._message:
            self._message.is_written = True
        yield from self._hold_or(event)

    def _call(self, block: Mapping[str, Any]) -> ToolCalled:
        call, args = text_of(block.get("id")), block.get("input")
        name = our_name(text_of(block.get("name")))
        given = args if isinstance(args, dict) else {"arguments": args}
        self._calls[call] = name, as_ours(given) if is_delegation(name) else given
        if self._message:
            self._message.calls.append(name)
        return ToolCalled(call, *self._calls[call])

    def _close(self) -> Iterable[Event]:
        """Ends the message that is being written, if there is one."""
        message, self._message = self._message, None
        if message is None or not (message.is_written or message.stop):
            return
        ended = message.ended()
        self._was_cut_off = ended.stop_reason == "length"
        if ended.stop_reason in {"stop", "length"} or FINALIZE in message.calls:
            self._held.append(ended)
        else:
            yield from self._hold_or(ended)
        early, self._early = self._early, []
        for event in early:
            yield from self._hold_or(event)

    def _hold_or(self, event: Event) -> Iterable[Event]:
        if self._held:
            self._held.append(event)
        else:
            yield event

    # -- what comes after it -------------------------------------------------------------------------

    def _user(self, record: Mapping[str, Any]) -> Iterable[Said]:
        message = record.get("message")
        results = self._results(message.get("content") if isinstance(message, dict) else None)
        if self._message and self._is_streamed:
            self._early += results
            return
        yield from self._close()
        for event in results:
            yield from self._hold_or(event)

    def _results(self, content: Any) -> Iterable[Event]:
        for block in blocks_of(content):
            call, is_error = text_of(block.get("tool_use_id")), block.get("is_error") is True
            if block.get("type") != "tool_result" or call not in self._calls:
                continue  # of an earlier run
            name, args = self._calls.pop(call)
            yield ToolReturned(call, name, content_of(block.get("content")), is_error)
            if name == FINALIZE and not is_error and (finalization := finalization_of(args)):
                yield Finalized(finalization)

    def _result(self, record: Mapping[str, Any]) -> Iterable[Said]:
        cost = cost_of(record)
        failed, subtype = record.get("is_error") is True, text_of(record.get("subtype"))
        errors = record.get("errors")
        why = "; ".join(map(text_of, errors)) if isinstance(errors, list) else ""
        is_too_long = TOO_LONG in text_of(record.get("result"))
        if failed and subtype == "success" and not is_too_long:
            if self._message and self._message.calls:
                yield from self._close()
            yield from self.release()
            yield self._provider_failed(record, cost)
        else:
            broke_off = why if failed and not is_too_long else None
            yield from _with_cost([*self._close(), *self.release()], cost, broke_off)
        self._was_cut_off = False
        yield Ended(subtype if failed else "success", why)

    def _provider_failed(self, record: Mapping[str, Any], cost: float | None) -> MessageEnded:
        message, self._message = self._message or OpenMessage(id="", model=None, usage=Usage(turns=1)), None
        known = (text_of(record.get("api_error_status")), text_of(record.get("api_error_type")))
        # Status and kind say more surely than words what it is about.
        error = ": ".join(filter(None, (" ".join(filter(None, known)), text_of(record.get("result")))))
        usage = structs.replace(message.usage, cost=cost)
        return MessageEnded(stop_reason="error", model=message.model, usage=usage, error=error or "no reason given")


def _with_cost(events: list[Event], cost: float | None, broke_off: str | None) -> list[Event]:
    """The last events of a run and what it cost: by its last message, or by word of why it broke off after that."""
    if cost is None:
        return events
    for place, event in enumerate(events):
        if isinstance(event, MessageEnded):
            costly = structs.replace(event, usage=structs.replace(event.usage, cost=cost))
            return [*events[:place], costly, *events[place + 1 :]]
    if broke_off is None:
        return events  # its answer has been told, and no message may follow that
    return [*events, MessageEnded(stop_reason="error", usage=Usage(cost=cost), error=broke_off)]
