"""The engine protocol: one method that executes a run spec and emits events."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol, runtime_checkable

from anyio.abc import TaskStatus
from msgspec import Struct, field

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Event
from retinue.model.providers import KnownModel, ProviderStatus, normalize_model
from retinue.model.runs import RunSpec

RESOURCE_ADVICE: Mapping[int, str] = {
    errno.EAGAIN: "Too many processes are running: end some, or run fewer agents at once.",
    errno.ENOMEM: "There is not enough memory: end some processes, or run fewer agents at once.",
    errno.EMFILE: "Too many files are open in this process: run fewer agents at once, or raise `ulimit -n`.",
    errno.ENFILE: "Too many files are open on this machine: end some processes.",
}
"""What to do about each error that other work of this process or machine causes, and that passes with it."""


class Completion(Enum):
    """Completion of the agent's work, as reported by its engine. In-process only: never stored or shown."""

    PENDING = "pending"
    """The engine will report when the agent is done: until then no message ends the run, however complete."""
    REPORTED = "reported"
    """The agent is done: the engine has a short grace period to return."""


Emit = Callable[[Event | Completion], Awaitable[None]]
"""Receives the events of an engine. Awaiting it is a checkpoint: a stopped run is cancelled there at the latest."""


class Engine(Protocol):
    async def run(self, spec: RunSpec, emit: Emit) -> None:
        """Execute the spec, emit its events, and return when the agent is done.

        Stopped by cancellation only. A provider's failure is a `message_ended` with stop reason `error`.
        An engine that emits `Completion.PENDING` when the agent starts decides when the agent is done, and emits
        `Completion.REPORTED` then. Without it, the last complete message counts as the end of the agent's work.

        Raises:
            EngineError: the engine itself could not start or continue.
        """


@runtime_checkable
class ManagesProcesses(Protocol):
    """An engine that works between its runs, too, such as on a pool of warm processes."""

    async def run_background(self, *, task_status: TaskStatus[None]) -> None:
        """Run until cancelled and stop all started processes before returning; runs start after `started`."""


@runtime_checkable
class SupportsSteering(Protocol):
    """An engine whose agents accept messages while they work; its capabilities have `steers`, too."""

    async def steer(self, run: str, text: str) -> Failure | None:
        """Send a text to the agent of a run, which sees it before its next model call; return why not, or None.

        The run emits `steered` where its agent receives the text: in the order its model sees it.
        """


class EngineCapabilities(Struct, frozen=True, kw_only=True):
    """The features and restrictions of an engine, known without starting it."""

    tools: frozenset[str]
    """Tools it has, in pi's names."""
    default_tools: tuple[str, ...] | None = None
    """Tools that are on by default, for tasks without an agent; None: all."""
    allows_other_tools: bool = False
    """Whether names outside `tools` may exist too (a CLI with extensions)."""
    enforces: frozenset[str] = frozenset({"tools", "readonly", "no_tools"})
    """Restrictions it enforces; any other is refused, never ignored."""
    preferences: frozenset[str] = frozenset()
    """Preferences it follows; others are reported as not applied."""
    resumes: bool = False
    """Continues a session from its own memory or from messages."""
    resumes_natively: bool = False
    """Stores sessions itself, and continues from a spec's `native_session`."""
    finalizes: bool = False
    delegates: bool = False
    """Has delegation tools, where a run is granted them: those of `RunSpec.delegation`."""
    delegates_by_socket: bool = False
    """They run in a process of the engine, and call this one by `RunSpec.callback`."""
    steers: bool = False
    """Accepts messages while an agent works: the engine is a `SupportsSteering`."""
    calls_servers: bool = False
    """Offers the tools of MCP servers, where a run is granted some: those of `RunSpec.tool_servers`."""
    calls_functions: bool = False
    """Calls functions of the program as tools, in this process."""
    reports_cost: bool = False
    confines: bool = False
    """Confines its tools and processes as `RunSpec.sandbox` says; otherwise a run with a sandbox fails."""
    runs_program: bool = False
    """Each run is a process of its own, or in one."""
    command_tools: frozenset[str] = frozenset()
    """Tools for which an engine of this process starts others."""
    environment: frozenset[str] = frozenset()
    """Variables its process needs beside the usual ones, whichever its provider; `X_*`: all that begin so."""


class EngineInfo(Struct, frozen=True, kw_only=True):
    """An engine and its requirements, known without importing it."""

    name: str
    capabilities: EngineCapabilities
    make: Callable[[], Engine]
    prepare: Callable[[], None] = lambda: None
    """Start what takes a while and is needed by `make`, which follows soon. Does not raise."""
    not_installed_reason: Callable[[], str | None]
    """Return why the engine cannot be used here and what to do; None if it can. Starts no process."""
    not_installed_reason_with_key: Callable[[], str | None] | None = None
    """Return the same for an agent with its own API key, where that makes a difference."""
    not_configured_reason: Callable[[], str | None] = lambda: None
    """Return why `auto` does not choose the installed engine, and what to do; None if it may."""
    provider_variables: Callable[[Sequence[str | None], str | None], frozenset[str]] = lambda _models, _provider: (
        frozenset()
    )
    """Return the variables the providers of a run need, from the models of its attempts and its agent's provider."""
    configured_variables: Callable[[], frozenset[str]] = frozenset
    """Return the variables of all providers that can be used here, for the environment of another process."""
    find_model_problem: Callable[[str | None, str | None, Mapping[str, str]], Failure | None] = (
        lambda _model, _provider, _environ: None
    )
    """Return why a run on this model, with its agent's provider and in this environment, could not start."""
    has_model: Callable[[str, str | None, Mapping[str, str]], bool] = lambda _model, _provider, _environ: True
    """Return whether a model that another tool's agent file names, with its provider, can be had here."""
    api_key_variable: str = "PI_API_KEY"
    """Under which name of `RunSpec.secrets` it expects the API key that an agent brings."""
    setting_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The `RunSpec.setting_sources` of each choice a user has, if the engine's program has settings of its own."""
    automatic: bool = True
    """`auto` may choose it."""
    only_provider: str | None = None
    """The provider whose models it has, if it has no others; behind a gateway of the user's it may."""
    uses_models: bool = True
    """False for rules: a host must not mistake them for an agent."""
    summary: str = ""
    describe: Callable[[str | None], str] | None = None
    """Return the summary for a user whose setting `model` is this, where that makes a difference."""
    list_providers: Callable[[str | None], tuple[ProviderStatus, ...]] | None = None
    """Return the providers it calls itself, for a user whose setting `model` is this; None: its program does."""
    describe_other_providers: Callable[[], str] | None = None
    """Return how providers are used that are listed only once they are configured; None if there are none."""
    list_models: Callable[[str], tuple[KnownModel, ...] | None] = lambda _provider: None
    """Return the known models of such a provider, asked from a server without a key; None if there is no provider of
    this name."""

    def summary_for(self, model: str | None) -> str:
        """Return what the engine is, for a user whose setting `model` is this."""
        return self.describe(model) if self.describe else self.summary

    def describe_run(self, model: str | None, environ: Mapping[str, str]) -> str:
        """Return what executes a run on this model; the model itself where the engine knows no more of it."""
        if model and self.uses_models and (not self.describe or self.find_model_problem(model, None, environ)):
            return model
        return self.summary_for(model)

    def not_installed_reason_for(self, *, has_key: bool) -> str | None:
        """Return why the engine cannot be used for an agent with or without its own API key; None if it can."""
        return (
            self.not_installed_reason_with_key
            if has_key and self.not_installed_reason_with_key
            else self.not_installed_reason
        )()

    def unavailable_reason(self) -> str | None:
        """Return why `auto` does not choose the engine; None if it may."""
        return self.not_installed_reason() or self.not_configured_reason()


def choose_automatic_engine(
    engines: Iterable[EngineInfo], model: str | None, environ: Mapping[str, str]
) -> EngineInfo | None:
    """Return the engine that `auto` uses for a model, which may be none; None if no engine is ready.

    It is the first that is ready. If that one has the models of another provider only, it is an engine that calls the
    model's provider itself, where one can.
    """
    automatic = [kind for kind in engines if kind.automatic]
    first = next((kind for kind in automatic if kind.unavailable_reason() is None), None)
    provider, is_named, _ = normalize_model(model).partition("/")
    if first is None or not is_named or first.only_provider in {None, provider}:
        return first
    calling = (kind for kind in automatic if kind.list_providers and kind.not_installed_reason() is None)
    return next((kind for kind in calling if kind.find_model_problem(model, None, environ) is None), first)


class EngineError(Exception):
    """A failure of the engine, not of the model behind it. Never leaves `run_attempt`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


RUN_NOT_ACTIVE = Failure(
    ErrorCode.CONFLICT,
    "The agent accepts no more messages: the run is ending, or is between two attempts. The message was not sent. "
    "Put the message into the next task of the session.",
    "not_at_work",
)
"""Answer to a steering message that arrives too late."""


def engine_error(message: str, *, code: ErrorCode = ErrorCode.ENGINE, reason: str | None = None) -> EngineError:
    return EngineError(Failure(code, message, reason))
