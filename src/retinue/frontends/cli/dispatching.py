"""`retinue run`, `delegate` and `chain`: one agent, many at once, one after the other."""

from __future__ import annotations

import click

from retinue.app import Retinue
from retinue.frontends.cli.completion import agent_names, session_ids
from retinue.frontends.cli.inputs import text_of
from retinue.frontends.cli.opening import opened
from retinue.frontends.cli.options import EXIT_CODES, WORD, Options, run_options
from retinue.frontends.cli.outcome import dispatch
from retinue.frontends.cli.plan_file import read_plan
from retinue.frontends.cli.talk import examples, warn
from retinue.types import Mode, Plan, Task

SURFACES = {Mode.SINGLE: "single", Mode.PARALLEL: "fanout", Mode.CHAIN: "nested"}
"""Whose defaults hold."""

FORM = """\b
FILE is JSON, - for stdin:
  {"tasks": [{"agent": "explorer", "prompt": "Where is …?"},
             {"agent": "tester", "prompt": "What is untested?", "timeout": 120}]}

A task may have name, agent (or profile), prompt (or task), cwd, timeout in seconds, resume (a session) and
files: paths, or {"path", "start", "end", "head", "tail"}. A profile beside tasks holds for those without an agent."""


@click.command(
    epilog=examples(
        'retinue run explorer "Where is loop detection implemented?"',
        "git diff | retinue run reviewer -",
        "retinue run tester @task.md --engine offline --timeout 5m --json",
        then=EXIT_CODES,
    )
)
@click.argument("agent", type=WORD, shell_complete=agent_names)
@click.argument("task")
@click.option("--session", type=WORD, metavar="ID", shell_complete=session_ids, help="Continue this session.")
@click.option("--name", type=WORD, metavar="NAME", help="What to call the run on the screen.")
@run_options
@click.pass_context
def run(ctx: click.Context, agent: str, task: str, session: str | None, name: str | None, options: Options) -> None:
    """Give one agent one task and print its answer.

    TASK is the text itself, - for stdin, or @FILE; a text that begins with an @ of its own is written @@….
    The answer goes to stdout, everything else to stderr.
    """
    retinue = opened(options)
    surface = SURFACES[Mode.SINGLE]
    asked = Task(prompt=task_text(task, retinue, surface), agent=agent, name=name, session=session)
    dispatch(ctx, retinue, Plan(tasks=(asked,)), surface, options)


@click.command(
    help=f"Give many agents a task each, several at once.\n\n{FORM}",
    epilog=examples(
        "retinue delegate tasks.json",
        "retinue delegate - --max-concurrency 8 --json < tasks.json",
        then=f"{EXIT_CODES} Several runs count as completed if all of them are.",
    ),
)
@click.argument("file")
@run_options
@click.pass_context
def delegate(ctx: click.Context, file: str, options: Options) -> None:
    plan = Plan(tasks=_tasks_of(file, options), mode=Mode.PARALLEL)
    dispatch(ctx, opened(options), plan, SURFACES[plan.mode], options)


@click.command(
    epilog=examples(
        'retinue chain --step explorer "Where are sessions stored?" \\',
        '              --step reviewer "Review what was found: {previous}"',
        "retinue chain steps.json",
        then=EXIT_CODES,
    )
)
@click.argument("file", required=False)
@click.option(
    "--step", "steps", type=(WORD, str), multiple=True, metavar="AGENT TASK", help="One step; give it repeatedly."
)
@run_options
@click.pass_context
def chain(ctx: click.Context, file: str | None, steps: tuple[tuple[str, str], ...], options: Options) -> None:
    """Give agents one task after another, passing answers on.

    In a TASK, {previous} is the answer of the step before and {task} the first task; without {previous} the answer is
    added. The chain stops at the first failure; the last answer goes to stdout.

    The steps are given with --step, or in FILE (- for stdin) in the form that `retinue delegate` reads.
    """
    if (file is not None) == bool(steps):
        raise click.UsageError("Give the steps either in a FILE or with --step.")
    retinue, surface = opened(options), SURFACES[Mode.CHAIN]
    given = tuple(Task(agent=agent, prompt=task_text(task, retinue, surface)) for agent, task in steps)
    plan = Plan(tasks=_tasks_of(file, options) if file is not None else given, mode=Mode.CHAIN)
    dispatch(ctx, retinue, plan, surface, options)


def task_text(value: str, retinue: Retinue, surface: str) -> str:
    """The task an argument stands for.

    Raises:
        Unreadable: it cannot be had.
    """
    return text_of(value, limit=retinue.settings(surface).settings.max_task_bytes)


def _tasks_of(file: str, options: Options) -> tuple[Task, ...]:
    """The tasks of a plan file; says which of its fields mean nothing.

    Raises:
        Unreadable: it cannot be had.
    """
    tasks, unknown = read_plan(file)
    if unknown:
        warn(f"{file}: ignored what means nothing here: {', '.join(unknown)}", quiet=options.quiet)
    return tasks
