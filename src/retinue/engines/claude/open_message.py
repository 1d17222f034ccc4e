"""The assistant message that is being written, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from retinue.engines.claude.values import usage_of
from retinue.engines.json_lines import text_of
from retinue.events import MessageEnded, StopReason
from retinue.types import Usage

_STOP: Mapping[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    # The model goes on by itself.
    "pause_turn": "tool_use",
    "compaction": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "error",
}
_REFUSED = "The model refused to answer (refusal)."
_CUT = "The answer broke off before it was complete."


class OpenMessage(Struct):
    """The assistant message that is being written."""

    id: str
    model: str | None
    usage: Usage = Usage()
    stop: str = ""
    calls: list[str] = msgspec.field(default_factory=list)
    is_written: bool = False
    """Whether anything of it was told."""

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> OpenMessage:
        """A message as it begins; all of it, if it was not streamed."""
        return cls(
            id=text_of(message.get("id")),
            model=text_of(message.get("model")) or None,
            usage=usage_of(message.get("usage")),
            stop=text_of(message.get("stop_reason")),
        )

    @property
    def is_cut(self) -> bool:
        """Whether it would end here without having come to an end of its own."""
        return self.is_written and not (self.calls or self.stop)

    def ended(self) -> MessageEnded:
        reason, error = _reason(self)
        return MessageEnded(stop_reason=reason, model=self.model, usage=self.usage, error=error)


def _reason(message: OpenMessage) -> tuple[StopReason, str | None]:
    """Why a message ended, and in words if that is an error."""
    if message.calls:
        return "tool_use", None
    reason = _STOP.get(message.stop, "error")
    if reason != "error":
        return reason, None
    if message.stop == "refusal":
        return reason, _REFUSED
    return reason, f"Claude ended its message with an unknown stop reason: {message.stop}" if message.stop else _CUT
