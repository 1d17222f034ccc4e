"""A plan made ready: everything that can be refused is refused here, before anything starts.

Whole-call problems raise `Refused`; one task's become the failure it will end with, so that its siblings go on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs

from retinue import home
from retinue.agents.catalog import Catalog
from retinue.agents.definition import Agent, Layer
from retinue.agents.index import AgentIndex
from retinue.agents.policy import authority_below, effective, not_applied, unenforceable
from retinue.agents.roster import Roster
from retinue.agents.skills import Skills
from retinue.checks import (
    busy_session,
    cannot_finalize,
    cannot_resume,
    check_agents,
    check_scope,
    check_sessions,
    check_tasks,
    same_work,
    unknown_session,
    unusable_cwd,
)
from retinue.descent import depth_marks
from retinue.engines.base import EngineKind
from retinue.engines.environment import seen_by_child
from retinue.prompting.compose import system_prompt
from retinue.prompting.files import file_blocks
from retinue.resuming import is_same_work, resumed
from retinue.retelling import previously
from retinue.sessions.store import SessionStore, SessionSummary
from retinue.settings import KEYS, Settings
from retinue.settings_files import SettingsFiles
from retinue.types import (
    Ancestor,
    Call,
    Code,
    Failure,
    FileSlice,
    Limits,
    Lineage,
    Mode,
    Plan,
    Refused,
    RunSpec,
    Subagent,
    Task,
    refused,
)

BOUNDED_SURFACE = "single"
"""The surface whose seed tells every child what it is; others promise the agent's prompt as it stands."""

RETOLD_SURFACE = "fanout"
"""The surface whose seed continues a session by telling it, on every engine; others leave that to the engine."""

_LOADED = {"none": (), "user": ("user",), "project": ("project",), "both": ("user", "project")}
"""What the choices of `claude_settings` mean."""


class Admission(Struct, frozen=True):
    """A call that may dispatch, with the settings that hold for it."""

    call: Call
    cwd: Path
    settings: Settings
    given: frozenset[str]
    """Settings that came with the call itself: they win over what an agent says."""
    deepest: int
    skills: Skills
    """Those there are, looked for once."""
    notices: tuple[str, ...] = ()
    """Settings that were ignored or changed."""


class Planned(Struct, frozen=True):
    """A task ready to run, or the failure it will end with. Its ids are given when it begins."""

    spec: RunSpec
    failure: Failure | None = None
    files: tuple[FileSlice, ...] = ()
    roots: tuple[str, ...] | None = None
    """Where they may be; None: wherever this user may read."""
    earlier: tuple[str, ...] = ()
    """Earlier runs of its session, told."""
    below: Call | None = None
    """As what its agent delegates in its turn; None: it may not."""
    asked_session: str = ""
    """The session it continues, as its caller wrote it."""
    is_recorded: bool = True
    """Whether it has a session: a task that fails before it starts has none where its caller wants none."""

    def blocks(self) -> list[str]:
        """What stands before the prompt. Files are read now: the step of a chain before may have written them."""
        return [*file_blocks(self.files, self.spec.cwd, roots=self.roots), *self.earlier]


class Planner:
    """Knows the settings, the agents and the engines of a process."""

    def __init__(
        self,
        settings: SettingsFiles,
        catalog: Catalog,
        kinds: Mapping[str, EngineKind],
        store: SessionStore,
        state: Path,
        environ: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._kinds = kinds
        self._store = store
        self._native = state / "native"
        self._index = AgentIndex(state / "agents.sqlite")
        self._environ = environ
        self._environments: dict[tuple[object, ...], Mapping[str, str]] = {}
        """What children see, which is much the same for most: runs that see the same share it."""

    def admit(self, call: Call) -> Admission:
        """What holds for a call that may dispatch at all.

        Raises:
            Refused: `depth_exceeded` or `disabled`, in this order.
        """
        cwd = Path(call.cwd)
        found = self._settings.resolve(call.surface, cwd, call.settings)
        settings, limits = found.settings, (found.settings.max_depth, call.max_depth)
        deepest = min(limit for limit in limits if limit is not None)
        if call.lineage.depth >= deepest:
            raise refused(
                Code.DEPTH_EXCEEDED,
                f"Subagent depth exceeded ({call.lineage.depth}/{deepest}). Nested subagents are not allowed.",
            )
        if not settings.enabled:
            raise refused(Code.DISABLED, "Subagents are disabled in configuration")
        given = frozenset(key for key, source in found.sources.items() if source.source == "call")
        notices = tuple(f"{problem.source}: {problem.message}" for problem in found.problems)
        return Admission(call, cwd, settings, given, deepest, Skills(self._environ), notices)

    def roster(self, call: Call) -> Roster:
        """Who can be called from where the call is made; with a vault, the index of agents says so, too."""
        cwd = Path(call.cwd)
        return self._roster(cwd, self._settings.resolve(call.surface, cwd, call.settings).settings)

    def _roster(self, cwd: Path, settings: Settings) -> Roster:
        vault = Path(settings.vault) if settings.vault else None
        roster = self._catalog.at(cwd, project_agents=settings.project_agents, vault=vault)
        if vault:
            self._index.reconcile(roster, self._kinds, settings.engine)
        return roster

    async def plan(self, plan: Plan, admitted: Admission) -> list[Planned]:
        """The runs of a plan, in the order of its tasks.

        Raises:
            Refused: the whole call cannot be carried out.
        """
        check_tasks(plan, admitted.settings)
        roster = self._roster(admitted.cwd, admitted.settings)
        found = [Agent(name="default") if task.agent is None else roster.find(task.agent) for task in plan.tasks]
        agents = [_as_subagent(one, task) for one, task in zip(found, plan.tasks, strict=True)]
        check_agents(agents)
        sessions = [await self._session(task, admitted.call) for task in plan.tasks]
        check_sessions(plan.tasks, sessions)
        planned = [
            await self._planned(*one, admitted) for one in zip(plan.tasks, found, agents, sessions, strict=True)
        ]
        if plan.mode is Mode.CHAIN:
            _check_chain(planned)
        keeps = admitted.call.records_refusals
        return [
            structs.replace(
                one,
                below=_call_below(one.spec, admitted),
                asked_session=task.session or "",
                is_recorded=keeps or not one.failure,
            )
            for one, task in zip(planned, plan.tasks, strict=True)
        ]

    async def _session(self, task: Task, call: Call) -> SessionSummary | None:
        """The session a task continues."""
        if task.session is None:
            return None
        session = await self._store.find(task.session)
        summary = await self._store.summary(session) if session else None
        if session is None or summary is None:  # the second, where it was claimed and no run has begun
            raise unknown_session(task.session)
        if call.scoped_sessions:
            check_scope(summary, task, task.cwd or call.cwd)
        if await self._store.busy(session):
            raise Refused(busy_session(task.session))
        return summary

    async def _planned(
        self, task: Task, found: Agent | Failure, agent: Subagent, before: SessionSummary | None, admitted: Admission
    ) -> Planned:
        call, cwd = admitted.call, task.cwd or admitted.call.cwd
        spec = RunSpec(
            run="",
            session=before.session if before else "",
            name=task.name or agent.name or "subagent",
            surface=call.surface,
            agent=agent,
            task=task.prompt,
            prompt=task.prompt,
            cwd=cwd,
            engine="",
            limits=_limits(task, agent, admitted),
            lineage=_below(call, agent, task, cwd, before),
            vault=admitted.settings.vault,
            finalize=call.finalize,
            resumes=before is not None,
        )
        if isinstance(found, Failure):
            return Planned(spec, found)
        kind = self._kind(agent, admitted, has_key=found.api_key is not None)
        failure = unusable_cwd(cwd, call.roots) or same_work(call, agent, task, cwd)
        if isinstance(kind, Failure):
            return Planned(spec, failure or kind)
        spec = structs.replace(
            spec,
            engine=kind.name,
            model=_model(agent, admitted),
            warm=admitted.settings.warm_pool,
            loads=_LOADED[admitted.settings.claude_settings],
            environment=self._environment(spec, kind, before, admitted),
            native_folder=call.native_folder or f"{self._native}{os.sep}{kind.name}",
            secrets={"PI_API_KEY": found.api_key} if found.api_key else {},
            not_applied=_not_applied(agent, kind, _model(agent, admitted)),
            notices=(*call.notices, *admitted.notices, *map(str, found.notices), *_no_vault(admitted.settings)),
        )
        return Planned(spec, failure) if failure else await self._equipped(spec, kind, task, admitted)

    async def _equipped(self, spec: RunSpec, kind: EngineKind, task: Task, admitted: Admission) -> Planned:
        """The spec with its tools and its prompts."""
        call, may_write = admitted.call, admitted.settings.allow_write
        grant = effective(
            spec.agent,
            engine=kind.name,
            capabilities=kind.capabilities,
            authority=call.authority,
            inherited=_inherited(call, task, kind),
            allow_write=may_write,
            delegation_tools=home.TOOLS if spec.lineage.depth < _deepest_below(spec.agent, admitted) else (),
        )
        if isinstance(grant, Failure):
            return Planned(spec, grant)
        failure = (
            unenforceable(spec.agent, engine=kind.name, capabilities=kind.capabilities, limits=spec.limits)
            or (cannot_resume(kind) if spec.resumes and spec.surface != RETOLD_SURFACE else None)
            or (cannot_finalize(kind) if spec.finalize else None)
        )
        skills = admitted.skills.taught(
            spec.agent, spec.cwd, grant=grant, project_agents=admitted.settings.project_agents
        )
        if isinstance(skills, Failure):
            return Planned(spec, failure or skills)
        bounded = spec.surface == BOUNDED_SURFACE
        writes = may_write and not spec.agent.tools.readonly
        spec = structs.replace(
            spec,
            grant=grant,
            authority=authority_below(spec.agent, grant),
            system_prompt=system_prompt(spec.agent, grant, bounded=bounded, may_write=writes),
            append_prompt="\n\n".join(filter(None, (spec.agent.append_system_prompt.strip(), skills))),
        )
        if failure:
            return Planned(spec, failure)
        # A root caller names the files it may read itself; one below it stays within its own directory.
        roots = (call.cwd,) if call.lineage.depth else call.roots
        files = (*(FileSlice(path=path) for path in spec.agent.default_reads), *task.files)
        planned = Planned(spec, files=files, roots=roots)
        if not spec.resumes:
            return planned
        before = await self._store.summary(spec.session)
        is_native = admitted.settings.resume == "native" and kind.capabilities.resumes and is_same_work(spec, before)
        if spec.surface == RETOLD_SURFACE and not is_native:
            return structs.replace(planned, earlier=(await previously(self._store.events(spec.session)),))
        return structs.replace(planned, spec=await resumed(spec, kind, before, self._store))

    def _environment(
        self, spec: RunSpec, kind: EngineKind, before: SessionSummary | None, admitted: Admission
    ) -> Mapping[str, str]:
        """What a child sees, and what marks it as one, so that no path escapes the depth guard."""
        marks = depth_marks(spec.lineage.depth, _deepest_below(spec.agent, admitted))
        # An engine continues its own session with the session's model.
        model = _model(spec.agent, admitted) or (before.model if before else None)
        keys = kind.provider_variables((model, *spec.agent.fallback_models), spec.agent.provider)
        which = (kind.name, keys, spec.agent.environment, *marks.values())
        if which not in self._environments:
            needed = kind.capabilities.environment | keys
            seen = seen_by_child(self._environ, needed, spec.agent.environment)
            self._environments[which] = {**seen, **marks}
        return self._environments[which]

    def _kind(self, agent: Subagent, admitted: Admission, *, has_key: bool) -> EngineKind | Failure:
        """The engine by the call's wish, else the agent's, else the setting."""
        settings = admitted.settings
        name = settings.engine if "engine" in admitted.given else agent.engine or settings.engine
        if name == "auto":
            return self._automatic(admitted.call)
        kind = self._kinds.get(name)
        if kind is None:
            known = ", ".join(["auto", *self._kinds])
            return Failure(Code.UNKNOWN_ENGINE, f'Unknown engine "{name}". Engines: {known}.')
        if missing := kind.missing_for(has_key=has_key):
            return Failure(Code.SPAWN_FAILED, f"The {kind.name} engine cannot be used: {missing}", "engine_missing")
        return kind

    def _automatic(self, call: Call) -> EngineKind | Failure:
        for kind in self._kinds.values():
            if kind.automatic and kind.passed_over() is None and (kind.uses_models or call.offline_may_answer):
                return kind
        return Failure(
            Code.SPAWN_FAILED,
            "No engine with a language model is configured here, and rules must not be taken for an agent. "
            "Run `retinue doctor` to see what is missing, or ask for the offline engine by name.",
            "no_engine",
        )


def _check_chain(planned: list[Planned]) -> None:
    """A chain needs every one of its agents.

    Raises:
        Refused: one of them cannot run.
    """
    for number, step in enumerate(planned, 1):
        if step.failure:
            message = f"Chain not started: step {number} ({step.spec.agent.name}) cannot run. {step.failure.message}"
            raise Refused(structs.replace(step.failure, message=message))


# -- parts of a spec -------------------------------------------------------------------------------


def _as_subagent(found: Agent | Failure, task: Task) -> Subagent:
    return found.as_subagent() if isinstance(found, Agent) else Subagent(name=task.agent or "", layer="")


def _inherited(call: Call, task: Task, kind: EngineKind) -> Sequence[str] | None:
    """The tools of an agent that names none: the host's, or, where there is no agent, what the engine has itself."""
    if call.host_tools is None and task.agent is None:
        return kind.capabilities.usual_tools
    return call.host_tools


def _below(call: Call, agent: Subagent, task: Task, cwd: str, before: SessionSummary | None) -> Lineage:
    """Where a run stands: below its caller, and no higher than the session that it continues."""
    line = call.lineage
    depth = max(line.depth + 1, before.depth if before else 0)
    return structs.replace(line, depth=depth, ancestors=(*line.ancestors, Ancestor(agent.name, task.prompt, cwd)))


def _deepest_below(agent: Subagent, admitted: Admission) -> int:
    """How deep a run's own children may stand; an agent may lower that for them."""
    own = agent.max_subagent_depth
    return admitted.deepest if own is None else min(own, admitted.deepest)


def _call_below(spec: RunSpec, admitted: Admission) -> Call | None:
    return home.call_below(admitted.call, spec, _deepest_below(spec.agent, admitted))


def _no_vault(settings: Settings) -> tuple[str, ...]:
    if settings.vault is None or os.path.isdir(settings.vault):  # noqa: PTH112 - Path.is_dir raises for odd names
        return ()
    return (f"The vault {settings.vault} is not a folder: no agents are found there and no events written.",)


def _model(agent: Subagent, admitted: Admission) -> str | None:
    declared = None if agent.model == "inherit" else agent.model
    settings = admitted.settings
    return settings.model if "model" in admitted.given else declared or settings.model


def _not_applied(agent: Subagent, kind: EngineKind, model: str | None) -> tuple[str, ...]:
    """The preferences that will not be followed: also a provider without a model of it, which no engine takes."""
    unknown = not_applied(agent, kind.capabilities)
    return ("provider", *unknown) if agent.provider and not model and "provider" not in unknown else unknown


def _limits(task: Task, agent: Subagent, admitted: Admission) -> Limits:
    """The settings' limits, with the task's or the agent's own where they say so."""
    settings, given = admitted.settings, admitted.given
    timeout, turns = agent.timeout or settings.timeout, agent.max_turns or settings.max_turns
    if agent.layer == Layer.PROJECT:  # a project's files only ever lower limits
        timeout = min(timeout, settings.timeout)
        turns = min(turns, settings.max_turns or turns)
    if "timeout" in given:
        timeout = settings.timeout
    if "max_turns" in given:
        turns = settings.max_turns
    timeout = min(task.timeout or timeout, KEYS["timeout"].high)
    return structs.replace(settings, timeout=timeout, max_turns=turns).limits()
