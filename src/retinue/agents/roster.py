"""Who can be called in one working directory: which definition of a name counts, and why others do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import PurePath
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.definition import Agent, Layer, Remark
from retinue.agents.trust import is_harmless
from retinue.types import Code, Failure, Subagent

ProjectAgents = Literal["ask", "allow", "deny"]
"""Whether a project's own agents run: once accepted or if harmless, always, or never."""

BUILTIN_ORDER = ("explorer", "researcher", "reviewer", "implementer", "tester")

_MENTIONED = 100
"""Agents, and characters of a name, in a message: a model must not be flooded by its own mistake."""

_LAYERS = {layer: rank for rank, layer in enumerate(Layer)}


class Status(StrEnum):
    """What becomes of a definition when its name is called."""

    USED = "used"
    SHADOWED = "shadowed"
    """A stronger definition of the same name is used."""
    UNTRUSTED = "untrusted"
    """It waits to be accepted; a weaker definition of the same name is used, if there is one."""
    DISABLED = "disabled"
    """It is switched off: by its own file, or because the project's agents are."""


class Entry(Struct, frozen=True, kw_only=True):
    """One definition in a list of all of them."""

    agent: Agent
    status: Status
    accepted: bool = False
    """Whether the user accepted exactly this content."""
    shadowed_by: str | None = None
    """The file, or layer, of the definition that is used instead."""
    shadows: tuple[str, ...] = ()
    """Those it is used instead of."""


class Roster:
    """The agents of one working directory at one moment."""

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        remarks: tuple[Remark, ...] = (),
        accepted: Mapping[str, str],
        project_agents: ProjectAgents = "ask",
    ) -> None:
        """Takes every definition, the strongest first."""
        self.problems = remarks
        """Files that are broken, and why; they hide nothing else."""
        self._accepted = accepted
        self._policy = project_agents
        self._by_name: dict[str, list[Agent]] = {}
        for agent in agents:
            self._by_name.setdefault(agent.name, []).append(agent)
        self._used = {
            name: used for name, found in self._by_name.items() if (used := self._first_allowed(found)) is not None
        }

    def find(self, name: str) -> Agent | Failure:
        """The agent to use for this exact name, or why there is none: a near miss never runs another agent."""
        definitions = self._by_name.get(name)
        if not definitions:
            return self._unknown(name)
        used = self._used.get(name)
        if used is None:
            first = self.needs_trust(name) or definitions[0]
            return self._refusal(first) if first.enabled or self._policy == "deny" else _switched_off(first)
        if not used.enabled:
            return _switched_off(used)
        passed_over = definitions[: definitions.index(used)]
        notices = (
            *(Remark(_place(other), f"{name} may not run from here and was passed over") for other in passed_over),
            *(replace(bad, text=f"{bad.text}; the {used.layer} {name} is used") for bad in self._broken(name)),
        )
        return replace(used, notices=(*used.notices, *notices)) if notices else used

    def show(self, name: str) -> Subagent | Failure:
        """What another agent may know of an agent: never its persona, memory or key."""
        found = self.find(name)
        return found if isinstance(found, Failure) else found.as_subagent()

    def usable(self) -> tuple[Subagent, ...]:
        """The agents that would run when called, in the order of `names`."""
        return tuple(self._used[name].as_subagent() for name in self.names())

    def names(self) -> tuple[str, ...]:
        """Who can be called: built-in agents in their order, then layer by layer, each by name."""
        found = (agent for agent in self._used.values() if agent.enabled)
        return tuple(agent.name for agent in sorted(found, key=_order))

    def suggest(self, name: str) -> str | None:
        """The callable agent whose name is most like this one, for a front end to ask about."""
        from difflib import get_close_matches

        names = {known.lower(): known for known in reversed(self.names())}
        matches = get_close_matches(name.lower(), names, n=1)
        return names[matches[0]] if matches else None

    def listing(self) -> tuple[Entry, ...]:
        """Every definition with what becomes of it, those of one name together, the strongest first."""
        groups = sorted(self._by_name.values(), key=lambda group: _order(self._used.get(group[0].name, group[0])))
        return tuple(self._entry(agent, group) for group in groups for agent in group)

    def needs_trust(self, name: str) -> Agent | None:
        """The project's definition of this name that would run if it were accepted; None if none waits."""
        if self._policy != "ask":
            return None
        first = next((agent for agent in self._by_name.get(name, ()) if self._counts(agent)), None)
        return first if first and not self._is_allowed(first) else None

    def _counts(self, agent: Agent) -> bool:
        """Whether it would be used if it were accepted, or is used already."""
        return agent.enabled or self._is_allowed(agent)

    def _first_allowed(self, definitions: list[Agent]) -> Agent | None:
        return next((agent for agent in definitions if self._is_allowed(agent)), None)

    def _is_allowed(self, agent: Agent) -> bool:
        """Whether the user would let it run; if not, it must not even hide another."""
        if agent.layer is not Layer.PROJECT or self._policy == "allow":
            return True
        # One that is off does harm by being off: unaccepted, it would hide another.
        return self._policy == "ask" and (self._is_accepted(agent) or (agent.enabled and is_harmless(agent)))

    def _is_accepted(self, agent: Agent) -> bool:
        return bool(agent.digest) and self._accepted.get(agent.source or "") == agent.digest

    def _entry(self, agent: Agent, group: list[Agent]) -> Entry:
        used = self._used.get(agent.name)
        status = self._status(agent, used)
        weaker = group[group.index(agent) + 1 :]
        return Entry(
            agent=agent,
            status=status,
            accepted=self._is_accepted(agent),
            shadowed_by=_place(used) if used and used is not agent else None,
            shadows=tuple(_place(other) for other in weaker) if used is agent else (),
        )

    def _status(self, agent: Agent, used: Agent | None) -> Status:
        if not self._is_allowed(agent):
            return Status.DISABLED if self._policy == "deny" else Status.UNTRUSTED
        if used is not agent:
            return Status.SHADOWED
        return Status.USED if agent.enabled else Status.DISABLED

    def _unknown(self, name: str) -> Failure:
        names = self.names()
        known = ", ".join(names[:_MENTIONED]) or "(none)"
        if len(names) > _MENTIONED:
            known += f", and {len(names) - _MENTIONED} more"
        broken = next(map(str, self._broken(name)), None)
        return Failure(
            Code.UNKNOWN_AGENT,
            f"Unknown agent: {_shown(name)}. Available agents: {known}",
            detail={"agent": _shown(name), "broken": broken} if broken else {"agent": _shown(name)},
        )

    def _broken(self, name: str) -> Iterator[Remark]:
        """What is wrong with files that look as if they were this agent's."""
        return (remark for remark in self.problems if _is_of(remark.file, name))

    def _refusal(self, agent: Agent) -> Failure:
        detail = {"agent": agent.name, "file": agent.source or ""}
        if self._policy == "deny":
            message = (
                f'Agent "{agent.name}" is the project\'s own ({agent.source}) and project_agents is "deny". '
                f'Nothing was started. Set project_agents to "ask" or "allow" to use it.'
            )
            return Failure(Code.AGENT_DISABLED, message, "project_agents", detail)
        message = (
            f'Agent "{agent.name}" is the project\'s own ({agent.source}) and not trusted as it is now written. '
            f"Nothing was started. Look at it and accept it with `retinue agents trust {agent.name}`, "
            f'or set project_agents = "allow".'
        )
        return Failure(Code.AGENT_UNTRUSTED, message, detail=detail)


def _switched_off(agent: Agent) -> Failure:
    message = (
        f'Agent "{agent.name}" is switched off in {_place(agent)}. Nothing was started. '
        f"Remove `enabled: false` there, or call another agent."
    )
    return Failure(Code.AGENT_DISABLED, message, "switched_off", {"agent": agent.name, "file": agent.source or ""})


def _order(agent: Agent) -> tuple[int, int, str]:
    is_builtin = agent.layer is Layer.BUILTIN and agent.name in BUILTIN_ORDER
    rank = BUILTIN_ORDER.index(agent.name) if is_builtin else len(BUILTIN_ORDER)
    return _LAYERS[agent.layer], rank, agent.name


def _place(agent: Agent) -> str:
    return agent.source or agent.layer


def _shown(name: str) -> str:
    """A name as it was given, unless it is none: then without what could move a cursor."""
    return name if name.isprintable() and len(name) <= _MENTIONED else f"{name[:_MENTIONED]!a}"


def _is_of(file: str, name: str) -> bool:
    """Whether a broken file looks as if it were this agent's: by its own name or its folder's."""
    path = PurePath(file)
    return name in {path.stem, path.parent.name}
