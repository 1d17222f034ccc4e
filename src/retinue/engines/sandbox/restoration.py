"""Restore after a sandboxed run what it could change and must not: what executes programs or loads code later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from retinue.engines.base import Emit, EngineError
from retinue.engines.sandbox.access import SandboxAccessError
from retinue.engines.sandbox.configuration import ConfigurationGuard
from retinue.engines.sandbox.git_guard import GitGuard
from retinue.engines.sandbox.guarded_files import TooManyFilesError
from retinue.engines.sandbox.mechanisms import unavailable_failure
from retinue.model.events import Notice
from retinue.model.runs import RunSpec
from retinue.model.sandbox import SandboxMechanism

MAX_NAMED = 5
"""Changed paths that a notice names; the others are counted."""
ASIDE = ".from-run-"


@asynccontextmanager
async def guard_project(spec: RunSpec, emit: Emit) -> AsyncIterator[None]:
    """Run a block in which a run may write its directory, then restore and report what it must not change.

    Raises:
        EngineError: the project has more files than can be compared (`unsupported`).
    """
    sandbox = spec.sandbox
    if not sandbox.writes_cwd or sandbox.report.mechanism is SandboxMechanism.IN_PROCESS:
        yield
        return
    git, configuration = await anyio.to_thread.run_sync(_read_before, spec)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            if git and (changed := await anyio.to_thread.run_sync(git.restore)):
                message = f"The agent changed {_name_paths(changed)}, by which git executes programs."
                await emit(Notice("sandbox", f"{message} What was there before was restored."))
            if changed := await anyio.to_thread.run_sync(configuration.restore):
                await emit(Notice("sandbox", _describe_configuration(changed, ASIDE + spec.run[:8])))


def _read_before(spec: RunSpec) -> tuple[GitGuard | None, ConfigurationGuard]:
    """Return what the run could change as it is now; in `strict` git's own folders cannot be changed.

    Raises:
        EngineError: the project has more files than can be compared (`unsupported`).
    """
    sandbox = spec.sandbox
    missing_only = sandbox.report.mechanism is not SandboxMechanism.LANDLOCK
    try:
        git = None if sandbox.is_strict else GitGuard(spec.cwd, missing_only=missing_only)
        return git, ConfigurationGuard(sandbox, spec.cwd, ASIDE + spec.run[:8])
    except SandboxAccessError as error:
        raise EngineError(unavailable_failure(sandbox.mode, str(error))) from error
    except TooManyFilesError:
        why = (
            ".git/hooks, .git/info or folders such as .claude and .pi have too many files to be compared after the "
            "run, and Landlock alone cannot protect them. Nothing was started. Install bubblewrap"
        )
        raise EngineError(unavailable_failure(sandbox.mode, why)) from None


def _describe_configuration(changed: list[str], suffix: str) -> str:
    return (
        f"The agent changed {_name_paths(changed)}, from which agents load code. What was there before was restored; "
        f'what the agent wrote has "{suffix}" after its name. To let agents change such files, add their paths to '
        "the setting sandbox_write."
    )


def _name_paths(paths: list[str]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(paths[:MAX_NAMED]) + more
