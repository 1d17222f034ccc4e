"""What an engine is: one method that executes a run spec and tells what happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from retinue.events import Event
from retinue.types import Code, Failure, RunSpec

Emit = Callable[[Event], Awaitable[None]]
"""Where an engine reports. Awaiting it is a checkpoint: a stopped run is cancelled there at the latest."""


class Engine(Protocol):
    async def run(self, spec: RunSpec, emit: Emit) -> None:
        """Executes the spec and emits what happens; returns when the agent is done.

        Stopped by cancellation only. A provider's failure is a `message_ended` with stop reason `error`.

        Raises:
            EngineError: the engine itself could not start or go on.
        """


class Capabilities(Struct, frozen=True, kw_only=True):
    """What an engine can do and enforce, known without starting it."""

    tools: frozenset[str]
    """Tools it has, in pi's names."""
    more_tools: bool = False
    """Whether names outside `tools` may exist too (a CLI with extensions)."""
    enforces: frozenset[str] = frozenset({"tools", "readonly", "no_tools"})
    """Restrictions it keeps; one it does not is refused, never ignored."""
    knows: frozenset[str] = frozenset()
    """Preferences it follows; others are reported as not applied."""
    resumes: bool = False
    """Continues a session from its own memory or from messages."""
    finalizes: bool = False
    nests: bool = False
    states_cost: bool = False


class EngineKind(Struct, frozen=True, kw_only=True):
    """An engine that could be used, known without importing it."""

    name: str
    capabilities: Capabilities
    make: Callable[[], Engine]
    missing: Callable[[], str | None]
    """Why it cannot be used here and what to do about it; None if it can. Starts no process."""
    automatic: bool = True
    """Whether `auto` may choose it."""
    uses_models: bool = True
    """False for rules: a host must not take them for an agent."""
    about: str = ""


class EngineError(Exception):
    """The engine failed, not the model behind it. Never leaves `supervise`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def engine_error(message: str, *, code: Code = Code.ENGINE, reason: str | None = None) -> EngineError:
    return EngineError(Failure(code, message, reason))
