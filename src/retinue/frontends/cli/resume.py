"""`retinue sessions resume`: another task for the same agent."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from retinue.app import Retinue
from retinue.frontends.cli.completions import session_ids
from retinue.frontends.cli.dispatch import dispatch, task_text
from retinue.frontends.cli.finding import find_session, within
from retinue.frontends.cli.helping import examples
from retinue.frontends.cli.options import EXIT_CODES, Options, run_options
from retinue.frontends.cli.work import opened
from retinue.sessions.store import SessionSummary
from retinue.types import Plan, Task

SURFACE = "single"
"""Whose defaults hold."""
NOBODY = "default"
"""What a run is called that had no agent: the engine's own prompt and tools."""


@click.command(epilog=examples('retinue sessions resume 1a2b3c4d "And the tests?"', then=EXIT_CODES))
@click.argument("session", metavar="ID", shell_complete=session_ids)
@click.argument("task")
@run_options
@click.pass_context
def resume(ctx: click.Context, session: str, task: str, options: Options) -> None:
    """Give the same agent another task in the same session.

    TASK is the text itself, - for stdin, or @FILE. The agent works where it did, unless --cwd says otherwise.
    """
    summary = within(lambda retinue: find_session(retinue, session))
    if summary is None:
        ctx.exit(2)
    if options.cwd is None and Path(summary.cwd).is_dir():
        options = replace(options, cwd=summary.cwd)
    retinue = opened(options)
    asked = Task(prompt=task_text(task, retinue, SURFACE), agent=_agent(summary, retinue), session=summary.session)
    dispatch(ctx, retinue, Plan(tasks=(asked,)), SURFACE, options)


def _agent(summary: SessionSummary, retinue: Retinue) -> str | None:
    had_none = summary.agent == NOBODY and NOBODY not in retinue.roster().names()
    return None if had_none else summary.agent
