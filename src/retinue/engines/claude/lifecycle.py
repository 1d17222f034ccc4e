"""Messages of Claude Code about the run itself: start, end, and notices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from retinue.engines.json_lines import to_number, to_text
from retinue.model.events import Event, Notice


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


def read_lifecycle(record: Mapping[str, Any]) -> Iterable[ClaudeMessage]:
    """Yield the new state of a steering message, by the name it was sent under."""
    match record:
        case {"command_uuid": str(name), "state": "queued"}:
            yield MessageAccepted(name)
        case {"command_uuid": str(name), "state": "started"}:
            yield MessageDelivered(name)


def read_system(record: Mapping[str, Any]) -> Iterable[ClaudeMessage]:
    """Yield the messages in a record of type `system`."""
    match record:
        case {"subtype": "init", "session_id": str(session), "tools": list(tools)}:
            yield ModelRequestStarted(session, tuple(map(to_text, tools)))
        case {"subtype": "api_retry"}:
            attempt, max_attempts = to_number(record.get("attempt")), to_number(record.get("max_retries"))
            pause = to_number(record.get("retry_delay_ms")) / 1000
            why = " ".join(filter(None, (to_text(record.get("error_status")), to_text(record.get("error")))))
            yield Notice(
                "provider_retry", f"Claude Code tries again in {pause:g}s ({attempt} of {max_attempts}) after: {why}"
            )
        case {"subtype": "compact_boundary"}:
            message = "Claude Code shortens its conversation, as it grew too long for the model."
            yield Notice("compaction", message)
