"""`retinue delegate`: many tasks at once."""

from __future__ import annotations

import click

from retinue.frontends.cli.dispatch import dispatch
from retinue.frontends.cli.helping import examples
from retinue.frontends.cli.options import EXIT_CODES, Options, run_options
from retinue.frontends.cli.plan_file import read_plan
from retinue.frontends.cli.talk import warn
from retinue.frontends.cli.work import opened
from retinue.types import Mode, Plan, Task

SURFACE = "fanout"
"""Whose defaults hold."""

FORM = """\b
FILE is JSON, - for stdin:
  {"tasks": [{"agent": "explorer", "prompt": "Where is …?"},
             {"agent": "tester", "prompt": "What is untested?", "timeout": 120}]}

A task may have name, agent (or profile), prompt (or task), cwd, timeout in seconds, resume (a session) and
files: paths, or {"path", "start", "end", "head", "tail"}. A profile beside tasks holds for those without an agent."""


@click.command(
    epilog=examples(
        "retinue delegate tasks.json",
        "retinue delegate - --max-concurrency 8 --json < tasks.json",
        then=f"{EXIT_CODES} Several runs count as completed if all of them are.",
    )
)
@click.argument("file")
@run_options
@click.pass_context
def delegate(ctx: click.Context, file: str, options: Options) -> None:
    retinue = opened(options)
    plan = Plan(tasks=tasks_of(file, options), mode=Mode.PARALLEL)
    dispatch(ctx, retinue, plan, SURFACE, options)


delegate.help = f"Give many agents a task each, several at once.\n\n{FORM}"


def tasks_of(file: str, options: Options) -> tuple[Task, ...]:
    """The tasks of a plan file; says which of its fields mean nothing.

    Raises:
        Unreadable: it cannot be had.
    """
    tasks, unknown = read_plan(file)
    if unknown:
        warn(f"{file}: ignored what means nothing here: {', '.join(unknown)}", quiet=options.quiet)
    return tasks
