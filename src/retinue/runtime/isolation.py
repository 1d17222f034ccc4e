"""Worktrees of runs: who works in one, its creation when the run starts, and its commit when the run has ended."""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct, structs

from retinue.config.settings import Settings
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure
from retinue.model.results import WorktreeChanges
from retinue.model.runs import RunSpec, WorktreeSpec
from retinue.model.sandbox import SandboxPolicy
from retinue.model.tasks import Task
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
