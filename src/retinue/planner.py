"""A plan made ready: everything that can be refused is refused here, before anything starts.

Whole-call problems raise `Refused`; one task's become the failure it will end with, so that its siblings go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, structs

from retinue.agents.catalog import Catalog
from retinue.agents.definition import Agent, Layer
from retinue.agents.extra_args import refused_argument
from retinue.agents.policy import effective, not_applied, unenforceable
from retinue.agents.roster import Roster
from retinue.engines.base import EngineKind
from retinue.prompting.compose import system_prompt, with_files
from retinue.prompting.files import file_blocks
from retinue.sessions.store import SessionStore
from retinue.sessions.transcript import messages
from retinue.settings import Settings
from retinue.settings_files import SettingsFiles
from retinue.types import (
    Ancestor,
    Call,
    Code,
    Failure,
    Limits,
    Lineage,
    Mode,
    Plan,
    Refused,
    RunSpec,
    Secret,
    Subagent,
    Task,
    refused,
)

BOUNDED_SURFACE = "single"
"""The surface whose seed tells every child what it is; others promise the agent's prompt as it stands."""


class Planned(Struct, frozen=True):
    """A task ready to run, or the failure it will end with. Its ids are given when it begins."""

    spec: RunSpec
    failure: Failure | None = None


class Planner:
    """Knows the settings, the agents and the engines of a process."""

    def __init__(
        self,
        settings: SettingsFiles,
        catalog: Catalog,
        kinds: Mapping[str, EngineKind],
        store: SessionStore,
        *,
        secrets: Mapping[str, Secret] | None = None,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._kinds = kinds
        self._store = store
        self._secrets = secrets or {}

    def admit(self, call: Call) -> Settings:
        """The settings of a call that may dispatch at all.

        Raises:
            Refused: `depth_exceeded` or `disabled`, in this order.
        """
        settings = self._settings.resolve(call.surface, Path(call.cwd), call.settings).settings
        deepest = settings.max_depth if call.max_depth is None else min(settings.max_depth, call.max_depth)
        if call.lineage.depth >= deepest:
            raise refused(
                Code.DEPTH_EXCEEDED,
                f"Subagent depth exceeded ({call.lineage.depth}/{deepest}). Nested subagents are not allowed.",
            )
        if not settings.enabled:
            raise refused(Code.DISABLED, "Subagents are disabled in configuration")
        return settings

    def roster(self, call: Call) -> Roster:
        """Who can be called from where the call is made."""
        settings = self._settings.resolve(call.surface, Path(call.cwd), call.settings).settings
        return self._roster(Path(call.cwd), settings)

    async def plan(self, plan: Plan, call: Call, settings: Settings) -> list[Planned]:
        """The runs of a plan that was admitted with these settings, in the order of its tasks.

        Raises:
            Refused: the whole call cannot be carried out.
        """
        _check_tasks(plan, settings)
        sessions = [await self._session(task) for task in plan.tasks]
        _check_sessions([session for session in sessions if session])
        environment = _environment(call, settings)
        planned = [
            await self._planned(task, session, call, settings, environment)
            for task, session in zip(plan.tasks, sessions, strict=True)
        ]
        if plan.mode is Mode.CHAIN:
            _check_chain(planned)
        return planned

    async def _session(self, task: Task) -> str | None:
        """The full id of the session a task continues."""
        if task.session is None:
            return None
        session = await self._store.find(task.session)
        if session is None:
            raise refused(
                Code.SESSION_NOT_FOUND,
                f'Cannot resume: session "{task.session}" not found. The session may have expired or the ID is '
                "incorrect.",
            )
        if await self._store.busy(session):
            raise refused(
                Code.SESSION_BUSY,
                f'Cannot resume: session "{task.session}" is still running. Wait for it to complete before resuming.',
            )
        return session

    async def _planned(
        self, task: Task, session: str | None, call: Call, settings: Settings, environment: Mapping[str, str]
    ) -> Planned:
        cwd = task.cwd or call.cwd
        found = self._agent(task.agent, Path(call.cwd), settings)
        agent = found.as_subagent() if isinstance(found, Agent) else Subagent(name=task.agent or "", layer="")
        spec = RunSpec(
            run="",
            session=session or "",
            name=task.name or agent.name or "subagent",
            surface=call.surface,
            agent=agent,
            task=task.prompt,
            prompt=task.prompt,
            cwd=cwd,
            engine="",
            lineage=_below(call, agent, task, cwd),
            resumes=session is not None,
        )
        if isinstance(found, Failure):
            return Planned(spec, found)
        failure = _unusable_cwd(cwd) or refused_argument(agent) or _same_work(call, agent, task, cwd)
        kind = self._kind(agent, call, settings)
        if failure or isinstance(kind, Failure):
            return Planned(spec, failure or _as_failure(kind))
        spec = structs.replace(
            spec,
            engine=kind.name,
            model=_model(agent, call, settings),
            limits=_limits(task, agent, call, settings),
            environment=environment,
            secrets=self._secrets_of(found),
            not_applied=(*not_applied(agent, kind.capabilities), *_skills(agent)),
            notices=tuple(map(str, found.notices)),
        )
        return await self._equipped(spec, kind, task, call, settings)

    async def _equipped(self, spec: RunSpec, kind: EngineKind, task: Task, call: Call, settings: Settings) -> Planned:
        """The spec with its tools and its prompts."""
        grant = effective(
            spec.agent,
            engine=kind.name,
            capabilities=kind.capabilities,
            authority=call.authority,
            inherited=call.host_tools,
            allow_write=settings.allow_write,
        )
        if isinstance(grant, Failure):
            return Planned(spec, grant)
        failure = unenforceable(spec.agent, engine=kind.name, capabilities=kind.capabilities, limits=spec.limits)
        prompt = with_files(file_blocks(task.files, Path(spec.cwd)), task.prompt) if task.files else task.prompt
        spec = structs.replace(
            spec,
            grant=grant,
            prompt=prompt,
            system_prompt=system_prompt(
                spec.agent,
                grant,
                bounded=spec.surface == BOUNDED_SURFACE,
                may_write=settings.allow_write and not spec.agent.tools.readonly,
            ),
        )
        if spec.resumes and not failure:
            failure = _cannot_resume(kind)
            spec = structs.replace(spec, history=messages([e async for e in self._store.events(spec.session)]))
        return Planned(spec, failure)

    def _roster(self, cwd: Path, settings: Settings) -> Roster:
        vault = Path(settings.vault).expanduser() if settings.vault else None
        return self._catalog.at(cwd, project_agents=settings.project_agents, vault=vault)

    def _agent(self, name: str | None, cwd: Path, settings: Settings) -> Agent | Failure:
        if name is None:
            return Agent(name="default")
        return self._roster(cwd, settings).find(name)

    def _kind(self, agent: Subagent, call: Call, settings: Settings) -> EngineKind | Failure:
        """The engine by the call's wish, else the agent's, else the setting."""
        name = call.settings.get("engine") or agent.engine or settings.engine
        if name == "auto":
            return self._automatic(call)
        kind = self._kinds.get(str(name))
        if kind is None:
            known = ", ".join(["auto", *self._kinds])
            return Failure(Code.SPAWN_FAILED, f'Unknown engine "{name}". Engines: {known}.', "unknown_engine")
        if missing := kind.missing():
            return Failure(Code.SPAWN_FAILED, f"The {kind.name} engine cannot be used: {missing}", "engine_missing")
        return kind

    def _automatic(self, call: Call) -> EngineKind | Failure:
        for kind in self._kinds.values():
            if kind.automatic and kind.missing() is None and (kind.uses_models or call.offline_may_answer):
                return kind
        return Failure(
            Code.SPAWN_FAILED,
            "No engine with a language model is configured here, and rules must not be taken for an agent. "
            "Run `retinue doctor` to see what is missing, or ask for the offline engine by name.",
            "no_engine",
        )

    def _secrets_of(self, agent: Agent) -> Mapping[str, Secret]:
        return {**self._secrets, "PI_API_KEY": agent.api_key} if agent.api_key else self._secrets


# -- whole-call checks -----------------------------------------------------------------------------


def _check_tasks(plan: Plan, settings: Settings) -> None:
    count = len(plan.tasks)
    if not 1 <= count <= settings.max_tasks:
        raise refused(Code.INVALID_INPUT, f"A call takes 1 to {settings.max_tasks} tasks (max_tasks); it had {count}")
    for number, task in enumerate(plan.tasks, 1):
        which = f"Task {number}" if count > 1 else "The task"
        if not task.prompt.strip():
            raise refused(Code.INVALID_INPUT, f"{which} is empty: say what is to be done")
        if "\0" in task.prompt:
            raise refused(Code.INVALID_INPUT, f"{which} contains a NUL byte: remove it, or name the file it is in")
        size = _size(task.prompt)
        if size is None:
            raise refused(Code.INVALID_INPUT, f"{which} contains half a character (a lone surrogate): remove it")
        if size > settings.max_task_bytes:
            raise refused(
                Code.INVALID_INPUT,
                f"{which} has {size} bytes; the limit is {settings.max_task_bytes} (max_task_bytes). "
                "Put long material into a file and name the file in the task.",
            )
        if task.timeout is not None and not task.timeout >= 1:
            raise refused(
                Code.INVALID_INPUT, f"{which} has a timeout of {task.timeout:g}: it must be at least 1 second"
            )


def _size(text: str) -> int | None:
    """Of the text in bytes; None if it cannot be written down."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def _check_sessions(sessions: list[str]) -> None:
    session, times = next(iter(Counter(sessions).most_common(1)), ("", 0))
    if times > 1:
        raise refused(
            Code.CONFLICT,
            f'Cannot resume: session "{session}" is named by {times} tasks of this call. Resume it once.',
        )


def _check_chain(planned: list[Planned]) -> None:
    for number, step in enumerate(planned, 1):
        if step.failure:
            message = f"Chain not started: step {number} ({step.spec.agent.name}) cannot run. {step.failure.message}"
            raise Refused(structs.replace(step.failure, message=message))


# -- one task's checks -----------------------------------------------------------------------------


def _unusable_cwd(cwd: str) -> Failure | None:
    path = Path(cwd)
    if "\0" in cwd or not path.is_absolute():
        return Failure(Code.INVALID_INPUT, "cwd must be an absolute path", "cwd")
    if ".." in path.parts:
        return Failure(Code.INVALID_INPUT, "cwd must not contain '..' path segments", "cwd")
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "does not exist"
        return Failure(Code.INVALID_INPUT, f"cwd {what}: {cwd}. Create it, or name another.", "cwd_missing")
    return None


def _same_work(call: Call, agent: Subagent, task: Task, cwd: str) -> Failure | None:
    if Ancestor(agent.name, task.prompt, cwd) not in call.lineage.ancestors:
        return None
    return Failure(
        Code.CONFLICT,
        f"This is exactly the task a {agent.name} above was itself given. Do it, or delegate only a part of it.",
        "self_delegation",
    )


def _cannot_resume(kind: EngineKind) -> Failure | None:
    if kind.capabilities.resumes:
        return None
    return Failure(Code.UNSUPPORTED, f"The {kind.name} engine cannot continue a session. Begin a new one.", "resume")


def _as_failure(kind: EngineKind | Failure) -> Failure:
    assert isinstance(kind, Failure)
    return kind


# -- parts of a spec -------------------------------------------------------------------------------


def _below(call: Call, agent: Subagent, task: Task, cwd: str) -> Lineage:
    line = call.lineage
    return structs.replace(
        line, depth=line.depth + 1, ancestors=(*line.ancestors, Ancestor(agent.name, task.prompt, cwd))
    )


def _model(agent: Subagent, call: Call, settings: Settings) -> str | None:
    declared = None if agent.model in (None, "inherit") else agent.model
    asked = call.settings.get("model")
    return str(asked) if asked else declared or settings.model


def _limits(task: Task, agent: Subagent, call: Call, settings: Settings) -> Limits:
    """The settings' limits, with the task's or the agent's own where they say so."""
    given = settings.timeout if "timeout" in call.settings else None
    timeout = task.timeout or given or agent.timeout or settings.timeout
    turns = settings.max_turns if "max_turns" in call.settings else agent.max_turns or settings.max_turns
    if agent.layer == Layer.PROJECT:  # a project's files only ever lower limits
        timeout = task.timeout or given or min(agent.timeout or settings.timeout, settings.timeout)
        turns = min(filter(None, (turns, settings.max_turns)), default=0)
    return structs.replace(settings, timeout=timeout, max_turns=turns).limits()


def _environment(call: Call, settings: Settings) -> Mapping[str, str]:
    """What marks a child as one, so that no path escapes the depth guard."""
    deepest = settings.max_depth if call.max_depth is None else min(settings.max_depth, call.max_depth)
    return {
        "PI_SUBAGENT_CHILD": "1",
        "PI_SUBAGENT_DEPTH": str(call.lineage.depth + 1),
        "PI_SUBAGENT_MAX_DEPTH": str(deepest),
    }


def _skills(agent: Subagent) -> tuple[str, ...]:
    return tuple(name for name in ("load_skills", "suggested_skills") if getattr(agent, name))
