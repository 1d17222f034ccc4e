"""Render the events of a session, one run after another, as plain text and as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

import msgspec

from retinue.model import events
from retinue.model.event_codec import EventRecord
from retinue.model.results import Finalization, describe_confinement
from retinue.model.runs import ToolArguments
from retinue.support.formatting import format_limit, format_time

MAX_ARGS_CHARS = 120
"""Characters of a tool call's arguments in a transcript."""
MAX_RESULT_CHARS = 500
"""Characters of a tool's result in a transcript."""


class TranscriptRenderer:
    """Base of the transcript formats: a format overrides the methods of the items it shows.

    Items are rendered while the events are read, so a session of any size is never in memory as a whole.
    """

    def render(self, record: EventRecord) -> Iterator[str]:
        """Yield the entries of one event; none of an event that the format leaves out."""
        event = record.event
        if isinstance(event, events.RunQueued):
            yield from self.run_queued(event, record)
        elif isinstance(event, events.RunEnded):
            yield from self.run_ended(event)
        elif (entry := self._render_item(event)) is not None:
            yield entry

    def _render_item(self, event: events.Event) -> str | None:
        match event:
            case events.Text(text):
                return self.text(text) if text.strip() else None
            case events.Thinking(text):
                return self.thinking(text) if text.strip() else None
            case events.SteeringDelivered(text):
                return self.steering(text)
            case events.ToolCalled(_, name, args):
                return self.tool_call(name, args)
            case events.ToolReturned(_, name, text, is_error):
                return self.tool_result(name, text, is_error)
            case events.MessageEnded(error=error):
                return self.message_ended(error)
            case events.Finalized(finalization):
                return self.finalization(finalization)
            case events.ModelChanged() | events.Notice() | events.DeadlineExtended():
                return self.notice(event)
            case _:
                return None

    # The items of a run, in no order; by default an item is left out.

    def run_queued(self, event: events.RunQueued, record: EventRecord) -> Iterable[str]:
        return ()

    def run_ended(self, event: events.RunEnded) -> Iterable[str]:
        return ()

    def text(self, text: str) -> str | None: ...

    def thinking(self, text: str) -> str | None: ...

    def steering(self, text: str) -> str | None: ...

    def tool_call(self, name: str, args: ToolArguments) -> str | None: ...

    def tool_result(self, name: str, text: str, is_error: bool) -> str | None: ...

    def message_ended(self, error: str | None) -> str | None: ...

    def finalization(self, finalization: Finalization) -> str | None: ...

    def notice(self, event: events.ModelChanged | events.Notice | events.DeadlineExtended) -> str | None: ...


def call_line(name: str, args: ToolArguments) -> str:
    """Return a tool call as one line; lone surrogates, which no output accepts, are escaped."""
    text = json.dumps(args, ensure_ascii=False, separators=(",", ":"), default=repr)[:MAX_ARGS_CHARS]
    return f"→ {name}: {text}".encode("utf-8", "backslashreplace").decode()


class TextTranscript(TranscriptRenderer):
    """Render a session as text for a person; a text keeps its own line breaks."""

    def __init__(self) -> None:
        self._runs = 0

    def run_queued(self, event: events.RunQueued, record: EventRecord) -> Iterable[str]:
        self._runs += 1
        blank = [""] if self._runs > 1 else []
        title = f"=== Run {self._runs}: {event.agent} ({record.origin.run[:8]}) ==="
        return [*blank, title, f"Task: {event.task}", *event.describe_confinement()]

    def run_ended(self, event: events.RunEnded) -> Iterable[str]:
        return [f"[Error: {event.failure.message}]" if event.failure else "[completed]"]

    def text(self, text: str) -> str:
        return text

    def steering(self, text: str) -> str:
        return f"[steered]: {text}"

    def tool_call(self, name: str, args: ToolArguments) -> str:
        return call_line(name, args)

    def tool_result(self, name: str, text: str, is_error: bool) -> str:
        shortened = text if len(text) <= MAX_RESULT_CHARS else f"{text[:MAX_RESULT_CHARS]}..."
        return f"{'[tool error]' if is_error else '[tool result]'}: {shortened}"

    def message_ended(self, error: str | None) -> str | None:
        return None if error is None else f"[Error: {error}]"

    def finalization(self, finalization: Finalization) -> str:
        answer = finalization.result if finalization.status == "SUCCESS" else finalization.error
        return f"[finalized {finalization.status}]: {answer or ''}"

    def notice(self, event: events.ModelChanged | events.Notice | events.DeadlineExtended) -> str:
        match event:
            case events.ModelChanged(_, after, reason):
                return f"[model: {after} ({reason})]"
            case events.DeadlineExtended(seconds, timeout):
                return f"[timeout extended by {format_limit(seconds)} to {format_limit(timeout)}]"
            case events.Notice(code, message, compaction):
                return f"[{code}: {message}]" + (f"\n{compaction.summary}" if compaction else "")


class MarkdownTranscript(TranscriptRenderer):
    """Render a run as Markdown: texts as they are, tool calls and results whole, in code blocks."""

    def __init__(self) -> None:
        self._last_text = ""

    def run_queued(self, event: events.RunQueued, record: EventRecord) -> Iterable[str]:
        return [
            f"# {event.name}\n",
            f"- agent: {event.agent}\n- engine: {event.engine}\n- directory: {event.cwd}",
            f"- started: {format_time(record.time)}\n- run: {record.origin.run}\n",
            f"## Task\n\n{_fence_code(event.task)}\n",
        ]

    def run_ended(self, event: events.RunEnded) -> Iterable[str]:
        if event.failure:
            yield f"## Ended: {event.failure.code}\n\n{event.failure.message}\n"
        # Most answers are the last text, which is already there.
        is_repeated = event.text in {"", self._last_text}
        title = "Answered" if not event.failure else "It had"
        yield f"## {title}, after {event.elapsed:.1f} s\n" + ("" if is_repeated else f"\n{event.text}\n")
        yield from (f"> {line}\n" for line in describe_confinement(event.actual))

    def text(self, text: str) -> str:
        self._last_text = text
        return f"## Message\n\n{text}\n"

    def thinking(self, text: str) -> str:
        return f"### Reasoning\n\n{_quote(text)}\n"

    def steering(self, text: str) -> str:
        return f"### Received message\n\n{_quote(text)}\n"

    def tool_call(self, name: str, args: ToolArguments) -> str:
        encoded = msgspec.json.format(msgspec.json.encode(args), indent=2).decode()
        return f"### Called `{name}`\n\n{_fence_code(encoded, 'json')}\n"

    def tool_result(self, name: str, text: str, is_error: bool) -> str:
        return f"### {'Failed' if is_error else 'Returned'}: `{name}`\n\n{_fence_code(text)}\n"

    def message_ended(self, error: str | None) -> str | None:
        return None if error is None else f"> **Provider:** {_quote(error)[2:]}\n"

    def notice(self, event: events.ModelChanged | events.Notice | events.DeadlineExtended) -> str:
        match event:
            case events.ModelChanged(_, after, reason):
                return f"> **Model:** {after} ({reason})\n"
            case events.DeadlineExtended(seconds):
                return f"> **Timeout extended by {format_limit(seconds)}.**\n"
            case events.Notice(_, message):
                return f"{_quote(message)}\n"


def _fence_code(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any fence in the text, so that the text cannot end it."""
    longest = max((len(fence) for fence in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))
