"""The plain-text transcript of a session, one run after another."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.model.event_codec import EventRecord
from retinue.model.events import DeadlineExtended, ModelChanged, Notice, RunEnded, RunQueued
from retinue.model.results import Finalization
from retinue.model.runs import ToolArguments
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
