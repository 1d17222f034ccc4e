"""The transcript of a session, one run after another, as plain text and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from retinue.model.event_codec import EventRecord
from retinue.model.events import DeadlineExtended, ModelChanged, Notice, RunEnded, RunQueued
from retinue.model.results import Finalization
from retinue.model.runs import ToolArguments
from retinue.support.formatting import format_time
from retinue.transcripts.items import MAX_RESULT_CHARS, TranscriptRenderer, call_line


class TextTranscript(TranscriptRenderer):
    """Render a session as text for a person; a text keeps its own line breaks."""

    def __init__(self) -> None:
        self._runs = 0

    def run_queued(self, event: RunQueued, record: EventRecord) -> Iterable[str]:
        self._runs += 1
        blank = [""] if self._runs > 1 else []
        return [
            *blank,
            f"=== Run {self._runs}: {event.agent} ({record.origin.run[:8]}) ===",
            f"Task: {event.task}",
        ]

    def run_ended(self, event: RunEnded) -> Iterable[str]:
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

    def notice(self, event: ModelChanged | Notice | DeadlineExtended) -> str:
        match event:
            case ModelChanged(_, after, reason):
                return f"[model: {after} ({reason})]"
            case DeadlineExtended(seconds, timeout):
                return f"[deadline extended: {seconds:g}s more, timeout {timeout:g}s]"
            case Notice(code, message):
                return f"[{code}: {message}]"


class MarkdownTranscript(TranscriptRenderer):
    """Render a run as Markdown: texts as they are, tool calls and results whole, in code blocks."""

    def __init__(self) -> None:
        self._last_text = ""

    def run_queued(self, event: RunQueued, record: EventRecord) -> Iterable[str]:
        return [
            f"# {event.name}\n",
            f"- agent: {event.agent}\n- engine: {event.engine}\n- directory: {event.cwd}",
            f"- begun: {format_time(record.time)}\n- run: {record.origin.run}\n",
            f"## Task\n\n{_fence_code(event.task)}\n",
        ]

    def run_ended(self, event: RunEnded) -> Iterable[str]:
        if event.failure:
            yield f"## Ended: {event.failure.code}\n\n{event.failure.message}\n"
        # Most answers are the last text, which is already there.
        is_repeated = event.text in {"", self._last_text}
        title = "Answered" if not event.failure else "It had"
        yield f"## {title}, after {event.elapsed:.1f} s\n" + ("" if is_repeated else f"\n{event.text}\n")

    def text(self, text: str) -> str:
        self._last_text = text
        return f"## Said\n\n{text}\n"

    def thinking(self, text: str) -> str:
        return f"### Thought\n\n{_quote(text)}\n"

    def steering(self, text: str) -> str:
        return f"### Was told\n\n{_quote(text)}\n"

    def tool_call(self, name: str, args: ToolArguments) -> str:
        encoded = msgspec.json.format(msgspec.json.encode(args), indent=2).decode()
        return f"### Called `{name}`\n\n{_fence_code(encoded, 'json')}\n"

    def tool_result(self, name: str, text: str, is_error: bool) -> str:
        return f"### {'Failed' if is_error else 'Returned'}: `{name}`\n\n{_fence_code(text)}\n"

    def message_ended(self, error: str | None) -> str | None:
        return None if error is None else f"> **Provider:** {_quote(error)[2:]}\n"

    def notice(self, event: ModelChanged | Notice | DeadlineExtended) -> str:
        match event:
            case ModelChanged(_, after, reason):
                return f"> **Model:** {after} ({reason})\n"
            case DeadlineExtended(seconds):
                return f"> **Given {seconds:g} seconds more.**\n"
            case Notice(_, message):
                return f"{_quote(message)}\n"


def _fence_code(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any fence in the text, so that the text cannot end it."""
    longest = max((len(fence) for fence in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))
