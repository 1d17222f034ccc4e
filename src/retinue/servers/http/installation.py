"""Agents with their layers and trust, engines, settings and the server itself, as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import structs

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.registry import AgentListing, AgentSet, DefinitionStatus
from retinue.client import Retinue
from retinue.composition import TOOLSETS
from retinue.config.settings import SETTING_RULES, Settings
from retinue.engines.base import EngineInfo
from retinue.model.errors import ErrorCode, Failure, refuse
from retinue.servers.http.inputs import ToolsetQuery, TrustBody
from retinue.servers.http.schemas import ApiValue, copy_fields

TrustState = Literal["trusted", "untrusted", "changed", "not needed"]


class AgentLocation(ApiValue, frozen=True, kw_only=True):
    layer: str
    file: str | None


class AgentRow(ApiValue, frozen=True, kw_only=True):
    """An agent as others may see it: no persona, no memory, no key."""

    name: str
    description: str
    layer: str
    file: str | None
    model: str | None
    engine: str | None
    provider: str | None
    tools: tuple[str, ...] | None
    """Null: the tools of the caller."""
    denied_tools: tuple[str, ...]
    readonly: bool
    delegates: bool
    trust: TrustState
    enabled: bool
    skills: tuple[str, ...]
    timeout: float | None
    shadowed: tuple[AgentLocation, ...]
    """Weaker definitions of the same name."""
    problems: tuple[str, ...]
    runnable: bool
    why: str | None
    """Why it is not runnable."""


class AgentDetail(AgentRow, frozen=True, kw_only=True):
    body: str
    fallback_models: tuple[str, ...]
    extensions: tuple[str, ...]
    extra_args: tuple[str, ...]
    environment: tuple[str, ...]
    """Names of the environment variables it needs."""
    hooks: tuple[str, ...]
    """Its hooks, with their whole commands."""
    servers: tuple[str, ...]
    """Its MCP servers: how each is started, and why one cannot be."""
    digest: str


class FileProblem(ApiValue, frozen=True, kw_only=True):
    file: str
    message: str


class AgentList(ApiValue, frozen=True, kw_only=True):
    agents: tuple[AgentRow, ...]
    problems: tuple[FileProblem, ...]
    cwd: str


class EngineRow(ApiValue, frozen=True, kw_only=True):
    name: str
    about: str
    available: bool
    """Whether it can be used as it is configured."""
    why: str | None
    """Why it is not available; null if it is."""
    automatic: bool
    steers: bool
    resumes: bool
    nests: bool


class EngineList(ApiValue, frozen=True, kw_only=True):
    engines: tuple[EngineRow, ...]
    auto: str | None
    """The engine that `auto` selects; null if none can be used."""


class SettingRow(ApiValue, frozen=True, kw_only=True):
    name: str
    value: Any
    source: str
    default: Any
    note: str


class ToolsetSettings(ApiValue, frozen=True, kw_only=True):
    surface: str
    settings: tuple[SettingRow, ...]
    problems: tuple[FileProblem, ...]


# -- the server itself -----------------------------------------------------------------------------


class StreamCursor(ApiValue, frozen=True, kw_only=True):
    cursor: str


class HealthStatus(ApiValue, frozen=True, kw_only=True):
    status: Literal["ok"]
    version: str
    pid: int
    started: float
    state: str
    """The state folder."""
    cwd: str
    live: int
    watchers: int
    stream: StreamCursor


class LoginResponse(ApiValue, frozen=True, kw_only=True):
    ok: Literal[True] = True


class LoginLink(ApiValue, frozen=True, kw_only=True):
    link: str
    """Opens the dashboard once."""


class InstallationInfo:
    """The agents, engines and settings of an installation."""

    def __init__(self, retinue: Retinue) -> None:
        self._retinue = retinue

    def list_agents(self) -> AgentList:
        """Return every agent with the definition in use and those it shadows."""
        roster = self._retinue.roster()
        return AgentList(
            agents=tuple(self._agent_row(roster, group) for group in _group_by_name(roster)),
            problems=tuple(FileProblem(file=remark.file, message=remark.text) for remark in roster.problems),
            cwd=self._retinue.cwd,
        )

    def find_agent(self, name: str) -> AgentDetail:
        """Return one agent, without its private fields.

        Raises:
            RefusedError: `unknown_agent`.
        """
        roster = self._retinue.roster()
        group = next((group for group in _group_by_name(roster) if group[0].agent.name == name), None)
        if group is None:
            known = ", ".join(roster.names()) or "(none)"
            raise refuse(ErrorCode.UNKNOWN_AGENT, f"Unknown agent: {name[:100]}. Available agents: {known}")
        row, shown = self._agent_row(roster, group), _select_shown(group).agent
        servers = self._retinue.describe_servers(shown)
        hooks = tuple(f"{hook.event} {hook.description}" for hook in shown.hooks)
        return copy_fields(shown.to_profile(), AgentDetail, **structs.asdict(row), hooks=hooks, servers=servers)

    def trust_agent(self, name: str, body: TrustBody) -> AgentRow:
        """Trust a project's agent if it still has this digest; without a digest, trust it as it is now.

        Raises:
            RefusedError: the agent needs no trust, has changed, or the decision cannot be stored.
        """
        agent = self._retinue.roster().find_awaiting_trust(name)
        if agent is None:
            self.find_agent(name)
            raise refuse(ErrorCode.CONFLICT, f"{name} needs no approval; nothing was changed.")
        if body.digest not in {None, agent.digest}:
            raise refuse(
                ErrorCode.CONFLICT, f"{name} has changed since you reviewed it and was not approved. Review it again."
            )
        try:
            self._retinue.trust.accept(agent)
        except OSError as error:
            raise refuse(
                ErrorCode.STORAGE, f"{name} could not be approved: {error.filename}: {error.strerror}."
            ) from error
        return copy_fields(self.find_agent(name), AgentRow)

    def _agent_row(self, roster: AgentSet, group: list[AgentListing]) -> AgentRow:
        entry = _select_shown(group)
        agent = entry.agent
        tools, found = agent.to_profile().tools, roster.find(agent.name)
        below = group[group.index(entry) + 1 :]
        return copy_fields(
            agent,
            AgentRow,
            file=agent.source,
            tools=tools.requested,
            denied_tools=tools.deny,
            readonly=tools.readonly,
            delegates=tools.delegates,
            trust=self._trust_state(entry),
            skills=(*agent.load_skills, *agent.suggested_skills),
            shadowed=tuple(AgentLocation(layer=each.agent.layer, file=each.agent.source) for each in below),
            problems=(*map(str, agent.notices), *(f"unknown key: {key}" for key in agent.unknown)),
            runnable=not isinstance(found, Failure),
            why=found.message if isinstance(found, Failure) else None,
        )

    def _trust_state(self, entry: AgentListing) -> TrustState:
        agent = entry.agent
        if agent.layer is not SourceLayer.PROJECT:
            return "not needed"
        if entry.accepted:
            return "trusted"
        if entry.status is not DefinitionStatus.UNTRUSTED:
            return "not needed"
        return "changed" if _was_accepted(self._retinue, agent) else "untrusted"

    # -- engines and settings ----------------------------------------------------------------------

    def list_engines(self) -> EngineList:
        """Return the engines, in the order in which `auto` prefers them."""
        kinds = self._retinue.engines.values()
        model = self._retinue.settings("single").settings.model
        rows = [_engine_row(kind, model) for kind in kinds]
        chosen = self._retinue.automatic_engine()
        return EngineList(engines=tuple(rows), auto=chosen.name if chosen and chosen.uses_models else None)

    def show_settings(self, query: ToolsetQuery) -> ToolsetSettings:
        """Return the settings of a toolset, each with its source.

        Raises:
            RefusedError: `invalid_input`: there is no such toolset.
        """
        surface = query.surface
        if surface not in self._retinue.toolsets:
            known = ", ".join(self._retinue.toolsets)
            raise refuse(ErrorCode.INVALID_INPUT, f"Unknown toolset: {surface[:100]}. Toolsets: {known}")
        found = self._retinue.settings(surface)
        defaults = structs.replace(Settings(), **TOOLSETS[surface].defaults)
        rows = [
            SettingRow(
                name=name,
                value=getattr(found.settings, name),
                source=found.sources[name].source,
                default=getattr(defaults, name),
                note=SETTING_RULES[name].note if name in SETTING_RULES else "",
            )
            for name in Settings.__struct_fields__
        ]
        problems = tuple(FileProblem(file=each.source, message=each.message) for each in found.problems)
        return ToolsetSettings(surface=surface, settings=tuple(rows), problems=problems)


def _group_by_name(roster: AgentSet) -> Iterable[list[AgentListing]]:
    groups: dict[str, list[AgentListing]] = {}
    for entry in roster.list_definitions():
        groups.setdefault(entry.agent.name, []).append(entry)
    return groups.values()


def _select_shown(group: list[AgentListing]) -> AgentListing:
    """Return which definition of an agent to show: the one that awaits trust, else the one in use."""
    waiting = next((entry for entry in group if entry.status is DefinitionStatus.UNTRUSTED), None)
    return waiting or next((entry for entry in group if entry.status is DefinitionStatus.USED), group[0])


def _was_accepted(retinue: Retinue, agent: Agent) -> bool:
    """Return whether an earlier content of the agent's file was trusted."""
    return (agent.source or "") in retinue.trust.accepted_digests()


def _engine_row(kind: EngineInfo, model: str | None) -> EngineRow:
    """Return the engine; `model` is the user's setting."""
    why = kind.unavailable_reason()
    return EngineRow(
        name=kind.name,
        about=kind.summary_for(model),
        available=why is None,
        why=why,
        automatic=kind.automatic,
        steers=kind.capabilities.steers,
        resumes=kind.capabilities.resumes,
        nests=kind.capabilities.delegates,
    )
