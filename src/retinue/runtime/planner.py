"""Prepare a plan: everything that can be refused is refused here, before anything starts.

Problems of the whole call raise `RefusedError`; those of one task become the failure it ends with, so that its
siblings run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.registry import AgentRegistry, AgentSet
from retinue.agents.tool_policy import (
    GATE,
    can_write,
    child_tool_ceiling,
    compute_grant,
    find_unenforceable,
    find_unsupported_preferences,
    find_unusable_hook,
)
from retinue.config.directories import config_folder, engine_session_file, runtime_folder
from retinue.config.run_environment import build_child_environment, depth_variables
from retinue.config.settings import SETTING_RULES, Settings
from retinue.config.settings_files import SettingsFiles
from retinue.engines.base import EngineInfo, choose_automatic_engine
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.providers import join_model
from retinue.model.runs import Limits, Message, RunSpec, Secret, ToolFunction, ToolGrant
from retinue.model.sandbox import NO_SANDBOX, SandboxMechanism, SandboxMode, SandboxPolicy
from retinue.model.tasks import AncestorTask, CallContext, FileSlice, Lineage, Mode, Plan, Task
from retinue.prompts.compose import read_file_blocks, render_system_prompt
from retinue.runtime.delegation import DelegationTools, child_context
from retinue.runtime.file_changes import WRITING_TOOLS
from retinue.runtime.isolation import SandboxPlanner, WorkFolder, bind_to_folder, plan_work_folder
from retinue.runtime.model_choice import apply_choices, name_model_line
from retinue.runtime.validation import (
    busy_session,
    find_self_delegation,
    find_uncallable,
    find_unknown_restriction,
    parse_output_schema,
    session_not_found_error,
    validate_agents,
    validate_can_call_functions,
    validate_can_finalize,
    validate_can_resume,
    validate_can_structure,
    validate_cwd,
    validate_session_scope,
    validate_sessions,
    validate_tasks,
)
from retinue.sessions.store import SessionStore, SessionSummary
from retinue.worktrees.store import WorktreeStore

if TYPE_CHECKING:
    from retinue.agents.skills import SkillRegistry
    from retinue.agents.sqlite_index import AgentIndex
    from retinue.model.mcp import McpServer

ENGINE_MISSING = "engine_missing"


class AdmittedCall(Struct, frozen=True):
    """A call that may dispatch, with the settings that apply to it."""

    call: CallContext
    cwd: Path
    settings: Settings
    explicit_settings: frozenset[str]
    """Settings that came with the call itself: they win over those of an agent."""
    max_depth: int
    notices: tuple[str, ...] = ()
    """Settings that were ignored or changed."""


class PlannedRun(Struct, frozen=True):
    """A task ready to run, or the failure it will end with. It gets its ids when it begins."""

    spec: RunSpec
    failure: Failure | None = None
    files: tuple[FileSlice, ...] = ()
    roots: tuple[str, ...] | None = None
    """Folders the files must be in; None: anywhere this user may read."""
    resume_blocks: tuple[str, ...] = ()
    """The transcript of earlier runs of its session."""
    child_context: CallContext | None = None
    """The context of the calls its agent makes; None: it may not delegate."""
    delegates_by_socket: bool = False
    """Whether its tools are in a process of their own, which makes them."""
    has_gate: bool = False
    """Whether its tool calls are decided one by one: by hooks, and for the files that other runs changed."""
    servers: tuple[McpServer, ...] = ()
    """The MCP servers that are started with it: those of which a tool is granted."""
    server_environment: Mapping[str, str] = {}
    """What their programs get besides their own variables: no keys of providers."""
    asked_session: str = ""
    """The session it continues, as its caller wrote it."""
    is_recorded: bool = True
    """Whether it has a session: a task that fails before it starts has none if its caller wants none."""

    def read_blocks(self) -> list[str]:
        """Return what precedes the prompt. Files are read now: the previous step of a chain may have written them."""
        return [*read_file_blocks(self.files, self.spec.cwd, roots=self.roots), *self.resume_blocks]


class _TaskDraft(Struct, kw_only=True):
    """A task being planned: the second half is filled in step by step, until a failure is found."""

    task: Task
    found: Agent | Failure
    agent: AgentProfile
    place: WorkFolder
    previous: SessionSummary | None
    """The session it continues."""
    limits: Limits
    lineage: Lineage
    skills: SkillRegistry | None
    """The skills of the call, read once; None if no agent of it names any."""

    engine: EngineInfo | None = None
    model: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    native_folder: str = ""
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Wishes of the agent's file that cannot be had."""
    grant: ToolGrant = ToolGrant()
    servers: tuple[McpServer, ...] = ()
    sandbox: SandboxPolicy = NO_SANDBOX
    functions: tuple[ToolFunction, ...] = ()
    system_prompt: str = ""
    append_prompt: str = ""
    files: tuple[FileSlice, ...] = ()
    resume_blocks: tuple[str, ...] = ()
    history: tuple[Message, ...] = ()
    native_session: str | None = None
    output_schema: Mapping[str, Any] | None = None

    @property
    def cwd(self) -> str:
        return self.place.cwd

    @property
    def session(self) -> str:
        return self.previous.session if self.previous else ""


class Planner:
    """Turns the tasks of a plan into run specs, from the settings, agents and engines of a process."""

    def __init__(
        self,
        settings: SettingsFiles,
        catalog: AgentRegistry,
        engine_infos: Mapping[str, EngineInfo],
        store: SessionStore,
        state: Path,
        environ: Mapping[str, str],
        delegation_tools: DelegationTools,
        worktrees: WorktreeStore,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._engine_infos = engine_infos
        self._store = store
        self._state = state
        self._environ = environ
        self._delegation_tools = delegation_tools
        hidden = (state, config_folder(environ), runtime_folder(environ))
        self._sandboxes = SandboxPlanner(environ, tuple(str(folder) for folder in hidden if folder))
        self._worktrees = worktrees
        self._environments: dict[tuple[object, ...], Mapping[str, str]] = {}
        """Environments of child processes; runs with the same environment share one mapping."""

    def authorize(self, call: CallContext) -> AdmittedCall:
        """Return the settings and limits of a call that may dispatch at all.

        Raises:
            RefusedError: `depth_exceeded`, `disabled` or `unsupported`, in this order.
        """
        cwd = self._project_folder(call)
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
        if unreadable := found.unreadable_restrictions:
            named = "; ".join(f"{problem.source}: {problem.message}" for problem in unreadable)
            message = f"A restriction of runs cannot be applied: {named}. Nothing was run. Correct or remove it."
            raise refuse(ErrorCode.UNSUPPORTED, message, "restriction")
        explicit_settings = frozenset(key for key, source in found.sources.items() if source.source == "call")
        notices = tuple(f"{problem.source}: {problem.message}" for problem in found.problems)
        return AdmittedCall(call, cwd, settings, explicit_settings, max_depth, notices)

    def load_agents(self, call: CallContext) -> AgentSet:
        """Return the agents that can be called from the directory of the call; update the index of a vault."""
        cwd = self._project_folder(call)
        return self._load_agents(cwd, self._settings.resolve(call.toolset, cwd, call.settings).settings)

    def _project_folder(self, call: CallContext) -> Path:
        """Return where settings and agents of a call are: those of a worktree are the project's own."""
        return Path(self._worktrees.find_source(call.cwd))

    def _load_agents(self, cwd: Path, settings: Settings) -> AgentSet:
        vault = Path(settings.vault) if settings.vault else None
        agent_set = self._catalog.for_directory(cwd, project_agents=settings.project_agents, vault=vault)
        if vault:
            self._index.reconcile(agent_set, self._engine_infos, settings.engine)
        return agent_set

    def _load_called_agents(self, plan: Plan, admitted: AdmittedCall) -> AgentSet:
        """Return the agents of a plan; a vault's index needs all of them."""
        call, settings = admitted.call, admitted.settings
        if settings.vault:
            return self._load_agents(admitted.cwd, settings)
        names = {task.agent for task in plan.tasks if task.agent}
        rules = (*(call.callable_agents or ()), *call.uncallable_agents)
        return self._catalog.for_names(admitted.cwd, names, related=rules, project_agents=settings.project_agents)

    @cached_property
    def _index(self) -> AgentIndex:
        from retinue.agents.sqlite_index import AgentIndex

        return AgentIndex(self._state / "agents.sqlite")

    async def plan(self, plan: Plan, admitted: AdmittedCall) -> list[PlannedRun]:
        """Return the runs of a plan, in the order of its tasks.

        Raises:
            RefusedError: the whole call cannot be run.
        """
        validate_tasks(plan, admitted.settings)
        agent_set = self._load_called_agents(plan, admitted)
        tasks = [_name_agent(task, agent_set) for task in plan.tasks]
        found = [Agent(name="default") if task.agent is None else agent_set.find(task.agent) for task in tasks]
        agents = [_agent_profile(one, task) for one, task in zip(found, tasks, strict=True)]
        validate_agents(agents)
        sessions = [await self._find_session(task, admitted.call) for task in tasks]
        validate_sessions(tasks, sessions)
        skills = self._load_skills(agents)
        planned = [
            await self._plan_task(*one, admitted, agent_set, skills)
            for one in zip(tasks, found, agents, sessions, strict=True)
        ]
        if plan.mode is Mode.CHAIN:
            _validate_chain(planned)
        return planned

    def _load_skills(self, agents: Sequence[AgentProfile]) -> SkillRegistry | None:
        if not any(agent.load_skills or agent.suggested_skills for agent in agents):
            return None
        from retinue.agents.skills import SkillRegistry

        return SkillRegistry(self._environ)

    async def _find_session(self, task: Task, call: CallContext) -> SessionSummary | None:
        """Return the session a task continues."""
        if task.session is None:
            return None
        session = await self._store.find(task.session)
        summary = await self._store.summary(session) if session else None
        if session is None or summary is None:  # the second, where the id was claimed and no run has begun
            raise session_not_found_error(task.session)
        if call.scoped_sessions:
            source = self._worktrees.find_source(summary.cwd)
            validate_session_scope(structs.replace(summary, cwd=source), task, task.cwd or call.cwd)
        if await self._store.is_locked(session):
            raise RefusedError(busy_session(task.session))
        return summary

    async def _plan_task(
        self,
        task: Task,
        found: Agent | Failure,
        agent: AgentProfile,
        previous: SessionSummary | None,
        admitted: AdmittedCall,
        agent_set: AgentSet,
        skills: SkillRegistry | None,
    ) -> PlannedRun:
        call, cwd = admitted.call, task.cwd or admitted.call.cwd
        chosen = apply_choices(task, agent, admitted.settings, admitted.explicit_settings)
        agent = agent if isinstance(chosen, Failure) else chosen
        place = await plan_work_folder(
            task, agent, cwd, previous, admitted.settings, admitted.explicit_settings, self._worktrees
        )
        problem = next((each for each in (place, chosen) if isinstance(each, Failure)), None)
        draft = _TaskDraft(
            task=task,
            found=found,
            agent=agent,
            place=WorkFolder(cwd, cwd) if isinstance(place, Failure) else place,
            previous=previous,
            limits=_resolve_limits(task, agent, admitted),
            lineage=_child_lineage(call, agent, task, cwd, previous),
            skills=skills,
        )
        refusal = find_uncallable(call, task.agent, agent_set.resolve_name) or find_unknown_restriction(found)
        refusal = refusal or _find_unapproved_script(found, cwd, admitted)
        failure = refusal or await self._complete_draft(draft, admitted, agent_set) or problem
        spec = _build_spec(draft, admitted)
        max_child_depth = _max_child_depth(agent, admitted)
        return PlannedRun(
            spec,
            failure,
            files=draft.files,
            # A root caller names the files it may read itself; one below it stays within its own directory.
            roots=(call.cwd,) if call.lineage.depth else call.roots,
            resume_blocks=draft.resume_blocks,
            child_context=child_context(call, spec, max_child_depth, self._delegation_tools.toolset, draft.servers),
            delegates_by_socket=draft.engine is not None and draft.engine.capabilities.delegates_by_socket,
            has_gate=_has_gate(draft),
            servers=draft.servers,
            server_environment=build_child_environment(self._environ, (), agent.environment) if draft.servers else {},
            asked_session=task.session or "",
            # A missing engine is not wrong input: the run failed, and its session states why.
            is_recorded=call.records_refusals or not failure or failure.reason == ENGINE_MISSING,
        )

    async def _complete_draft(self, draft: _TaskDraft, admitted: AdmittedCall, agent_set: AgentSet) -> Failure | None:
        """Choose engine, tools and prompts of a task; return the first reason why it cannot run."""
        call, settings, agent, found = admitted.call, admitted.settings, draft.agent, draft.found
        if isinstance(found, Failure):
            return found
        engine = self._select_engine(draft, admitted, has_key=found.api_key is not None)
        failure = validate_cwd(draft.place.source, call.roots) or find_self_delegation(
            call, agent, draft.task, draft.cwd
        )
        if isinstance(engine, Failure):
            return failure or engine
        draft.engine = engine
        schema = parse_output_schema(draft.task, agent)
        if isinstance(schema, Failure):
            return failure or schema
        draft.output_schema = schema
        self._choose_model(draft, engine, admitted)
        draft.environment = self._build_environment(draft, engine, admitted)
        draft.native_folder = call.native_folder or str(self._state / "native" / engine.name)
        draft.secrets = {engine.api_key_variable: found.api_key} if found.api_key else {}
        known = (*call.notices, *admitted.notices, *map(str, found.notices), *_vault_notices(settings))
        draft.notices = (*known, *draft.notices)
        failure = failure or find_unusable_hook(agent)
        if failure:
            return failure
        grant = self._grant_tools(draft, found, engine, admitted)
        if isinstance(grant, Failure):
            return grant
        draft.grant = grant
        failure = (
            find_unenforceable(agent, engine=engine.name, capabilities=engine.capabilities, limits=draft.limits)
            or _find_model_problem(draft, engine)
            or (validate_can_resume(engine) if draft.previous and not call.resume_as_transcript else None)
            or (validate_can_finalize(engine) if call.finalize else None)
            or (validate_can_call_functions(engine, found) if found.functions else None)
            or (validate_can_structure(engine) if draft.output_schema is not None else None)
        )
        skills = _render_skills(draft, admitted)
        if isinstance(skills, Failure):
            return failure or skills
        may_write = can_write(grant) or bool(found.functions and not agent.tools.readonly)
        sandbox = await self._plan_sandbox(draft, grant, engine, found, admitted, agent_set)
        if isinstance(sandbox, Failure):
            failure = failure or sandbox
        else:
            draft.sandbox = sandbox
        draft.functions = () if agent.tools.nothing else found.functions
        draft.system_prompt = render_system_prompt(agent, grant, bounded=call.bounded_prompt, may_write=may_write)
        draft.append_prompt = "\n\n".join(filter(None, (agent.append_system_prompt.strip(), skills)))
        if failure:
            return failure
        draft.files = (*(FileSlice(path=path) for path in agent.default_reads), *draft.task.files)
        if draft.previous:
            await self._plan_resume(draft, draft.previous, engine, admitted)
        return None

    def _choose_model(self, draft: _TaskDraft, engine: EngineInfo, admitted: AdmittedCall) -> None:
        """Choose the model; one of another tool's file that the engine cannot have is left out and reported."""
        agent, model = draft.agent, _choose_task_model(draft.task, draft.agent, admitted)
        draft.model = model
        is_wish = agent.is_foreign and model == agent.model and not draft.task.model
        if not (model and is_wish) or engine.has_model(model, agent.provider, self._environ):
            return
        draft.model, draft.left_out = admitted.settings.model, ("model",)
        draft.notices = (
            f"The model {model} of the agent's file cannot be used on {engine.name} here; the default model is used.",
        )

    def _grant_tools(
        self, draft: _TaskDraft, found: Agent, engine: EngineInfo, admitted: AdmittedCall
    ) -> ToolGrant | Failure:
        """Return the tools of a task, or why it cannot run; choose its MCP servers, if its agent has some."""
        if not found.has_servers:
            return self._compute_grant(draft, found, engine, admitted, ())
        from retinue.runtime.mcp_servers import choose_servers, plan_servers

        servers = plan_servers(found, admitted.cwd, self._environ, admitted.call.servers)
        grant = self._compute_grant(draft, found, engine, admitted, servers)
        if isinstance(grant, Failure):
            return grant
        draft.servers, notices = choose_servers(servers, grant)
        draft.notices = (*draft.notices, *notices)
        return _find_unapproved_script(found, draft.cwd, admitted, draft.servers) or grant

    def _compute_grant(
        self,
        draft: _TaskDraft,
        found: Agent,
        engine: EngineInfo,
        admitted: AdmittedCall,
        servers: tuple[McpServer, ...],
    ) -> ToolGrant | Failure:
        return compute_grant(
            draft.agent,
            engine=engine.name,
            capabilities=engine.capabilities,
            authority=admitted.call.authority,
            inherited=_inherited_tools(admitted.call, draft.task, engine),
            allow_write=admitted.settings.allow_write,
            delegation_tools=self._delegation_tools.names
            if draft.lineage.depth < _max_child_depth(draft.agent, admitted)
            else (),
            servers=servers,
            own_servers=[server.label for server in found.parsed_servers],
        )

    async def _plan_sandbox(
        self,
        draft: _TaskDraft,
        grant: ToolGrant,
        engine: EngineInfo,
        found: Agent,
        admitted: AdmittedCall,
        agent_set: AgentSet,
    ) -> SandboxPolicy | Failure:
        is_accepted = agent_set.is_accepted(found)
        policy = await self._sandboxes.plan(
            draft.agent,
            grant,
            engine,
            admitted.settings,
            admitted.call.sandbox,
            task_mode=SandboxMode(draft.task.sandbox) if draft.task.sandbox else None,
            is_accepted=is_accepted,
            has_functions=bool(found.functions),
        )
        if isinstance(policy, Failure) and not is_accepted:
            return agent_set.explain_distrust(found, policy.message)
        if isinstance(policy, Failure) or not policy.is_on:
            return policy
        return bind_to_folder(policy, draft.cwd)

    async def _plan_resume(
        self, draft: _TaskDraft, previous: SessionSummary, engine: EngineInfo, admitted: AdmittedCall
    ) -> None:
        """Choose what a task that continues a session continues from.

        Raises:
            RefusedError: `storage`.
        """
        is_native = (
            admitted.settings.resume == "native"
            and engine.capabilities.resumes
            and _is_same_work(draft, previous, engine)
        )
        if admitted.call.resume_as_transcript and not is_native:
            from retinue.transcripts.fanout import render_resume_context

            draft.resume_blocks = (await render_resume_context(self._store.events(previous.session)),)
            return
        from retinue.runtime.agent_changes import describe_changes
        from retinue.sessions.messages import load_session

        draft.history, last = await load_session(self._store, previous.session)
        if last and (notice := describe_changes(last, draft.agent, draft.model, draft.grant.tools)):
            draft.notices = (*draft.notices, notice)
        if not engine.capabilities.resumes_natively:
            return
        # What another engine did since is not in this one's file; a run that never started has no engine.
        if previous.engine in {engine.name, ""}:
            draft.native_session = _find_engine_session(draft, previous.session)
        if draft.native_session is None:
            notice = (
                f"The {engine.name} engine has no record of the latest run of this session; the run continues from "
                "the stored messages."
            )
            draft.notices = (*draft.notices, notice)

    def _build_environment(self, draft: _TaskDraft, engine: EngineInfo, admitted: AdmittedCall) -> Mapping[str, str]:
        """Return the environment of the child process, with its depth, so that nothing escapes the depth guard."""
        agent = draft.agent
        markers = depth_variables(draft.lineage.depth, _max_child_depth(agent, admitted))
        # An engine continues its own session with the session's model.
        model = draft.model or (draft.previous.model if draft.previous else None)
        keys = engine.provider_variables((model, *agent.fallback_models), agent.provider)
        key = (engine.name, keys, agent.environment, *markers.values())
        if key not in self._environments:
            needed = engine.capabilities.environment | keys
            visible = build_child_environment(self._environ, needed, agent.environment)
            self._environments[key] = {**visible, **markers}
        return self._environments[key]

    def _select_engine(self, draft: _TaskDraft, admitted: AdmittedCall, *, has_key: bool) -> EngineInfo | Failure:
        """Return the engine that the call names, else the agent, else the setting."""
        settings, explicit_settings = admitted.settings, admitted.explicit_settings
        name = settings.engine if "engine" in explicit_settings else draft.agent.engine or settings.engine
        if name == "auto":
            names_model = bool(draft.task.model or ("model" in explicit_settings and settings.model))
            model = join_model(draft.agent.provider, _choose_task_model(draft.task, draft.agent, admitted))
            return self._select_automatic_engine(admitted.call, model, names_model=names_model)
        kind = self._engine_infos.get(name)
        if kind is None:
            known = ", ".join(["auto", *self._engine_infos])
            return Failure(ErrorCode.UNKNOWN_ENGINE, f'Unknown engine "{name}". Engines: {known}.')
        if missing := kind.not_installed_reason_for(has_key=has_key):
            message = f"The {kind.name} engine cannot be used: {missing}"
            return Failure(ErrorCode.SPAWN_FAILED, message, ENGINE_MISSING)
        return kind

    def _select_automatic_engine(
        self, call: CallContext, model: str | None, *, names_model: bool
    ) -> EngineInfo | Failure:
        rules_may_answer = call.offline_may_answer and not names_model
        automatic = [
            kind for kind in self._engine_infos.values() if kind.automatic and (kind.uses_models or rules_may_answer)
        ]
        found = choose_automatic_engine(automatic, model, self._environ)
        if found is None and names_model:
            # An engine that calls providers itself may have the model all the same, or refuses it with what to set.
            calling = (kind for kind in automatic if kind.list_providers and kind.not_installed_reason() is None)
            found = next(calling, None)
        return found or Failure(
            ErrorCode.SPAWN_FAILED,
            "No engine with a language model is configured. The offline engine is not used automatically because it "
            "is not a model. Run `retinue doctor` to see what is missing, or choose the offline engine by name.",
            "no_engine",
        )


def _validate_chain(planned: list[PlannedRun]) -> None:
    """Check that every agent of a chain can run.

    Raises:
        RefusedError: one of them cannot.
    """
    for number, step in enumerate(planned, 1):
        if step.failure:
            message = f"Chain not started: step {number} ({step.spec.agent.name}) cannot run. {step.failure.message}"
            raise RefusedError(structs.replace(step.failure, message=message))


def _render_skills(draft: _TaskDraft, admitted: AdmittedCall) -> str | Failure:
    """Return the system prompt text of the skills that the agent of a task names."""
    if draft.skills is None:
        return ""
    # What the user approved of a project's agent are the skills around the call.
    cwd = admitted.cwd if draft.agent.layer == SourceLayer.PROJECT else draft.cwd
    return draft.skills.render_for_agent(
        draft.agent, cwd, grant=draft.grant, project_agents=admitted.settings.project_agents
    )


def _find_unapproved_script(
    found: Agent | Failure, cwd: str, admitted: AdmittedCall, servers: Sequence[McpServer] = ()
) -> Failure | None:
    """Return why an agent cannot run in the directory of its task, which is not that of the call."""
    if isinstance(found, Failure) or not (found.hooks or servers) or admitted.settings.project_agents != "ask":
        return None
    from retinue.agents.trust import find_unapproved_script

    return find_unapproved_script(found, cwd, servers)


def _has_gate(draft: _TaskDraft) -> bool:
    """Return whether tool calls of a task are decided one by one, and its engine asks about them."""
    is_asked = draft.engine is not None and GATE in draft.engine.capabilities.enforces
    return is_asked and (draft.agent.has_call_hooks or not WRITING_TOOLS.isdisjoint(draft.grant.tools))


def _find_model_problem(draft: _TaskDraft, engine: EngineInfo) -> Failure | None:
    """Return why the model of a task cannot be used; None if it can, or if there are others to fall back to."""
    if draft.agent.fallback_models:
        return None
    secrets = {name: secret.reveal() for name, secret in draft.secrets.items()}
    problem = engine.find_model_problem(draft.model, draft.agent.provider, {**draft.environment, **secrets})
    return problem and name_model_line(problem, draft.model, _model_file(draft))


def _model_file(draft: _TaskDraft) -> str | None:
    """Return the agent's file if its `model` line chose the model."""
    is_chosen = draft.model is not None and draft.model == draft.agent.model and not draft.task.model
    return draft.agent.source if is_chosen else None


# -- parts of a spec -------------------------------------------------------------------------------


def _build_spec(draft: _TaskDraft, admitted: AdmittedCall) -> RunSpec:
    """Return the spec of a planned run, which has no id of its own yet."""
    call, settings, task, agent, engine = admitted.call, admitted.settings, draft.task, draft.agent, draft.engine
    return RunSpec(
        run="",
        session=draft.session,
        name=task.name or agent.title or agent.name or "subagent",
        toolset=call.toolset,
        agent=agent,
        task=task.prompt,
        prompt=task.prompt,
        system_prompt=draft.system_prompt,
        append_prompt=draft.append_prompt,
        history=draft.history,
        native_session=draft.native_session,
        native_folder=draft.native_folder,
        cwd=draft.cwd,
        worktree=draft.place.worktree,
        engine=engine.name if engine else "",
        model=draft.model,
        model_file=_model_file(draft),
        grant=draft.grant,
        functions=draft.functions,
        authority=child_tool_ceiling(agent, draft.grant),
        limits=draft.limits,
        lineage=draft.lineage,
        environment=draft.environment,
        secrets=draft.secrets,
        vault_path=settings.vault,
        fetch_private_addresses=settings.fetch_private_addresses,
        sandbox=draft.sandbox,
        finalize=call.finalize or draft.output_schema is not None,
        output_schema=draft.output_schema,
        resumes=draft.previous is not None,
        allow_process_reuse=_allows_reuse(settings, draft.sandbox) if engine else True,
        setting_sources=engine.setting_sources.get(settings.claude_settings, ()) if engine else (),
        unsupported_preferences=(*draft.left_out, *_unsupported_preferences(agent, engine, draft.model))
        if engine
        else (),
        notices=draft.notices,
    )


def _allows_reuse(settings: Settings, sandbox: SandboxPolicy) -> bool:
    """Return whether a process may serve several runs; one that Landlock confines ends before its run is checked."""
    return settings.warm_pool and sandbox.report.mechanism is not SandboxMechanism.LANDLOCK


def _name_agent(task: Task, agent_set: AgentSet) -> Task:
    """Return the task with the own name of its agent: one name in sessions, lists and records."""
    name = task.agent and agent_set.resolve_name(task.agent)
    return task if name == task.agent else structs.replace(task, agent=name)


def _agent_profile(found: Agent | Failure, task: Task) -> AgentProfile:
    return found.to_profile() if isinstance(found, Agent) else AgentProfile(name=task.agent or "", layer="")


def _inherited_tools(call: CallContext, task: Task, kind: EngineInfo) -> Sequence[str] | None:
    """Return the tools of an agent that names none: the host's, or, without an agent, the engine's defaults."""
    if call.host_tools is None and task.agent is None:
        return kind.capabilities.default_tools
    return call.host_tools


def _child_lineage(
    call: CallContext, agent: AgentProfile, task: Task, cwd: str, previous_session: SessionSummary | None
) -> Lineage:
    """Return the lineage of a run: below its caller, and no higher than the session it continues."""
    lineage = call.lineage
    depth = max(lineage.depth + 1, previous_session.depth if previous_session else 0)
    return structs.replace(
        lineage, depth=depth, ancestors=(*lineage.ancestors, AncestorTask(agent.name, task.prompt, cwd))
    )


def _max_child_depth(agent: AgentProfile, admitted: AdmittedCall) -> int:
    """Return how deep child runs of a run may be; an agent may lower that."""
    own = agent.max_subagent_depth
    return admitted.max_depth if own is None else min(own, admitted.max_depth)


def _find_engine_session(draft: _TaskDraft, session: str) -> str | None:
    file = engine_session_file(Path(draft.native_folder), draft.agent.name, session)
    return str(file) if os.path.isfile(file) else None  # noqa: PTH113 - Path.is_file raises where access is denied


def _is_same_work(draft: _TaskDraft, previous: SessionSummary, engine: EngineInfo) -> bool:
    """Return whether the engine's own session has what the run needs: the same work, ended without a failure."""
    is_same_directory = os.path.realpath(previous.cwd) == os.path.realpath(draft.cwd)
    is_same_agent = (previous.engine, previous.agent) == (engine.name, draft.agent.name)
    return previous.latest.failure is None and is_same_directory and is_same_agent


def _vault_notices(settings: Settings) -> tuple[str, ...]:
    if settings.vault is None or os.path.isdir(settings.vault):  # noqa: PTH112 - Path.is_dir raises for odd names
        return ()
    return (
        f"The vault {settings.vault} is not a folder: no agents are read from it and no events are written to it.",
    )


def _choose_task_model(task: Task, agent: AgentProfile, admitted: AdmittedCall) -> str | None:
    if task.model:  # the agent has it already
        return agent.model
    declared = None if agent.model == "inherit" else agent.model
    settings = admitted.settings
    return settings.model if "model" in admitted.explicit_settings else declared or settings.model


def _unsupported_preferences(agent: AgentProfile, kind: EngineInfo, model: str | None) -> tuple[str, ...]:
    """Return the preferences the engine ignores: also a provider without a model, which no engine can use."""
    unknown = find_unsupported_preferences(agent, kind.capabilities)
    return ("provider", *unknown) if agent.provider and not model and "provider" not in unknown else unknown


def _resolve_limits(task: Task, agent: AgentProfile, admitted: AdmittedCall) -> Limits:
    """Return the limits of the settings, with those of the task or the agent where they have their own."""
    settings, explicit_settings = admitted.settings, admitted.explicit_settings
    timeout, turns = agent.timeout or settings.timeout, agent.max_turns or settings.max_turns
    if agent.layer == SourceLayer.PROJECT:  # a project's files may only lower limits
        timeout = min(timeout, settings.timeout)
        turns = min(turns, settings.max_turns or turns)
    if "timeout" in explicit_settings:
        timeout = settings.timeout
    if "max_turns" in explicit_settings:
        turns = settings.max_turns
    timeout = min(task.timeout or timeout, SETTING_RULES["timeout"].high)
    return structs.replace(settings, timeout=timeout, max_turns=turns).limits()
