"""Where a run works: its git worktree, from its creation to its commit when the run has ended, and its sandbox."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import cached_property, partial
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct, structs

from retinue.config.directories import expand_user_path
from retinue.config.settings import Settings
from retinue.engines.base import EngineInfo
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure
from retinue.model.results import WorktreeChanges
from retinue.model.runs import RunSpec, ToolGrant, WorktreeSpec
from retinue.model.sandbox import SandboxMode, SandboxPolicy, strictest_mode
from retinue.model.tasks import Task
from retinue.model.tool_names import is_mcp_tool
from retinue.sessions.store import SessionSummary
from retinue.worktrees.git import GitError
from retinue.worktrees.store import Worktree, WorktreeError, WorktreeStore

WORKTREE = "worktree"
"""The isolation, and the reason of a run that failed for it."""


class WorkFolder(Struct, frozen=True):
    """Where a run works, and where its files come from."""

    cwd: str
    source: str
    """The user's own directory: `cwd`, unless the run continues in a worktree."""
    worktree: WorktreeSpec | None = None


def _choose_isolation(task: Task, agent: AgentProfile, settings: Settings, explicit_settings: Collection[str]) -> str:
    """Return the isolation of a task: that of the call, else of the task, the agent, the settings."""
    if "isolation" in explicit_settings:
        return settings.isolation
    return task.isolation or agent.isolation or settings.isolation


async def plan_work_folder(
    task: Task,
    agent: AgentProfile,
    cwd: str,
    previous: SessionSummary | None,
    settings: Settings,
    explicit_settings: Collection[str],
    store: WorktreeStore,
) -> WorkFolder | Failure:
    """Return where a task works; a session that had a worktree gets it back."""
    if previous and (record := store.find(previous.session)):
        return WorkFolder(record.cwd, os.path.join(record.repository, record.folder), record.spec)  # noqa: PTH118
    if _choose_isolation(task, agent, settings, explicit_settings) != WORKTREE:
        return WorkFolder(cwd, cwd)
    try:
        worktree = await anyio.to_thread.run_sync(store.find_repository, cwd, settings.worktree_base)
    except GitError as error:
        return Failure(
            ErrorCode.UNSUPPORTED,
            f"The run needs a git worktree (isolation: worktree), and none can be made of {cwd}: {error} Nothing was "
            "run. Run it inside a git repository, or without isolation.",
            WORKTREE,
        )
    return WorkFolder(cwd, cwd, worktree)


def enter_worktree(spec: RunSpec, store: WorktreeStore) -> RunSpec:
    """Return the spec of a run with ids in its worktree, which is made when the run starts."""
    if spec.worktree is None:
        return spec
    path, _ = store.place(spec.worktree, spec.session, spec.agent.name)
    cwd = os.path.join(path, spec.worktree.folder) if spec.worktree.folder else path  # noqa: PTH118
    *above, own = spec.lineage.ancestors
    lineage = structs.replace(spec.lineage, ancestors=(*above, structs.replace(own, cwd=cwd)))
    return structs.replace(spec, cwd=cwd, lineage=lineage, sandbox=_open_sandbox(spec.sandbox, path, spec.worktree))


def _open_sandbox(policy: SandboxPolicy, path: str, worktree: WorktreeSpec) -> SandboxPolicy:
    """Return the sandbox with the worktree, which is in our hidden state, and with what git reads for it."""
    if not policy.is_on:
        return policy
    return structs.replace(
        policy,
        read=(*policy.read, worktree.git_dir, path),
        write=(*policy.write, path) if policy.writes_cwd else policy.write,
        # What an earlier run of the session left there may be a link.
        folder=str(Path(os.path.realpath(path), worktree.folder)),
    )


class RunWorktree:
    """The worktree of one run in progress."""

    def __init__(self, store: WorktreeStore, spec: RunSpec) -> None:
        self._store = store
        self._spec = spec
        self._record: Worktree | None = None

    async def open(self) -> Failure | None:
        """Make the worktree, if the run has one; return why it cannot be made."""
        spec = self._spec
        if spec.worktree is None:
            return None
        make = partial(self._store.open, spec.worktree, session=spec.session, agent=spec.agent.name, task=spec.task)
        try:
            # Not abandoned by a cancelled caller: what was made must be known to be removed.
            self._record = await anyio.to_thread.run_sync(make)
        except WorktreeError as error:
            message = f"{error} Nothing was run. Fix this, or run it without isolation."
            return Failure(ErrorCode.SPAWN_FAILED, message, WORKTREE)
        return None

    async def close(self) -> WorktreeChanges | None:
        """Commit what the run changed and return it; remove the worktree if nothing was.

        Raises:
            WorktreeError: it could not be committed, and stays as it is.
        """
        if self._record is None:
            return None
        with anyio.CancelScope(shield=True):
            record = await anyio.to_thread.run_sync(self._store.close, self._record)
        return record.changes


# -- sandboxes ----------------------------------------------------------------------------------------


FUNCTIONS_GAP = "functions of the program that are tools run outside the sandbox"


class SandboxPlanner:
    """Plans the sandboxes of runs on this machine."""

    def __init__(self, environ: Mapping[str, str], hidden: tuple[str, ...]) -> None:
        self._environ = environ
        self._folders = hidden
        """Folders of Retinue that no sandboxed run reaches."""

    async def plan(
        self,
        agent: AgentProfile,
        grant: ToolGrant,
        engine: EngineInfo,
        settings: Settings,
        caller: SandboxPolicy,
        *,
        task_mode: SandboxMode | None = None,
        is_accepted: bool = True,
        has_functions: bool = False,
    ) -> SandboxPolicy | Failure:
        """Return the sandbox of a run, or why it cannot be built.

        An agent of a project that nobody accepted gets the strictest one, in which it reads the repository only.
        """
        required = None if is_accepted else SandboxMode.STRICT
        mode = strictest_mode((SandboxMode(settings.sandbox), caller.mode, agent.sandbox, task_mode, required))
        if mode is SandboxMode.OFF:
            return caller
        if not engine.capabilities.confines:
            return _unconfined_failure(agent, engine, mode)
        from retinue.engines.sandbox.mechanisms import choose_mechanism, find_support

        support = await anyio.to_thread.run_sync(find_support, self._environ)
        starts = bool(engine.capabilities.runs_program or agent.hooks) or any(
            tool in engine.capabilities.command_tools or is_mcp_tool(tool) for tool in grant.tools
        )
        report = choose_mechanism(mode, support, starts_processes=starts)
        if isinstance(report, Failure):
            return report
        if has_functions:
            report = structs.replace(report, gaps=(*report.gaps, FUNCTIONS_GAP))
        return SandboxPolicy(
            report=report,
            bubblewrap=support.bubblewrap,
            read=self._expand(settings.sandbox_read),
            write=self._expand(settings.sandbox_write),
            hosts=settings.sandbox_hosts,
            hidden=self._hidden,
            repository_only=caller.repository_only or not is_accepted,
            writes_cwd=caller.writes_cwd and is_accepted,
        )

    @cached_property
    def _hidden(self) -> tuple[str, ...]:
        from retinue.engines.sandbox.access import list_secrets

        return (*map(os.path.realpath, self._folders), *list_secrets(self._environ))

    def _expand(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(expand_user_path(path, self._environ)) for path in paths)


def bind_to_folder(policy: SandboxPolicy, cwd: str) -> SandboxPolicy:
    """Return the sandbox for one directory, which cannot be replaced by a link to another before the start."""
    return structs.replace(policy, folder=os.path.realpath(cwd))


def _unconfined_failure(agent: AgentProfile, engine: EngineInfo, mode: SandboxMode) -> Failure:
    message = (
        f'The engine "{engine.name}" cannot confine its runs, and the sandbox of agent "{agent.name}" is "{mode}". '
        "Nothing was started. Choose another engine, or lift the restriction."
    )
    return Failure(ErrorCode.UNSUPPORTED, message, "restriction", {"agent": agent.name, "engine": engine.name})
