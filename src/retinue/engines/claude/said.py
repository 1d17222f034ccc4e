"""What Claude Code says of a run beside its messages: that it begins, that it is over, what a person should know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from retinue.engines.json_lines import number_of, text_of
from retinue.events import Event, Notice


class Begun(Struct, frozen=True):
    """Claude Code is about to ask the model."""

    session: str
    tools: tuple[str, ...]
    """By its names."""


class Ended(Struct, frozen=True):
    """The run is over."""

    subtype: str
    errors: str = ""
    """Why, where it is not the provider's fault."""


class Taken(Struct, frozen=True):
    """Claude Code has a text that was said while the agent works."""

    name: str


class Given(Struct, frozen=True):
    """Its agent has been given it."""

    name: str


Said = Event | Begun | Ended | Taken | Given


def of_lifecycle(record: Mapping[str, Any]) -> Iterable[Said]:
    """What becomes of a text that was sent under a name."""
    match record:
        case {"command_uuid": str(name), "state": "queued"}:
            yield Taken(name)
        case {"command_uuid": str(name), "state": "started"}:
            yield Given(name)


def of_system(record: Mapping[str, Any]) -> Iterable[Said]:
    """What a message of the type `system` says."""
    match record:
        case {"subtype": "init", "session_id": str(session), "tools": list(tools)}:
            yield Begun(session, tuple(map(text_of, tools)))
        case {"subtype": "api_retry"}:
            attempt, most = number_of(record.get("attempt")), number_of(record.get("max_retries"))
            pause = number_of(record.get("retry_delay_ms")) / 1000
            why = " ".join(filter(None, (text_of(record.get("error_status")), text_of(record.get("error")))))
            yield Notice(
                "provider_retry", f"Claude Code tries again in {pause:g}s ({attempt} of {most}) after: {why}"
            )
        case {"subtype": "compact_boundary"}:
            message = "Claude Code shortens its conversation, as it grew too long for the model."
            yield Notice("compaction", message)
