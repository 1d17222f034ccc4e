"""`retinue run`: one agent, one task."""

from __future__ import annotations

import click

from retinue.frontends.cli.completions import agent_names, session_ids
from retinue.frontends.cli.dispatch import dispatch, task_text
from retinue.frontends.cli.helping import examples
from retinue.frontends.cli.options import EXIT_CODES, Options, run_options
from retinue.frontends.cli.work import opened
from retinue.types import Plan, Task

SURFACE = "single"
"""Whose defaults hold."""


@click.command(
    epilog=examples(
        'retinue run explorer "Where is loop detection implemented?"',
        "git diff | retinue run reviewer -",
        "retinue run tester @task.md --engine offline --timeout 5m --json",
        then=EXIT_CODES,
    )
)
@click.argument("agent", shell_complete=agent_names)
@click.argument("task")
@click.option("--session", metavar="ID", shell_complete=session_ids, help="Continue this session.")
@click.option("--name", metavar="NAME", help="What to call the run on the screen.")
@run_options
@click.pass_context
def run(ctx: click.Context, agent: str, task: str, session: str | None, name: str | None, options: Options) -> None:
    """Give one agent one task and print its answer.

    TASK is the text itself, - for stdin, or @FILE; a text that begins with an @ of its own is written @@….
    The answer goes to stdout, everything else to stderr.
    """
    retinue = opened(options)
    asked = Task(prompt=task_text(task, retinue, SURFACE), agent=agent, name=name, session=session)
    dispatch(ctx, retinue, Plan(tasks=(asked,)), SURFACE, options)
