"""What there is to run and how: agents with their layers and trust, engines, settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import structs

from retinue.agents.definition import Agent, Layer
from retinue.agents.roster import Entry, Roster, Status
from retinue.app import Retinue
from retinue.engines.base import EngineKind
from retinue.frontends.http.installation import (
    AgentDetail,
    AgentRow,
    Agents,
    EngineRow,
    Engines,
    Place,
    Problem,
    SettingRow,
    SettingsOfSurface,
)
from retinue.settings import KEYS, SURFACES, Settings
from retinue.types import Code, Failure, refused

Trust = Literal["trusted", "untrusted", "changed", "not needed"]


class Catalog:
    """Answers what there is; accepts a project's agent when the user says so."""

    def __init__(self, retinue: Retinue) -> None:
        self._retinue = retinue

    def agents(self) -> Agents:
        """Every agent by its name: the definition that counts, and those beneath it."""
        roster = self._retinue.roster()
        return Agents(
            agents=tuple(self._row(roster, group) for group in _by_name(roster)),
            problems=tuple(Problem(file=remark.file, message=remark.text) for remark in roster.problems),
            cwd=self._retinue.cwd,
        )

    def agent(self, name: str) -> AgentDetail:
        """One agent, as others may see it.

        Raises:
            Refused: `unknown_agent`.
        """
        roster = self._retinue.roster()
        group = next((group for group in _by_name(roster) if group[0].agent.name == name), None)
        if group is None:
            known = ", ".join(roster.names()) or "(none)"
            raise refused(Code.UNKNOWN_AGENT, f"Unknown agent: {name[:100]}. Available agents: {known}")
        row, shown = self._row(roster, group), _first(group).agent.as_subagent()
        return AgentDetail(
            **structs.asdict(row),
            body=shown.body,
            fallback_models=shown.fallback_models,
            extensions=shown.extensions,
            extra_args=shown.extra_args,
            environment=shown.environment,
            digest=shown.digest,
        )

    def trust(self, name: str, seen: str | None = None) -> AgentRow:
        """Accepts a project's agent, as it was seen or, without a digest of that, as it is now written.

        Raises:
            Refused: there is nothing to accept, it is no longer what was seen, or it cannot be remembered.
        """
        agent = self._retinue.roster().needs_trust(name)
        if agent is None:
            self.agent(name)
            raise refused(Code.CONFLICT, f"{name} needs no acceptance: nothing was changed.")
        if seen not in {None, agent.digest}:
            raise refused(Code.CONFLICT, f"{name} has changed since you looked at it: not accepted. Look again.")
        try:
            self._retinue.trust.accept(agent)
        except OSError as error:
            raise refused(
                Code.STORAGE, f"{name} could not be accepted: {error.filename}: {error.strerror}."
            ) from error
        row = self.agent(name)
        return AgentRow(**{field: getattr(row, field) for field in AgentRow.__struct_fields__})

    def _row(self, roster: Roster, group: list[Entry]) -> AgentRow:
        entry = _first(group)
        agent = entry.agent
        tools, found = agent.as_subagent().tools, roster.find(agent.name)
        below = group[group.index(entry) + 1 :]
        return AgentRow(
            name=agent.name,
            description=agent.description,
            layer=agent.layer,
            file=agent.source,
            model=agent.model,
            engine=agent.engine,
            provider=agent.provider,
            tools=() if tools.nothing else tools.allow,
            denied_tools=tools.deny,
            readonly=tools.readonly,
            delegates=tools.delegates,
            trust=self._trust(entry),
            enabled=agent.enabled,
            skills=(*agent.load_skills, *agent.suggested_skills),
            timeout=agent.timeout,
            shadowed=tuple(Place(layer=each.agent.layer, file=each.agent.source) for each in below),
            problems=(*map(str, agent.notices), *(f"unknown key: {key}" for key in agent.unknown)),
            runnable=not isinstance(found, Failure),
            why=found.message if isinstance(found, Failure) else None,
        )

    def _trust(self, entry: Entry) -> Trust:
        agent = entry.agent
        if agent.layer is not Layer.PROJECT:
            return "not needed"
        if entry.accepted:
            return "trusted"
        if entry.status is not Status.UNTRUSTED:
            return "not needed"
        return "changed" if _was_accepted(self._retinue, agent) else "untrusted"

    # -- engines and settings ----------------------------------------------------------------------

    def engines(self) -> Engines:
        """The engines of this installation, in the order `auto` prefers them."""
        kinds = self._retinue.engines.values()
        rows = [_engine(kind) for kind in kinds]
        usable = (kind.name for kind in kinds if kind.automatic and kind.uses_models and not kind.passed_over())
        return Engines(engines=tuple(rows), auto=next(usable, None))

    def settings(self, surface: str) -> SettingsOfSurface:
        """The settings of a surface, each with where it comes from.

        Raises:
            Refused: `invalid_input`: there is no such surface.
        """
        if surface not in self._retinue.surfaces:
            known = ", ".join(self._retinue.surfaces)
            raise refused(Code.INVALID_INPUT, f"Unknown surface: {surface[:100]}. Surfaces: {known}")
        found = self._retinue.settings(surface)
        defaults = structs.replace(Settings(), **SURFACES[surface])
        rows = [
            SettingRow(
                name=name,
                value=getattr(found.settings, name),
                source=found.sources[name].source,
                default=getattr(defaults, name),
                note=KEYS[name].note if name in KEYS else "",
            )
            for name in Settings.__struct_fields__
        ]
        problems = tuple(Problem(file=each.source, message=each.message) for each in found.problems)
        return SettingsOfSurface(surface=surface, settings=tuple(rows), problems=problems)


def _by_name(roster: Roster) -> Iterable[list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in roster.listing():
        groups.setdefault(entry.agent.name, []).append(entry)
    return groups.values()


def _first(group: list[Entry]) -> Entry:
    """The definition to show of those of one name: the one that waits to be accepted, else the one that is used."""
    waiting = next((entry for entry in group if entry.status is Status.UNTRUSTED), None)
    return waiting or next((entry for entry in group if entry.status is Status.USED), group[0])


def _was_accepted(retinue: Retinue, agent: Agent) -> bool:
    """Whether another content of the same file was."""
    return (agent.source or "") in retinue.trust.accepted()


def _engine(kind: EngineKind) -> EngineRow:
    missing = kind.missing()
    return EngineRow(
        name=kind.name,
        about=kind.about,
        available=missing is None,
        why=missing or kind.unready(),
        automatic=kind.automatic,
        steers=kind.capabilities.steers,
        resumes=kind.capabilities.resumes,
        nests=kind.capabilities.nests,
    )
