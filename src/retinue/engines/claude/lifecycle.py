"""What Claude Code says of a run beside its messages: that it begins, that it is over, what a person should know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from retinue.engines.json_lines import to_number, to_text
from retinue.model.events import Event, Notice


class ModelRequestStarted(Struct, frozen=True):
    """Claude Code is about to ask the model."""

    session: str
    tools: tuple[str, ...]
    """By its names."""


class ResultReceived(Struct, frozen=True):
    """The run is over."""

    subtype: str
    errors: str = ""
    """Why, where it is not the provider's fault."""


class MessageAccepted(Struct, frozen=True):
    """Claude Code has a text that was said while the agent works."""

    name: str


class MessageDelivered(Struct, frozen=True):
    """Its agent has been given it."""

    name: str


ClaudeMessage = Event | ModelRequestStarted | ResultReceived | MessageAccepted | MessageDelivered


def read_lifecycle(record: Mapping[str, Any]) -> Iterable[ClaudeMessage]:
    """What becomes of a text that was sent under a name."""
    match record:
        case {"command_uuid": str(name), "state": "queued"}:
            yield MessageAccepted(name)
        case {"command_uuid": str(name), "state": "started"}:
            yield MessageDelivered(name)


def read_system(record: Mapping[str, Any]) -> Iterable[ClaudeMessage]:
    """What a message of the type `system` says."""
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
