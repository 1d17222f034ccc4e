"""`retinue chain`: one step after the other."""

from __future__ import annotations

import click

from retinue.frontends.cli.delegate import tasks_of
from retinue.frontends.cli.dispatch import dispatch, task_text
from retinue.frontends.cli.helping import examples
from retinue.frontends.cli.options import EXIT_CODES, Options, run_options
from retinue.frontends.cli.work import opened
from retinue.types import Mode, Plan, Task

SURFACE = "nested"
"""Whose defaults hold."""


@click.command(
    epilog=examples(
        'retinue chain --step explorer "Where are sessions stored?" \\',
        '              --step reviewer "Review what was found: {previous}"',
        "retinue chain steps.json",
        then=EXIT_CODES,
    )
)
@click.argument("file", required=False)
@click.option("--step", "steps", nargs=2, multiple=True, metavar="AGENT TASK", help="One step; give it repeatedly.")
@run_options
@click.pass_context
def chain(ctx: click.Context, file: str | None, steps: tuple[tuple[str, str], ...], options: Options) -> None:
    """Give agents one task after another, passing answers on.

    In a TASK, {previous} is the answer of the step before and {task} the first task; without {previous} the answer is
    added. The chain stops at the first failure; the last answer goes to stdout.

    The steps are given with --step, or in FILE (- for stdin) in the form that `retinue delegate` reads.
    """
    if bool(file) == bool(steps):
        raise click.UsageError("Give the steps either in a FILE or with --step.")
    retinue = opened(options)
    given = tuple(Task(agent=agent, prompt=task_text(task, retinue, SURFACE)) for agent, task in steps)
    plan = Plan(tasks=tasks_of(file, options) if file else given, mode=Mode.CHAIN)
    dispatch(ctx, retinue, plan, SURFACE, options)
