"""Find the agents around a working directory: read what has changed, resolve names and layers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path, PurePath
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.agent import Agent, Diagnostic, SourceLayer
from retinue.agents.dialects import read_agent
from retinue.agents.name_index import MAX_UNKNOWN_FILES, FileNames, NameIndex, index_key, select_files
from retinue.agents.search_paths import AgentFolder, ChangeStamp, FolderContents, SearchPaths, scan_folder
from retinue.agents.trust import TrustStore, is_read_only, names_files
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure
from retinue.support.cache import MAX_CACHED, IdentityCache, LastEqual

ProjectAgents = Literal["ask", "allow", "deny"]
"""Whether a project's own agents run: if accepted or harmless, always, or never."""

PROJECT_NOTICE = "the agent belongs to this project"

BUILTIN_ORDER = ("explorer", "researcher", "reviewer", "implementer", "tester")

_MAX_NAMES_SHOWN = 100
"""Agents, and characters of a name, in a message: a model's mistake must not flood its context."""

_LAYER_RANKS = {layer: rank for rank, layer in enumerate(SourceLayer)}


class DefinitionStatus(StrEnum):
    """The effect of a definition when its name is called."""

    USED = "used"
    SHADOWED = "shadowed"
    """A stronger definition of the same name is used."""
    UNTRUSTED = "untrusted"
    """It is not accepted; a weaker definition of the same name is used, if there is one."""
    DISABLED = "disabled"
    """It is switched off by its own file, or because all project agents are."""


class AgentListing(Struct, frozen=True, kw_only=True):
    """One definition in a list of all of them."""

    agent: Agent
    status: DefinitionStatus
    accepted: bool = False
    """Whether the user accepted this content."""
    shadowed_by: str | None = None
    """The file, or layer, of the definition that is used instead."""
    shadows: tuple[str, ...] = ()
    """The files, or layers, of the definitions it is used instead of."""
    aliases: tuple[str, ...] = ()
    """The shorter names that call it."""


class AgentSet:
    """The agents of a working directory at one moment."""

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        diagnostics: tuple[Diagnostic, ...] = (),
        accepted: Mapping[str, str],
        project_agents: ProjectAgents = "ask",
    ) -> None:
        """Resolve all definitions, given the strongest first."""
        self.problems = diagnostics
        """Broken files; they shadow no other definition."""
        self._accepted = accepted
        self._project_agents = project_agents
        self._by_name: dict[str, list[Agent]] = {}
        for agent in agents:
            self._by_name.setdefault(agent.name, []).append(agent)
        for alias, agent in _list_aliases(self._by_name):
            self._by_name.setdefault(alias, []).append(agent)
        self._used = {
            name: used for name, found in self._by_name.items() if (used := self._first_allowed(found)) is not None
        }

    def find(self, name: str) -> Agent | Failure:
        """Return the agent with exactly this name, or why there is none; a similar name never matches."""
        definitions = self._by_name.get(name)
        if not definitions:
            return self._unknown_agent_failure(name)
        used = self._used.get(name)
        if used is None:
            first = self.find_awaiting_trust(name) or definitions[0]
            return (
                self._untrusted_failure(first)
                if first.enabled or self._project_agents == "deny"
                else _disabled_failure(first)
            )
        if not used.enabled:
            return _disabled_failure(used)
        passed_over = definitions[: definitions.index(used)]
        notices = (
            *([Diagnostic(_describe_location(used), PROJECT_NOTICE)] if used.layer is SourceLayer.PROJECT else ()),
            *(Diagnostic(_describe_location(other), self._explain_passed_over(used)) for other in passed_over),
            *(
                replace(bad, text=f"{bad.text}; the {used.layer} {name} is used")
                for bad in self._find_broken_files(name)
            ),
        )
        return replace(used, notices=(*used.notices, *notices)) if notices else used

    def resolve_name(self, name: str) -> str:
        """Return the own name of the agent that is called by a name, which may be short for an agent of a plugin."""
        used = self._used.get(name)
        return used.name if used else name

    def defines(self, name: str) -> bool:
        """Return whether there is a definition of this name, usable or not."""
        return name in self._by_name

    def find_profile(self, name: str) -> AgentProfile | Failure:
        """Return the part of an agent that another agent may see: never its persona, memory or key."""
        found = self.find(name)
        return found if isinstance(found, Failure) else found.to_profile()

    def names(self) -> tuple[str, ...]:
        """Return the agents that can be called: built-in agents in their order, then layer by layer by name."""
        found = (agent for name, agent in self._used.items() if agent.enabled and agent.name == name)
        return tuple(agent.name for agent in sorted(found, key=_sort_key))

    def suggest_name(self, name: str) -> str | None:
        """Return the callable agent with the most similar name, for a front end to suggest."""
        from difflib import get_close_matches

        names = {known.lower(): known for known in reversed(self.names())}
        matches = get_close_matches(name.lower(), names, n=1)
        return names[matches[0]] if matches else None

    def list_definitions(self) -> tuple[AgentListing, ...]:
        """Return every definition with its status, those of one name together, the strongest first."""
        own = ([agent for agent in group if agent.name == name] for name, group in self._by_name.items())
        groups = sorted(filter(None, own), key=lambda group: _sort_key(self._used.get(group[0].name, group[0])))
        return tuple(self._make_listing(agent, group) for group in groups for agent in group)

    def find_awaiting_trust(self, name: str) -> Agent | None:
        """Return the project's definition of this name that would run if accepted; None if there is none."""
        if self._project_agents != "ask":
            return None
        first = next((agent for agent in self._by_name.get(name, ()) if self._is_candidate(agent)), None)
        return first if first and not self._is_allowed(first) else None

    def is_accepted(self, agent: Agent) -> bool:
        """Return whether the user accepted it, or does not have to: else it runs in the strictest sandbox only."""
        if agent.layer is not SourceLayer.PROJECT or self._project_agents == "allow":
            return True
        return self._is_accepted(agent)

    def explain_distrust(self, agent: Agent, why: str) -> Failure:
        """Return the failure of an agent that would run in a sandbox, and why the sandbox cannot be built."""
        failure = self._untrusted_failure(agent)
        return replace(failure, message=f"{failure.message} Until then it runs in the sandbox only. {why}")

    def _explain_passed_over(self, used: Agent) -> str:
        instead = f"the {used.layer} {used.name} is used"
        if self._project_agents == "deny":
            return f'is ignored, because project_agents is "deny"; {instead}'
        return f"is not approved, so {instead}; approve it with `retinue agents trust {used.name}`"

    def _is_candidate(self, agent: Agent) -> bool:
        """Return whether it is used, or would be if it were accepted."""
        return agent.enabled or self._is_allowed(agent)

    def _first_allowed(self, definitions: list[Agent]) -> Agent | None:
        return next((agent for agent in definitions if self._is_allowed(agent)), None)

    def _is_allowed(self, agent: Agent) -> bool:
        """Return whether it may run; if not, it must not shadow another either."""
        if agent.layer is not SourceLayer.PROJECT or self._project_agents == "allow":
            return True
        return self._project_agents == "ask" and (self._is_accepted(agent) or self._may_run_unaccepted(agent))

    def _may_run_unaccepted(self, agent: Agent) -> bool:
        """Return whether it may run in the strictest sandbox; then it must not take the place of a user's agent."""
        replaced = (other for other in self._by_name[agent.name] if other.layer is not SourceLayer.PROJECT)
        # A disabled definition shadows another one, so it must be accepted, too.
        return agent.enabled and is_read_only(agent) and not any(replaced)

    def _is_accepted(self, agent: Agent) -> bool:
        return bool(agent.digest) and self._accepted.get(agent.source or "") == agent.digest

    def _make_listing(self, agent: Agent, group: list[Agent]) -> AgentListing:
        used = self._used.get(agent.name)
        status = self._determine_status(agent, used)
        weaker = group[group.index(agent) + 1 :]
        return AgentListing(
            agent=agent,
            status=status,
            accepted=self._is_accepted(agent),
            shadowed_by=_describe_location(used) if used and used is not agent else None,
            shadows=tuple(_describe_location(other) for other in weaker) if used is agent else (),
            aliases=tuple(alias for alias in agent.aliases() if self._used.get(alias) is agent),
        )

    def _determine_status(self, agent: Agent, used: Agent | None) -> DefinitionStatus:
        if not self._is_allowed(agent):
            return DefinitionStatus.DISABLED if self._project_agents == "deny" else DefinitionStatus.UNTRUSTED
        if used is not agent:
            return DefinitionStatus.SHADOWED
        return DefinitionStatus.USED if agent.enabled else DefinitionStatus.DISABLED

    def _unknown_agent_failure(self, name: str) -> Failure:
        names = self.names()
        known = ", ".join(names[:_MAX_NAMES_SHOWN]) or "(none)"
        if len(names) > _MAX_NAMES_SHOWN:
            known += f", and {len(names) - _MAX_NAMES_SHOWN} more"
        broken = next(map(str, self._find_broken_files(name)), None)
        return Failure(
            ErrorCode.UNKNOWN_AGENT,
            f"Unknown agent: {_printable_name(name)}. Available agents: {known}",
            detail={"agent": _printable_name(name), "broken": broken} if broken else {"agent": _printable_name(name)},
        )

    def _find_broken_files(self, name: str) -> Iterator[Diagnostic]:
        """Return the diagnostics of files that seem to define this agent."""
        return (diagnostic for diagnostic in self.problems if _is_file_of(diagnostic.file, name))

    def _untrusted_failure(self, agent: Agent) -> Failure:
        detail = {"agent": agent.name, "file": agent.source or ""}
        if self._project_agents == "deny":
            message = (
                f'Agent "{agent.name}" belongs to this project ({agent.source}), and project_agents is "deny". '
                'Nothing was started. Set project_agents to "ask" or "allow" to use it.'
            )
            return Failure(ErrorCode.AGENT_DISABLED, message, "project_agents", detail)
        message = (
            f'Agent "{agent.name}" belongs to this project ({agent.source}) and has not been approved, or has '
            "changed "
            "since you approved it. Nothing was started. Review and approve it with"
            f" `retinue agents trust {agent.name}`, "
            f'or set project_agents = "allow".'
        )
        return Failure(ErrorCode.AGENT_UNTRUSTED, message, detail=detail)


def _list_aliases(by_name: Mapping[str, Sequence[Agent]]) -> list[tuple[str, Agent]]:
    """Return short names and titles that only one agent has; a project's agents take none from the user's."""
    claims: dict[str, list[Agent]] = {}
    for group in by_name.values():
        for alias in group[0].aliases():
            claims.setdefault(alias, []).append(group[0])
    found: list[tuple[str, Agent]] = []
    for alias, agents in claims.items():
        own = [agent for agent in agents if agent.layer is not SourceLayer.PROJECT]
        if len(own or agents) == 1:
            found.append((alias, (own or agents)[0]))
    return found


def _disabled_failure(agent: Agent) -> Failure:
    message = (
        f'Agent "{agent.name}" is disabled in {_describe_location(agent)}. Nothing was started. '
        f"Remove `enabled: false` there, or call another agent."
    )
    return Failure(
        ErrorCode.AGENT_DISABLED, message, "switched_off", {"agent": agent.name, "file": agent.source or ""}
    )


def _sort_key(agent: Agent) -> tuple[int, int, str]:
    is_builtin = agent.layer is SourceLayer.BUILTIN and agent.name in BUILTIN_ORDER
    rank = BUILTIN_ORDER.index(agent.name) if is_builtin else len(BUILTIN_ORDER)
    return _LAYER_RANKS[agent.layer], rank, agent.name


def _describe_location(agent: Agent) -> str:
    return agent.source or agent.layer


def _printable_name(name: str) -> str:
    """Return the name unchanged if it is printable and short, else escaped and cut."""
    return name if name.isprintable() and len(name) <= _MAX_NAMES_SHOWN else f"{name[:_MAX_NAMES_SHOWN]!a}"


def _is_file_of(file: str, name: str) -> bool:
    """Return whether a broken file seems to define this agent, by its own name or its folder's."""
    path = PurePath(file)
    return name in {path.stem, path.parent.name}


_MTIME_RESOLUTION_NS = 100_000_000
"""Nanoseconds in which a second change may not change a file's stamp: file systems have coarse clocks."""


class _ParsedFile(NamedTuple):
    """The result of parsing one state of a file."""

    stamp: ChangeStamp
    is_settled: bool
    """Whether an equal stamp will mean equal content."""
    result: Agent | Diagnostic | None

    @property
    def is_certain(self) -> bool:
        return self.is_settled and not isinstance(self.result, Diagnostic)


class _ScannedFolder(Struct, frozen=True):
    """A folder as it was last read."""

    contents: FolderContents
    files: dict[str, _ParsedFile]
    is_settled: bool
    names_files: bool
    """Whether one of its agents may name files of the project."""

    def agents(self) -> list[Agent]:
        return [file.result for file in self.files.values() if isinstance(file.result, Agent)]

    def names(self) -> dict[str, FileNames]:
        """Return the names that call the agents of each file whose state is certain."""
        return {
            path: (file.stamp, _list_file_names(file.result)) for path, file in self.files.items() if file.is_certain
        }

    def diagnostics(self) -> list[Diagnostic]:
        broken = (file.result for file in self.files.values() if isinstance(file.result, Diagnostic))
        return [*self.contents.diagnostics, *broken]


def _scanned_folder(contents: FolderContents, files: dict[str, _ParsedFile]) -> _ScannedFolder:
    is_settled = all(file.is_settled for file in files.values())
    names = any(isinstance(file.result, Agent) and names_files(file.result) for file in files.values())
    return _ScannedFolder(contents, files, is_settled, names)


def _list_file_names(result: Agent | Diagnostic | None) -> tuple[str, ...]:
    return (result.name, *result.aliases()) if isinstance(result, Agent) else ()


class AgentRegistry:
    """All agents, for any working directory. An unchanged tree costs one stat of each file.

    Thread-safe: cached values are complete and replaced in one step.
    """

    def __init__(
        self,
        folders: SearchPaths,
        trust: TrustStore,
        *,
        program: Iterable[Agent] = (),
        names: NameIndex | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._folders = folders
        self._trust = trust
        self._names = names
        self._program = tuple(program)
        self._clock = clock
        self._scanned: dict[AgentFolder, _ScannedFolder] = {}
        self._agent_sets = IdentityCache[tuple[object, ...], AgentSet]()
        self._covered = LastEqual[Path, tuple[Agent | Diagnostic, ...]]()

    def for_directory(
        self, cwd: Path, *, project_agents: ProjectAgents = "ask", vault: Path | None = None
    ) -> AgentSet:
        """Return the agents of a working directory as their files are now; later changes do not affect it."""
        folders = self._folders.for_directory(cwd, vault=vault)
        is_first = any(folder not in self._scanned for folder in folders)
        scanned = [self._scan_folder(folder) for folder in folders]
        if self._names and is_first:
            self._names.write({index_key(each): found.names() for each, found in zip(folders, scanned, strict=True)})
        accepted, trust_problem = self._trust.snapshot()
        covered = self._cover_named_files(scanned, cwd)
        make = partial(self._build_agent_set, scanned, covered, accepted, trust_problem, project_agents)
        parts = (*scanned, covered, accepted, trust_problem)
        return self._agent_sets.get_or_make((cwd, project_agents, vault), parts, make)

    def for_names(
        self,
        cwd: Path,
        names: Collection[str],
        *,
        related: Collection[str] = (),
        project_agents: ProjectAgents = "ask",
    ) -> AgentSet:
        """Return the agents that these names call, and those that they replace, without reading the files of others.

        These are all agents if the tree is small or has not been read before, or if one of the names is unknown; the
        related ones may be.
        """
        folders = self._folders.for_directory(cwd)
        known = self._names.read() if self._names and not all(map(self._scanned.__contains__, folders)) else {}
        wanted: set[str] = {*names, *related}
        while known and (scanned := self._scan_named_files(folders, known, wanted)):
            accepted, problem = self._trust.snapshot()
            covered = self._cover_named_files(scanned, cwd)
            found = self._build_agent_set(scanned, covered, accepted, problem, project_agents)
            if not all(map(found.defines, names)):
                break
            own = {found.resolve_name(name) for name in wanted}
            if own <= wanted:
                return found
            wanted |= own  # what is called by a short name may have stronger definitions without it
        return self.for_directory(cwd, project_agents=project_agents)

    def _scan_named_files(
        self, folders: Sequence[AgentFolder], known: Mapping[str, Mapping[str, FileNames]], names: Collection[str]
    ) -> list[_ScannedFolder] | None:
        """Return the folders with the files that may define these names; None if too many are not known."""
        scanned: list[_ScannedFolder] = []
        unknown = 0
        for folder in folders:
            if folder.is_fixed:
                scanned.append(self._scan_folder(folder))
                continue
            now = scan_folder(folder)
            selected, count = select_files(now.files, known.get(index_key(folder), {}), names)
            unknown += count
            if unknown > MAX_UNKNOWN_FILES:
                return None
            files = {path: _ParsedFile((), False, read_agent(Path(path), folder.origin)) for path in selected}
            scanned.append(_scanned_folder(now, files))
        return scanned

    def _cover_named_files(self, scanned: Sequence[_ScannedFolder], cwd: Path) -> tuple[Agent | Diagnostic, ...]:
        """Return the agents of a project that name files of it, with the present digest of all these files."""
        naming = [agent for folder in scanned if folder.names_files for agent in folder.agents()]
        if not naming:
            return ()
        from retinue.agents.named_files import cover_agents

        return self._covered.get(cwd, cover_agents(naming, cwd, self._folders.environ))

    def _build_agent_set(
        self,
        scanned: Sequence[_ScannedFolder],
        covered: tuple[Agent | Diagnostic, ...],
        accepted: Mapping[str, str],
        trust_problem: Diagnostic | None,
        project_agents: ProjectAgents,
    ) -> AgentSet:
        found = [diagnostic for folder in scanned for diagnostic in folder.diagnostics()]
        found += [each for each in covered if isinstance(each, Diagnostic)]
        by_file = {each.source if isinstance(each, Agent) else each.file: each for each in covered}
        agents = [by_file.get(agent.source, agent) for folder in scanned for agent in folder.agents()]
        return AgentSet(
            (*self._program, *(agent for agent in agents if isinstance(agent, Agent))),
            # Each once: a looping link may be part of the path of several folders.
            diagnostics=tuple(dict.fromkeys((*found, trust_problem) if trust_problem else found)),
            accepted=accepted,
            project_agents=project_agents,
        )

    def _scan_folder(self, folder: AgentFolder) -> _ScannedFolder:
        cached = self._scanned.get(folder)
        if cached and folder.is_fixed:
            return cached
        now = scan_folder(folder)
        if cached and cached.is_settled and cached.contents == now:
            return cached
        earlier = cached.files if cached else {}
        settled = self._clock() - _MTIME_RESOLUTION_NS
        parsed: dict[str, _ParsedFile] = {}
        for path, stamp in now.files:
            before = earlier.get(path)
            if before is None or before.stamp != stamp or not before.is_settled:
                # Times are the largest numbers of a stamp. An empty stamp cannot be compared later.
                is_settled = max(stamp, default=math.inf) < settled
                before = _ParsedFile(stamp, is_settled, read_agent(Path(path), folder.origin))
            parsed[path] = before
        scanned = _scanned_folder(now, parsed)
        if len(self._scanned) >= MAX_CACHED:
            self._scanned.clear()
        self._scanned[folder] = scanned
        return scanned
