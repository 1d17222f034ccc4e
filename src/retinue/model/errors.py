"""Define failure codes, failures as values, and the error that refuses a call."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field


class ErrorCode(StrEnum):
    """Reasons for refusing a call or failing a run; toolsets map these to their own codes."""

    INVALID_INPUT = "invalid_input"
    DISABLED = "disabled"
    UNKNOWN_AGENT = "unknown_agent"
    AGENT_DISABLED = "agent_disabled"
    AGENT_UNTRUSTED = "agent_untrusted"
    UNKNOWN_ENGINE = "unknown_engine"
    UNKNOWN_SKILL = "unknown_skill"
    CONFLICT = "conflict"
    UNSUPPORTED = "unsupported"
    DEPTH_EXCEEDED = "depth_exceeded"
    SPAWN_LIMIT = "spawn_limit"
    SESSION_NOT_FOUND = "session_not_found"
    SESSION_BUSY = "session_busy"
    TIMEOUT = "timeout"
    IDLE_TIMEOUT = "idle_timeout"
    LOOP = "loop"
    BUDGET = "budget"
    OUTPUT_LIMIT = "output_limit"
    NOT_FINALIZED = "not_finalized"
    PROVIDER = "provider"
    ENGINE = "engine"
    SPAWN_FAILED = "spawn_failed"
    SIGNALLED = "signalled"
    ABORTED = "aborted"
    INTERRUPTED = "interrupted"
    STORAGE = "storage"


class Failure(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The reason a run did not complete. The message states what happened, what was kept and what to do next."""

    code: ErrorCode
    message: str
    reason: str | None = None
    """A more specific name than the code, such as `no_final_message` or `rate_limit`."""
    detail: Mapping[str, str | int | float] = field(default_factory=dict)
    """Values that toolsets use in their own error messages."""


class RefusedError(Exception):
    """The whole call was refused before anything started."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def refuse(code: ErrorCode, message: str, reason: str | None = None) -> RefusedError:
    return RefusedError(Failure(code, message, reason))
