"""Build the parts of a Retinue: engines and toolsets by name, store, registry, orchestrator and control server.

Engines and toolsets are imported when they are used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from retinue.agents.agent import Agent
from retinue.agents.name_index import NameIndex
from retinue.agents.registry import AgentRegistry
from retinue.agents.search_paths import SearchPaths
from retinue.agents.trust import TrustStore
from retinue.config.directories import home_folder
from retinue.config.settings_files import ForeignSettings, SettingsFiles, parse_devkit, parse_pi_subagents
from retinue.engines.base import Engine, EngineInfo
from retinue.ipc.server import ControlServer, ControlSocket
from retinue.model.providers import ProviderSettings
from retinue.output.redaction.redactor import Redactor, find_secrets
from retinue.runtime.delegation import DelegatingRun, DelegationTools
from retinue.runtime.event_bus import EventBus
from retinue.runtime.executor import LocalExecutor
from retinue.runtime.orchestrator import Orchestrator
from retinue.runtime.planner import Planner
from retinue.sessions.jsonl import ClientStore, JsonlStore
from retinue.sessions.store import SessionStore
from retinue.worktrees.store import WorktreeStore

if TYPE_CHECKING:
    from retinue.engines.process.supervisor import ProcessSupervisor
    from retinue.toolsets.base import Toolset
    from retinue.toolsets.delegation import ToolsetDelegation


class EngineCatalog(Mapping[str, EngineInfo]):
    """Engines by name, each described on first use: a description imports modules of its engine."""

    def __init__(self, descriptions: Mapping[str, Callable[[], EngineInfo]]) -> None:
        self._descriptions = descriptions
        self._infos: dict[str, EngineInfo] = {}

    def __getitem__(self, name: str) -> EngineInfo:
        if name not in self._infos:
            self._infos[name] = self._descriptions[name]()
        return self._infos[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._descriptions)

    def __len__(self) -> int:
        return len(self._descriptions)


def available_engines(
    environ: Mapping[str, str], *, providers: Mapping[str, ProviderSettings] | None = None
) -> Mapping[str, EngineInfo]:
    """Return the engines of this installation, in the order `auto` prefers them.

    `providers` are those of the user's settings.
    """
    return EngineCatalog(
        {
            "pi": partial(_describe_pi, environ),
            "claude": partial(_describe_claude, environ),
            "api": partial(_describe_api, environ, providers or {}),
            "offline": _describe_offline,
            "scripted": partial(_describe_scripted, environ),
        }
    )


class _EarlySupervisor:
    """Makes the process supervisor of an engine, whose watchdog loads before the engine is made."""

    def __init__(self) -> None:
        self._supervisor: ProcessSupervisor | None = None

    def prepare(self) -> None:
        from retinue.engines.process.supervisor import ProcessSupervisor

        if self._supervisor is None:
            self._supervisor = ProcessSupervisor()
            self._supervisor.start_watchdog()

    def take(self) -> ProcessSupervisor | None:
        """Return the prepared supervisor, once; None if nothing was prepared."""
        supervisor, self._supervisor = self._supervisor, None
        return supervisor


class _SharedSupervisor:
    """The process supervisor of hooks and MCP servers, opened when the first of them is started."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._supervisor: ProcessSupervisor | None = None

    async def open(self) -> ProcessSupervisor:
        from retinue.engines.process.supervisor import ProcessSupervisor

        if self._supervisor is None:
            # Set before anything is awaited: all runs share it.
            self._supervisor = ProcessSupervisor()
            await self._stack.enter_async_context(self._supervisor)
        return self._supervisor


def _describe_pi(environ: Mapping[str, str]) -> EngineInfo:
    from retinue.engines.pi import installation
    from retinue.engines.pi import providers as pi_providers

    early = _EarlySupervisor()

    def make() -> Engine:
        from retinue.engines.pi.engine import PiEngine

        return PiEngine(supervisor=early.take())

    return EngineInfo(
        name="pi",
        capabilities=installation.CAPABILITIES,
        make=make,
        prepare=early.prepare,
        not_installed_reason=lambda: installation.not_installed_reason(environ),
        not_configured_reason=lambda: installation.not_configured_reason(environ),
        provider_variables=lambda models, provider: pi_providers.provider_variables(models, provider, environ),
        configured_variables=lambda: pi_providers.configured_variables(environ),
        has_model=pi_providers.has_model,
        summary="the pi coding agent, with your models, extensions and login",
    )


def _describe_claude(environ: Mapping[str, str]) -> EngineInfo:
    from retinue.engines.claude import installation

    early = _EarlySupervisor()

    def make() -> Engine:
        from retinue.engines.claude.engine import ClaudeEngine

        return ClaudeEngine(supervisor=early.take())

    return EngineInfo(
        name="claude",
        capabilities=installation.CAPABILITIES,
        make=make,
        prepare=early.prepare,
        not_installed_reason=lambda: installation.not_installed_reason(environ),
        not_installed_reason_with_key=lambda: installation.no_program_reason(environ),
        provider_variables=lambda _models, _provider: installation.provider_variables(environ),
        configured_variables=lambda: installation.provider_variables(environ),
        has_model=installation.has_model,
        api_key_variable="ANTHROPIC_API_KEY",
        only_provider="anthropic",
        setting_sources={"none": (), "user": ("user",), "project": ("project",), "both": ("user", "project")},
        summary="Claude Code, with your key or login",
    )


def _describe_api(environ: Mapping[str, str], configured: Mapping[str, ProviderSettings]) -> EngineInfo:
    from retinue.engines.api import providers
    from retinue.engines.api.extra_providers import describe_other_providers

    servers = providers.configure_providers(configured)

    def make() -> Engine:
        from retinue.engines.api.engine import ApiEngine

        return ApiEngine(providers=servers)

    return EngineInfo(
        name="api",
        capabilities=providers.CAPABILITIES,
        make=make,
        not_installed_reason=lambda: None,
        not_configured_reason=lambda: providers.not_configured_reason(environ, servers),
        provider_variables=lambda models, provider: providers.provider_variables(models, provider, environ, servers),
        configured_variables=lambda: providers.configured_variables(environ, servers),
        has_model=lambda model, provider, variables: providers.has_model(model, provider, variables, servers),
        find_model_problem=lambda model, provider, variables: providers.find_model_problem(
            model, provider, variables, servers
        ),
        api_key_variable=providers.AGENT_KEY,
        describe=lambda model: providers.describe_default(environ, model, servers),
        list_providers=lambda model: providers.list_providers(environ, model, servers),
        describe_other_providers=describe_other_providers,
        list_models=lambda provider: providers.list_models(provider, environ, servers),
    )


def _describe_offline() -> EngineInfo:
    from retinue.engines.offline import CAPABILITIES

    def make() -> Engine:
        from retinue.engines.offline.engine import OfflineEngine

        return OfflineEngine()

    return EngineInfo(
        name="offline",
        capabilities=CAPABILITIES,
        make=make,
        not_installed_reason=lambda: None,
        uses_models=False,
        summary="rules, not a language model: searches and reads your files, no key, no network",
    )


def _describe_scripted(environ: Mapping[str, str]) -> EngineInfo:
    from retinue.engines import scripted

    return EngineInfo(
        name="scripted",
        capabilities=scripted.CAPABILITIES,
        make=lambda: scripted.from_environment(environ),
        not_installed_reason=lambda: None,
        automatic=False,
        summary="replays a script, for tests and documentation",
    )


def _make_single_toolset(orchestrator: Orchestrator, home: str) -> Toolset:
    from retinue.toolsets.single import SingleToolset

    return SingleToolset(orchestrator, home)


def _make_sticky_toolset(orchestrator: Orchestrator, home: str) -> Toolset:
    from retinue.toolsets.sticky import StickyToolset

    return StickyToolset(orchestrator, home)


def _make_fanout_toolset(orchestrator: Orchestrator, home: str) -> Toolset:
    from retinue.toolsets.fanout.toolset import FanoutToolset

    return FanoutToolset(orchestrator, home)


def _make_nested_toolset(orchestrator: Orchestrator, _home: str) -> Toolset:
    from retinue.toolsets.nested import NestedToolset

    return NestedToolset(orchestrator)


class ToolsetInfo(Struct, frozen=True, kw_only=True):
    """A toolset of this installation, known without importing it."""

    make: Callable[[Orchestrator, str], Toolset]
    """Makes the toolset, given the user's home folder."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The settings whose default differs from the general one."""
    bounded_prompt: bool = False
    resume_as_transcript: bool = False
    """Both as in `CallContext`: the prompt and the way to resume that callers of the toolset expect."""


TOOLSETS: Mapping[str, ToolsetInfo] = {
    "single": ToolsetInfo(
        make=_make_single_toolset,
        defaults={
            "timeout": 900.0,
            "idle_timeout": 180.0,
            "extend_timeout_debounce": 0.0,
            "ceiling_factor": 1.0,
            "max_depth": 1,
            "allow_write": False,
            "retry_attempts": 2,
        },
        bounded_prompt=True,
    ),
    "sticky": ToolsetInfo(make=_make_sticky_toolset, defaults={"extend_timeout_debounce": 0.0, "max_depth": 1}),
    "fanout": ToolsetInfo(make=_make_fanout_toolset, defaults={"timeout": 600.0}, resume_as_transcript=True),
    "nested": ToolsetInfo(make=_make_nested_toolset),
}

TOOLSET_DEFAULTS = {name: info.defaults for name, info in TOOLSETS.items()}

FOREIGN_SETTINGS = (
    ForeignSettings("fanout", "settings.json", parse_pi_subagents, in_projects=True),
    ForeignSettings("single", "extensions/devkit-pi/config.json", parse_devkit),
)
"""Settings files of the pi extensions that the toolsets are compatible with."""

DELEGATION_TOOLS = DelegationTools("nested", ("spawn_subagent", "agent_info"))


def _make_delegation(home: str, orchestrator: Orchestrator, run: DelegatingRun) -> ToolsetDelegation:
    from retinue.toolsets.delegation import ToolsetDelegation

    return ToolsetDelegation(TOOLSETS[DELEGATION_TOOLS.toolset].make(orchestrator, home), orchestrator, run)


def _provider_keys(providers: Mapping[str, ProviderSettings], environ: Mapping[str, str]) -> Iterable[str]:
    """Yield the keys of the user's providers: the names of their variables need not look like those of secrets."""
    return (environ.get(each.key_variable, "") for each in providers.values() if each.key_variable)


class RetinueParts:
    """The parts of one Retinue. All but the running ones exist before it is opened."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        state: Path,
        agents: Iterable[Agent],
        engines: Mapping[str, EngineInfo] | None,
        store: SessionStore | None,
        client: str | None,
    ) -> None:
        self.environ = environ
        self.state = state
        self.home = str(home_folder(environ))
        self.settings = SettingsFiles(environ, TOOLSET_DEFAULTS, FOREIGN_SETTINGS)
        self.trust = TrustStore(state / "trust.json")
        names = NameIndex(state / "agent-names.json")
        self.catalog = AgentRegistry(SearchPaths(environ), self.trust, program=agents, names=names)
        providers = self.settings.user_providers()
        self.engines = available_engines(environ, providers=providers) if engines is None else engines
        self.redactor = Redactor((*find_secrets(environ), *_provider_keys(providers, environ)))
        self._own_store: JsonlStore | None = None  # one that was passed in is opened and closed by its owner
        if store is None:
            store = self._own_store = ClientStore(state, client) if client else JsonlStore(state)
        self.store = store
        self.worktrees = WorktreeStore(state, environ)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Orchestrator]:
        """Run the store, the engines and the control server during the block; end the runs that are left then."""
        async with AsyncExitStack() as stack:
            if self._own_store:
                await stack.enter_async_context(self._own_store)
            executor = await stack.enter_async_context(LocalExecutor(self.engines))
            supervisor = _SharedSupervisor(await stack.enter_async_context(AsyncExitStack()))
            planner = Planner(
                self.settings,
                self.catalog,
                self.engines,
                self.store,
                self.state,
                self.environ,
                DELEGATION_TOOLS,
                self.worktrees,
            )
            socket = ControlSocket(self.environ)
            orchestrator = Orchestrator(
                planner,
                executor,
                self.store,
                EventBus(),
                self.redactor,
                socket.address,
                partial(_make_delegation, self.home),
                self.worktrees,
                supervisor.open,
            )
            server = ControlServer(socket, orchestrator, partial(_make_delegation, self.home, orchestrator))
            await stack.enter_async_context(server)
            stack.push_async_callback(orchestrator.close)
            yield orchestrator
