"""A plan made ready: everything that can be refused is refused here, before anything starts.

Whole-call problems raise `Refused`; one task's become the failure it will end with, so that its siblings go on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.registry import AgentRegistry, AgentSet
from retinue.agents.skills import SkillRegistry
from retinue.agents.sqlite_index import AgentIndex
from retinue.agents.tool_policy import (
    child_tool_ceiling,
    compute_grant,
    find_unenforceable,
    find_unsupported_preferences,
)
from retinue.config.directories import engine_session_file
from retinue.config.run_environment import depth_variables
from retinue.config.settings import SETTING_RULES, Settings
from retinue.config.settings_files import SettingsFiles
from retinue.engines.base import EngineInfo
from retinue.engines.child_environment import build_child_environment
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.runs import Limits, RunSpec
from retinue.model.tasks import AncestorTask, CallContext, FileSlice, Lineage, Mode, Plan, Task
from retinue.prompts.compose import render_system_prompt
from retinue.prompts.files import read_file_blocks
from retinue.runtime.delegation import DelegationTools, child_context
from retinue.runtime.validation import (
    busy_session,
    find_self_delegation,
    session_not_found_error,
    validate_agents,
    validate_can_finalize,
    validate_can_resume,
    validate_cwd,
    validate_session_scope,
    validate_sessions,
    validate_tasks,
)
from retinue.sessions.messages import load_messages
from retinue.sessions.store import SessionStore, SessionSummary
from retinue.transcripts.fanout import render_resume_context


async def resume_spec(
    spec: RunSpec, kind: EngineInfo, previous: SessionSummary | None, store: SessionStore
) -> RunSpec:
    """The spec with what it goes on from.

    Raises:
        Refused: `storage`.
    """
    spec = structs.replace(spec, history=await load_messages(store, spec.session))
    if not kind.capabilities.resumes_natively:
        return spec
    # What another engine did since is not in this one's file; a run that never started has no engine.
    is_current = previous is not None and previous.engine in {kind.name, ""}
    return _with_engine_session(spec) if is_current else _without_engine_session(spec)


def can_resume_natively(spec: RunSpec, previous: SessionSummary | None) -> bool:
    """Whether the engine finds in its own session what the run needs: the same work, cleanly ended."""
    if previous is None or previous.latest.failure is not None:
        return False
    is_same_directory = os.path.realpath(previous.cwd) == os.path.realpath(spec.cwd)
    return is_same_directory and (previous.engine, previous.agent) == (spec.engine, spec.agent.name)


def _with_engine_session(spec: RunSpec) -> RunSpec:
    """The spec with the engine's own session to continue, if it is still there."""
    file = engine_session_file(Path(spec.native_folder), spec.agent.name, spec.session)
    exists = os.path.isfile(file)  # noqa: PTH113 - Path.is_file raises where nothing may be looked at
    return structs.replace(spec, native_session=str(file)) if exists else _without_engine_session(spec)


def _without_engine_session(spec: RunSpec) -> RunSpec:
    notice = f"The {spec.engine} engine has no own record of the latest run: it goes on from the stored messages."
    return structs.replace(spec, notices=(*spec.notices, notice))


ENGINE_MISSING = "engine_missing"


class AdmittedCall(Struct, frozen=True):
    """A call that may dispatch, with the settings that hold for it."""

    call: CallContext
    cwd: Path
    settings: Settings
    explicit_settings: frozenset[str]
    """Settings that came with the call itself: they win over what an agent says."""
    max_depth: int
    skills: SkillRegistry
    """Those there are, looked for once."""
    notices: tuple[str, ...] = ()
    """Settings that were ignored or changed."""


class PlannedRun(Struct, frozen=True):
    """A task ready to run, or the failure it will end with. Its ids are given when it begins."""

    spec: RunSpec
    failure: Failure | None = None
    files: tuple[FileSlice, ...] = ()
    roots: tuple[str, ...] | None = None
    """Where they may be; None: wherever this user may read."""
    resume_blocks: tuple[str, ...] = ()
    """Earlier runs of its session, told."""
    child_context: CallContext | None = None
    """As what its agent delegates in its turn; None: it may not."""
    asked_session: str = ""
    """The session it continues, as its caller wrote it."""
    is_recorded: bool = True
    """Whether it has a session: a task that fails before it starts has none where its caller wants none."""

    def read_blocks(self) -> list[str]:
        """What stands before the prompt. Files are read now: the step of a chain before may have written them."""
        return [*read_file_blocks(self.files, self.spec.cwd, roots=self.roots), *self.resume_blocks]


class Planner:
    """Knows the settings, the agents and the engines of a process."""

    def __init__(
        self,
        settings: SettingsFiles,
        catalog: AgentRegistry,
        engine_infos: Mapping[str, EngineInfo],
        store: SessionStore,
        state: Path,
        environ: Mapping[str, str],
        delegation_tools: DelegationTools,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._engine_infos = engine_infos
        self._store = store
        self._engine_session_dir = state / "native"
        self._index = AgentIndex(state / "agents.sqlite")
        self._environ = environ
        self._delegation_tools = delegation_tools
        self._environments: dict[tuple[object, ...], Mapping[str, str]] = {}
        """What children see, which is much the same for most: runs that see the same share it."""

    def authorize(self, call: CallContext) -> AdmittedCall:
        """What holds for a call that may dispatch at all.

        Raises:
            Refused: `depth_exceeded` or `disabled`, in this order.
        """
        cwd = Path(call.cwd)
        found = self._settings.resolve(call.toolset, cwd, call.settings)
        settings, limits = found.settings, (found.settings.max_depth, call.max_depth)
        max_depth = min(limit for limit in limits if limit is not None)
        if call.lineage.depth >= max_depth:
            raise refuse(
                ErrorCode.DEPTH_EXCEEDED,
                f"Subagent depth exceeded ({call.lineage.depth}/{max_depth}). Nested subagents are not allowed.",
            )
        if not settings.enabled:
            raise refuse(ErrorCode.DISABLED, "Subagents are disabled in configuration")
        explicit_settings = frozenset(key for key, source in found.sources.items() if source.source == "call")
        notices = tuple(f"{problem.source}: {problem.message}" for problem in found.problems)
        return AdmittedCall(call, cwd, settings, explicit_settings, max_depth, SkillRegistry(self._environ), notices)

    def load_agents(self, call: CallContext) -> AgentSet:
        """Who can be called from where the call is made; with a vault, the index of agents says so, too."""
        cwd = Path(call.cwd)
        return self._load_agents(cwd, self._settings.resolve(call.toolset, cwd, call.settings).settings)

    def _load_agents(self, cwd: Path, settings: Settings) -> AgentSet:
        vault = Path(settings.vault) if settings.vault else None
        agent_set = self._catalog.for_directory(cwd, project_agents=settings.project_agents, vault=vault)
        if vault:
            self._index.reconcile(agent_set, self._engine_infos, settings.engine)
        return agent_set

    async def plan(self, plan: Plan, admitted: AdmittedCall) -> list[PlannedRun]:
        """The runs of a plan, in the order of its tasks.

        Raises:
            Refused: the whole call cannot be carried out.
        """
        validate_tasks(plan, admitted.settings)
        agent_set = self._load_agents(admitted.cwd, admitted.settings)
        found = [Agent(name="default") if task.agent is None else agent_set.find(task.agent) for task in plan.tasks]
        agents = [_agent_profile(one, task) for one, task in zip(found, plan.tasks, strict=True)]
        validate_agents(agents)
        sessions = [await self._find_session(task, admitted.call) for task in plan.tasks]
        validate_sessions(plan.tasks, sessions)
        planned = [
            await self._plan_task(*one, admitted) for one in zip(plan.tasks, found, agents, sessions, strict=True)
        ]
        if plan.mode is Mode.CHAIN:
            _validate_chain(planned)
        keeps = admitted.call.records_refusals
        return [
            structs.replace(
                one,
                child_context=self._child_context(one.spec, admitted),
                asked_session=task.session or "",
                # A missing engine is not wrong input: the run failed, and its session tells why.
                is_recorded=keeps or not one.failure or one.failure.reason == ENGINE_MISSING,
            )
            for one, task in zip(planned, plan.tasks, strict=True)
        ]

    def _child_context(self, spec: RunSpec, admitted: AdmittedCall) -> CallContext | None:
        max_depth = _max_child_depth(spec.agent, admitted)
        return child_context(admitted.call, spec, max_depth, self._delegation_tools.toolset)

    async def _find_session(self, task: Task, call: CallContext) -> SessionSummary | None:
        """The session a task continues."""
        if task.session is None:
            return None
        session = await self._store.find(task.session)
        summary = await self._store.summary(session) if session else None
        if session is None or summary is None:  # the second, where it was claimed and no run has begun
            raise session_not_found_error(task.session)
        if call.scoped_sessions:
            validate_session_scope(summary, task, task.cwd or call.cwd)
        if await self._store.is_locked(session):
            raise RefusedError(busy_session(task.session))
        return summary

    async def _plan_task(
        self,
        task: Task,
        found: Agent | Failure,
        agent: AgentProfile,
        previous_session: SessionSummary | None,
        admitted: AdmittedCall,
    ) -> PlannedRun:
        call, cwd = admitted.call, task.cwd or admitted.call.cwd
        spec = RunSpec(
            run="",
            session=previous_session.session if previous_session else "",
            name=task.name or agent.name or "subagent",
            toolset=call.toolset,
            agent=agent,
            task=task.prompt,
            prompt=task.prompt,
            cwd=cwd,
            engine="",
            limits=_resolve_limits(task, agent, admitted),
            lineage=_child_lineage(call, agent, task, cwd, previous_session),
            vault_path=admitted.settings.vault,
            finalize=call.finalize,
            resumes=previous_session is not None,
        )
        if isinstance(found, Failure):
            return PlannedRun(spec, found)
        kind = self._select_engine(agent, admitted, has_key=found.api_key is not None)
        failure = validate_cwd(cwd, call.roots) or find_self_delegation(call, agent, task, cwd)
        if isinstance(kind, Failure):
            return PlannedRun(spec, failure or kind)
        spec = structs.replace(
            spec,
            engine=kind.name,
            model=_choose_model(agent, admitted),
            allow_process_reuse=admitted.settings.warm_pool,
            setting_sources=kind.setting_sources.get(admitted.settings.claude_settings, ()),
            environment=self._build_environment(spec, kind, previous_session, admitted),
            native_folder=call.native_folder or f"{self._engine_session_dir}{os.sep}{kind.name}",
            secrets={kind.api_key_variable: found.api_key} if found.api_key else {},
            unsupported_preferences=_unsupported_preferences(agent, kind, _choose_model(agent, admitted)),
            notices=(*call.notices, *admitted.notices, *map(str, found.notices), *_vault_notices(admitted.settings)),
        )
        return (
            PlannedRun(spec, failure) if failure else await self._with_tools_and_prompts(spec, kind, task, admitted)
        )

    async def _with_tools_and_prompts(
        self, spec: RunSpec, kind: EngineInfo, task: Task, admitted: AdmittedCall
    ) -> PlannedRun:
        """The spec with its tools and its prompts."""
        call, may_write = admitted.call, admitted.settings.allow_write
        grant = compute_grant(
            spec.agent,
            engine=kind.name,
            capabilities=kind.capabilities,
            authority=call.authority,
            inherited=_inherited_tools(call, task, kind),
            allow_write=may_write,
            delegation_tools=self._delegation_tools.names
            if spec.lineage.depth < _max_child_depth(spec.agent, admitted)
            else (),
        )
        if isinstance(grant, Failure):
            return PlannedRun(spec, grant)
        failure = (
            find_unenforceable(spec.agent, engine=kind.name, capabilities=kind.capabilities, limits=spec.limits)
            or (validate_can_resume(kind) if spec.resumes and not call.resume_as_transcript else None)
            or (validate_can_finalize(kind) if spec.finalize else None)
        )
        skills = admitted.skills.render_for_agent(
            spec.agent, spec.cwd, grant=grant, project_agents=admitted.settings.project_agents
        )
        if isinstance(skills, Failure):
            return PlannedRun(spec, failure or skills)
        writes = may_write and not spec.agent.tools.readonly
        spec = structs.replace(
            spec,
            grant=grant,
            authority=child_tool_ceiling(spec.agent, grant),
            system_prompt=render_system_prompt(spec.agent, grant, bounded=call.bounded_prompt, may_write=writes),
            append_prompt="\n\n".join(filter(None, (spec.agent.append_system_prompt.strip(), skills))),
        )
        if failure:
            return PlannedRun(spec, failure)
        # A root caller names the files it may read itself; one below it stays within its own directory.
        roots = (call.cwd,) if call.lineage.depth else call.roots
        files = (*(FileSlice(path=path) for path in spec.agent.default_reads), *task.files)
        planned = PlannedRun(spec, files=files, roots=roots)
        if not spec.resumes:
            return planned
        previous_session = await self._store.summary(spec.session)
        is_native = (
            admitted.settings.resume == "native"
            and kind.capabilities.resumes
            and can_resume_natively(spec, previous_session)
        )
        if call.resume_as_transcript and not is_native:
            return structs.replace(
                planned, resume_blocks=(await render_resume_context(self._store.events(spec.session)),)
            )
        return structs.replace(planned, spec=await resume_spec(spec, kind, previous_session, self._store))

    def _build_environment(
        self, spec: RunSpec, kind: EngineInfo, before: SessionSummary | None, admitted: AdmittedCall
    ) -> Mapping[str, str]:
        """What a child sees, and what marks it as one, so that no path escapes the depth guard."""
        markers = depth_variables(spec.lineage.depth, _max_child_depth(spec.agent, admitted))
        # An engine continues its own session with the session's model.
        model = _choose_model(spec.agent, admitted) or (before.model if before else None)
        keys = kind.provider_variables((model, *spec.agent.fallback_models), spec.agent.provider)
        key = (kind.name, keys, spec.agent.environment, *markers.values())
        if key not in self._environments:
            needed = kind.capabilities.environment | keys
            visible = build_child_environment(self._environ, needed, spec.agent.environment)
            self._environments[key] = {**visible, **markers}
        return self._environments[key]

    def _select_engine(self, agent: AgentProfile, admitted: AdmittedCall, *, has_key: bool) -> EngineInfo | Failure:
        """The engine by the call's wish, else the agent's, else the setting."""
        settings = admitted.settings
        name = settings.engine if "engine" in admitted.explicit_settings else agent.engine or settings.engine
        if name == "auto":
            return self._select_automatic_engine(admitted.call)
        kind = self._engine_infos.get(name)
        if kind is None:
            known = ", ".join(["auto", *self._engine_infos])
            return Failure(ErrorCode.UNKNOWN_ENGINE, f'Unknown engine "{name}". Engines: {known}.')
        if missing := kind.not_installed_reason_for(has_key=has_key):
            return Failure(
                ErrorCode.SPAWN_FAILED, f"The {kind.name} engine cannot be used: {missing}", ENGINE_MISSING
            )
        return kind

    def _select_automatic_engine(self, call: CallContext) -> EngineInfo | Failure:
        for kind in self._engine_infos.values():
            if kind.automatic and kind.unavailable_reason() is None and (kind.uses_models or call.offline_may_answer):
                return kind
        return Failure(
            ErrorCode.SPAWN_FAILED,
            "No engine with a language model is configured here, and rules must not be taken for an agent. "
            "Run `retinue doctor` to see what is missing, or ask for the offline engine by name.",
            "no_engine",
        )


def _validate_chain(planned: list[PlannedRun]) -> None:
    """A chain needs every one of its agents.

    Raises:
        Refused: one of them cannot run.
    """
    for number, step in enumerate(planned, 1):
        if step.failure:
            message = f"Chain not started: step {number} ({step.spec.agent.name}) cannot run. {step.failure.message}"
            raise RefusedError(structs.replace(step.failure, message=message))


# -- parts of a spec -------------------------------------------------------------------------------


def _agent_profile(found: Agent | Failure, task: Task) -> AgentProfile:
    return found.to_profile() if isinstance(found, Agent) else AgentProfile(name=task.agent or "", layer="")


def _inherited_tools(call: CallContext, task: Task, kind: EngineInfo) -> Sequence[str] | None:
    """The tools of an agent that names none: the host's, or, where there is no agent, what the engine has itself."""
    if call.host_tools is None and task.agent is None:
        return kind.capabilities.default_tools
    return call.host_tools


def _child_lineage(
    call: CallContext, agent: AgentProfile, task: Task, cwd: str, previous_session: SessionSummary | None
) -> Lineage:
    """Where a run stands: below its caller, and no higher than the session that it continues."""
    lineage = call.lineage
    depth = max(lineage.depth + 1, previous_session.depth if previous_session else 0)
    return structs.replace(
        lineage, depth=depth, ancestors=(*lineage.ancestors, AncestorTask(agent.name, task.prompt, cwd))
    )


def _max_child_depth(agent: AgentProfile, admitted: AdmittedCall) -> int:
    """How deep a run's own children may stand; an agent may lower that for them."""
    own = agent.max_subagent_depth
    return admitted.max_depth if own is None else min(own, admitted.max_depth)


def _vault_notices(settings: Settings) -> tuple[str, ...]:
    if settings.vault is None or os.path.isdir(settings.vault):  # noqa: PTH112 - Path.is_dir raises for odd names
        return ()
    return (f"The vault {settings.vault} is not a folder: no agents are found there and no events written.",)


def _choose_model(agent: AgentProfile, admitted: AdmittedCall) -> str | None:
    declared = None if agent.model == "inherit" else agent.model
    settings = admitted.settings
    return settings.model if "model" in admitted.explicit_settings else declared or settings.model


def _unsupported_preferences(agent: AgentProfile, kind: EngineInfo, model: str | None) -> tuple[str, ...]:
    """The preferences that will not be followed: also a provider without a model of it, which no engine takes."""
    unknown = find_unsupported_preferences(agent, kind.capabilities)
    return ("provider", *unknown) if agent.provider and not model and "provider" not in unknown else unknown


def _resolve_limits(task: Task, agent: AgentProfile, admitted: AdmittedCall) -> Limits:
    """The settings' limits, with the task's or the agent's own where they say so."""
    settings, explicit_settings = admitted.settings, admitted.explicit_settings
    timeout, turns = agent.timeout or settings.timeout, agent.max_turns or settings.max_turns
    if agent.layer == SourceLayer.PROJECT:  # a project's files only ever lower limits
        timeout = min(timeout, settings.timeout)
        turns = min(turns, settings.max_turns or turns)
    if "timeout" in explicit_settings:
        timeout = settings.timeout
    if "max_turns" in explicit_settings:
        turns = settings.max_turns
    timeout = min(task.timeout or timeout, SETTING_RULES["timeout"].high)
    return structs.replace(settings, timeout=timeout, max_turns=turns).limits()
