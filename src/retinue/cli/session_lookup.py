"""Find the session that a command names, or the latest one, and continue it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import click
from msgspec.structs import replace

from retinue.cli.options import CommandRefusedError, RunOptions, read_task
from retinue.cli.runner import make_retinue, run_and_exit
from retinue.client import Retinue
from retinue.model.errors import ErrorCode, Failure
from retinue.model.tasks import Plan, Task
from retinue.sessions.store import SessionFilter, SessionSummary
from retinue.support.formatting import SHORT_ID_LENGTH

LAST = "last"
"""Names the newest session of the directory that no agent started."""
TOOLSET = "single"
"""The toolset whose defaults apply to one run."""
MAX_NAMED = 3
MAX_SEARCHED = 500
"""Newest sessions of a directory that are searched for one that no agent started."""
DEFAULT_AGENT = "default"


async def find_session(retinue: Retinue, name: str) -> SessionSummary:
    """Return the session of an id, or the last one of the directory for `last`.

    Raises:
        CommandRefusedError: there is none.
    """
    if name == LAST:
        return await _find_last_session(retinue)
    summary = await retinue.session(name)
    if summary is None:
        latest = ", ".join(
            one.session[:SHORT_ID_LENGTH] for one in await retinue.sessions(SessionFilter(limit=MAX_NAMED))
        )
        message = f'Session "{name}" not found. The latest sessions: {latest or "(none)"}'
        raise CommandRefusedError(Failure(ErrorCode.SESSION_NOT_FOUND, message))
    return summary


async def _find_last_session(retinue: Retinue) -> SessionSummary:
    for summary in await retinue.sessions(SessionFilter(limit=MAX_SEARCHED)):
        source = retinue.worktrees.find_source(summary.cwd)
        if summary.parent_run is None and _is_same_folder(source, str(retinue.cwd)):
            return summary
    message = f"No session found in {retinue.cwd}. `retinue sessions list` shows the sessions of all directories."
    raise CommandRefusedError(Failure(ErrorCode.SESSION_NOT_FOUND, message))


def _is_same_folder(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def run_in_session(ctx: click.Context, summary: SessionSummary, task: str | None, options: RunOptions) -> NoReturn:
    """Give the agent of a session another task, where it worked before, and end the command with its result."""
    cwd = Retinue().worktrees.find_source(summary.cwd)
    if options.cwd is None and Path(cwd).is_dir():
        options = replace(options, cwd=cwd)
    retinue = make_retinue(options)
    had_none = summary.agent == DEFAULT_AGENT and DEFAULT_AGENT not in retinue.roster().names()
    agent = None if had_none else summary.agent
    plan = Plan(tasks=(Task(prompt=read_task(task, retinue, TOOLSET), agent=agent, session=summary.session),))
    run_and_exit(ctx, retinue, plan, TOOLSET, options)
