"""What an engine is: one method that executes a run spec and tells what happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Protocol, runtime_checkable

from anyio.abc import TaskStatus
from msgspec import Struct

from retinue.events import Event
from retinue.types import Code, Failure, RunSpec


class Completion(Enum):
    """Whether the agent is done, where its engine reports that itself. In-process only: never stored or shown."""

    PENDING = "pending"
    """The engine will report when the agent is done: until then no message ends the run, however complete."""
    REPORTED = "reported"
    """The agent is done: the engine has a short grace period to return."""


Emit = Callable[[Event | Completion], Awaitable[None]]
"""Where an engine reports. Awaiting it is a checkpoint: a stopped run is cancelled there at the latest."""


class Engine(Protocol):
    async def run(self, spec: RunSpec, emit: Emit) -> None:
        """Executes the spec and emits what happens; returns when the agent is done.

        Stopped by cancellation only. A provider's failure is a `message_ended` with stop reason `error`.
        An engine that emits `Completion.PENDING` when the agent starts decides when the agent is done, and emits
        `Completion.REPORTED` then. Without it, the last complete message counts as the end of the agent's work.

        Raises:
            EngineError: the engine itself could not start or go on.
        """


@runtime_checkable
class KeepsProcesses(Protocol):
    """An engine with a life beside its runs, such as a pool of warm processes."""

    async def keep(self, *, task_status: TaskStatus[None]) -> None:
        """Lives until cancelled and ends all it has started before it returns; runs begin once it says `started`."""


@runtime_checkable
class Steers(Protocol):
    """An engine whose agents can be told something while they work; its capabilities say so, too."""

    async def steer(self, run: str, text: str) -> Failure | None:
        """Hands a text to the agent of a run, which reads it before it asks its model again; why it cannot, or None.

        The run emits `steered` where its agent is given the text: in the order its model sees it.
        """


class Capabilities(Struct, frozen=True, kw_only=True):
    """What an engine can do and enforce, known without starting it."""

    tools: frozenset[str]
    """Tools it has, in pi's names."""
    usual_tools: tuple[str, ...] | None = None
    """Those it has switched on by itself, for tasks without an agent; None: all."""
    more_tools: bool = False
    """Whether names outside `tools` may exist too (a CLI with extensions)."""
    enforces: frozenset[str] = frozenset({"tools", "readonly", "no_tools"})
    """Restrictions it keeps; one it does not is refused, never ignored."""
    knows: frozenset[str] = frozenset()
    """Preferences it follows; others are reported as not applied."""
    resumes: bool = False
    """Continues a session from its own memory or from messages."""
    resumes_natively: bool = False
    """Keeps its own record of a session, in `folders.native_file`, and goes on from a spec's `native_session`."""
    finalizes: bool = False
    nests: bool = False
    """Has the tools to delegate, which call home, where a run is given them."""
    steers: bool = False
    """Takes a text while an agent works: the engine `Steers`."""
    states_cost: bool = False
    environment: frozenset[str] = frozenset()
    """Variables its process needs beside the usual ones, whichever its provider; `X_*`: all that begin so."""


class EngineKind(Struct, frozen=True, kw_only=True):
    """An engine that could be used, known without importing it."""

    name: str
    capabilities: Capabilities
    make: Callable[[], Engine]
    missing: Callable[[], str | None]
    """Why it cannot be used here and what to do about it; None if it can. Starts no process."""
    missing_with_key: Callable[[], str | None] | None = None
    """The same for an agent that brings a key of its own, where that makes a difference."""
    unready: Callable[[], str | None] = lambda: None
    """Why `auto` passes it over although it is there, and what to do; None if it does not."""
    provider_variables: Callable[[Sequence[str | None], str | None], frozenset[str]] = lambda _models, _provider: (
        frozenset()
    )
    """Return the variables the providers of a run need, from the models of its attempts and its agent's provider."""
    automatic: bool = True
    """Whether `auto` may choose it."""
    uses_models: bool = True
    """False for rules: a host must not take them for an agent."""
    about: str = ""

    def missing_for(self, *, has_key: bool) -> str | None:
        """Why it cannot be used for an agent that brings a key of its own, or does not."""
        return (self.missing_with_key if has_key and self.missing_with_key else self.missing)()

    def passed_over(self) -> str | None:
        """Why `auto` does not choose it; None if it may."""
        return self.missing() or self.unready()


class EngineError(Exception):
    """The engine failed, not the model behind it. Never leaves `supervise`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


NOT_AT_WORK = Failure(
    Code.CONFLICT,
    "The agent takes nothing more: it is done, or between two attempts. Nothing was said to it. Give what it should "
    "know to the next run of its session.",
    "not_at_work",
)
"""Of a text that comes too late."""


def engine_error(message: str, *, code: Code = Code.ENGINE, reason: str | None = None) -> EngineError:
    return EngineError(Failure(code, message, reason))
