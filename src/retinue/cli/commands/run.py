"""`retinue run`, `delegate` and `chain`: run one agent, several at once, or one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec
from msgspec import Struct

from retinue.cli.commands.completion import complete_agents, complete_sessions
from retinue.cli.group import SectionedCommand
from retinue.cli.options import (
    EXIT_CODES,
    MAX_JSON_BYTES,
    TEXT,
    InvalidInputError,
    RunOptions,
    decode_json,
    describe_json_error,
    for_users_only,
    read_task,
    read_text_file,
    run_options,
)
from retinue.cli.printing import help_examples, print_warning
from retinue.cli.runner import make_retinue, run_and_exit
from retinue.client import Retinue
from retinue.model.tasks import FileSlice, Mode, Plan, Task
from retinue.support.formatting import suggest_spelling


class PlanFileTask(Struct, frozen=True):
    """One task of a plan file."""

    name: str | None = None
    agent: str | None = None
    profile: str | None = None
    prompt: str | None = None
    task: str | None = None
    cwd: str | None = None
    timeout: float | None = None
    resume: str | None = None
    files: tuple[str | FileSlice, ...] = ()
    output_schema: dict[str, Any] | None = msgspec.field(default=None, name="outputSchema")
    model: str | None = None
    effort: str | None = None
    isolation: str | None = None
    sandbox: str | None = None


class PlanFile(Struct, frozen=True):
    tasks: tuple[PlanFileTask, ...]
    profile: str | None = None


def read_plan(path: str) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """Return the tasks of a file, or of stdin for `-`, and the names of unknown fields.

    Raises:
        InvalidInputError: it cannot be read, or is not a plan; the message has the position.
    """
    text, name = read_text_file(path, limit=MAX_JSON_BYTES), "stdin" if path == "-" else path
    try:
        raw = decode_json(text)
        plan = msgspec.convert(raw, PlanFile)
    except (msgspec.MsgspecError, RecursionError) as error:
        problem = describe_json_error(text, error)
        message = problem if problem.startswith("invalid JSON") else f"invalid plan: {problem}"
        raise InvalidInputError(f"{name}: {message}", "`retinue delegate --help` describes the format.") from error
    if _is_empty(plan.profile):
        raise InvalidInputError(f"{name} has an empty profile. Remove the profile, or name one.")
    named = [_list_unknown(entry, PlanFileTask) for entry in raw["tasks"]]
    tasks = tuple(
        _build_task(number, entry, plan.profile, unknown)
        for number, (entry, unknown) in enumerate(zip(plan.tasks, named, strict=True), 1)
    )
    in_tasks = (f"tasks[{number}].{text}" for number, texts in enumerate(named) for text in texts)
    return tasks, (*_list_unknown(raw, PlanFile), *in_tasks)


def _build_task(number: int, entry: PlanFileTask, profile: str | None, unknown: Sequence[str]) -> Task:
    for field in ("name", "agent", "profile", "cwd", "resume", "model", "effort", "isolation", "sandbox"):
        if _is_empty(getattr(entry, field)):
            raise InvalidInputError(f"Task {number} has an empty {field}. Remove {field}, or give it a value.")
    for one, other in (("agent", "profile"), ("prompt", "task")):
        if getattr(entry, one) is not None and getattr(entry, other) is not None:
            raise InvalidInputError(f"Task {number} has both {one} and {other}, which mean the same. Remove one.")
    prompt = entry.prompt if entry.prompt is not None else entry.task
    if prompt is None or _is_empty(prompt):
        ignored = f" Unknown fields: {', '.join(unknown)}." if unknown else ""
        raise InvalidInputError(f"Task {number} has no prompt: write what the agent is to do.{ignored}")
    return Task(
        prompt=prompt,
        agent=entry.agent or entry.profile or profile,
        name=entry.name,
        cwd=entry.cwd,
        timeout=entry.timeout,
        session=entry.resume,
        files=tuple(FileSlice(path=file) if isinstance(file, str) else file for file in entry.files),
        output_schema=entry.output_schema,
        model=entry.model,
        effort=entry.effort,
        isolation=entry.isolation,
        sandbox=entry.sandbox,
    )


def _is_empty(value: str | None) -> bool:
    """Return whether a field is present but blank."""
    return value is not None and not value.strip()


def _list_unknown(raw: Iterable[str], kind: type[PlanFile | PlanFileTask]) -> tuple[str, ...]:
    """Return the keys that mean nothing, each with the known one that it resembles."""
    known = kind.__struct_encode_fields__
    return tuple(f"{name}{_suggest_field(name, known)}" for name in raw if name not in known)


def _suggest_field(name: str, known: Sequence[str]) -> str:
    hint = suggest_spelling(name, known).strip()
    return f" ({hint[0].lower()}{hint[1:]})" if hint else ""


TOOLSETS = {Mode.SINGLE: "single", Mode.PARALLEL: "fanout", Mode.CHAIN: "nested"}
"""The toolset whose defaults apply to each mode."""

PLAN_FILE_HELP = """\b
FILE is JSON, - for stdin:
  {"tasks": [{"agent": "explorer", "prompt": "Where is …?"},
             {"agent": "tester", "prompt": "Find gaps.", "timeout": 120}]}

A task may have name, agent (or profile), prompt (or task), cwd, timeout in seconds, resume (a session), model,
effort, isolation (worktree), sandbox (workspace, strict), outputSchema (a JSON Schema) and files: paths, or
{"path", "start", "end", "head", "tail"}. A profile beside tasks applies to tasks without an agent."""


@click.command(
    cls=SectionedCommand,
    epilog=help_examples(
        'retinue run explorer "Where is loop detection implemented?"',
        "git diff | retinue run reviewer",
        'retinue run -c "And which tests cover it?"',
        "retinue run tester @task.md --engine offline --timeout 5m --json",
        then=EXIT_CODES,
    ),
)
@click.argument("agent", type=TEXT, required=False, shell_complete=complete_agents)
@click.argument("task", required=False)
@click.option("-c", "--continue", "is_continued", is_flag=True, help="Continue the last session of this directory.")
@click.option(
    "--session",
    type=TEXT,
    metavar="ID",
    shell_complete=complete_sessions,
    help='Continue session ID; "last" is the newest session of this directory.',
)
@click.option("--name", type=TEXT, metavar="NAME", help="Display name of the run.")
@click.option(
    "--output-schema",
    metavar="FILE|JSON",
    help="JSON Schema of the result; the answer is then JSON that matches the schema.",
)
@run_options
@click.pass_context
@for_users_only
def run(
    ctx: click.Context,
    /,
    agent: str | None,
    task: str | None,
    is_continued: bool,
    session: str | None,
    name: str | None,
    output_schema: str | None,
    **flags: Any,
) -> None:
    """Give one agent one task and print its answer.

    TASK is the text itself, @FILE, or - for stdin, which is also read if TASK is missing; write @@… for a text that
    starts with @. The answer goes to stdout (streamed on a terminal), everything else to stderr. With --continue,
    AGENT defaults to the agent of the session.
    """
    options = RunOptions(**flags)
    retinue = make_retinue(options)
    if is_continued or session == "last":
        agent, task, session = _continue_last(retinue, agent, task)
    if agent is None:
        raise click.UsageError("Missing argument 'AGENT'.", ctx)
    toolset = TOOLSETS[Mode.SINGLE]
    prompt = read_task(task, retinue, toolset)
    schema = None if output_schema is None else read_output_schema(output_schema)
    plan = Plan(tasks=(Task(prompt=prompt, agent=agent, name=name, session=session, output_schema=schema),))
    run_and_exit(ctx, retinue, plan, toolset, options)


def _continue_last(retinue: Retinue, agent: str | None, task: str | None) -> tuple[str, str | None, str]:
    """Return agent, task and id of the last session of the directory; a single argument is the task.

    Raises:
        CommandRefusedError: there is no session.
    """
    import anyio

    from retinue.cli.session_lookup import LAST, find_session

    summary = anyio.run(find_session, retinue, LAST)
    if task is None:
        agent, task = None, agent
    return agent or summary.agent, task, summary.session


@click.command(
    cls=SectionedCommand,
    help=f"Run several agents, each with its own task, in parallel.\n\n{PLAN_FILE_HELP}",
    epilog=help_examples(
        "retinue delegate tasks.json",
        "retinue delegate - --max-concurrency 8 --json < tasks.json",
        then=f"{EXIT_CODES} Several runs count as completed if all have completed.",
    ),
)
@click.argument("file")
@run_options
@click.pass_context
@for_users_only
def delegate(ctx: click.Context, /, file: str, **flags: Any) -> None:
    options = RunOptions(**flags)
    plan = Plan(tasks=_read_tasks(file), mode=Mode.PARALLEL)
    retinue = make_retinue(options)
    run_and_exit(ctx, retinue, plan, TOOLSETS[plan.mode], options)


@click.command(
    cls=SectionedCommand,
    epilog=help_examples(
        'retinue chain --step explorer "Where are sessions stored?" \\',
        '              --step reviewer "Review what was found: {previous}"',
        "retinue chain steps.json",
        then=EXIT_CODES,
    ),
)
@click.argument("file", required=False)
@click.option(
    "--step",
    "steps",
    type=(TEXT, str),
    multiple=True,
    metavar="AGENT TASK",
    help="One step; repeat the option for more.",
)
@run_options
@click.pass_context
@for_users_only
def chain(ctx: click.Context, /, file: str | None, steps: tuple[tuple[str, str], ...], **flags: Any) -> None:
    """Run agents one after another, each with the previous answer.

    In a TASK, {previous} is replaced by the previous answer and {task} by the first task; without {previous} the
    answer is appended. The chain stops at the first failure; the last answer goes to stdout.

    Pass the steps with --step, or in FILE (- for stdin) in the format of `retinue delegate`.
    """
    if (file is not None) == bool(steps):
        raise click.UsageError("Pass the steps either in FILE or with --step.")
    options = RunOptions(**flags)
    retinue, toolset = make_retinue(options), TOOLSETS[Mode.CHAIN]
    given = tuple(Task(agent=agent, prompt=read_task(task, retinue, toolset)) for agent, task in steps)
    plan = Plan(tasks=_read_tasks(file) if file is not None else given, mode=Mode.CHAIN)
    run_and_exit(ctx, retinue, plan, toolset, options)


def read_output_schema(value: str) -> dict[str, Any]:
    """Return the schema that an option gives as JSON or as the name of a file.

    Raises:
        InvalidInputError: it cannot be read, or is not a JSON object.
    """
    from retinue.output.schemas import MAX_SCHEMA_BYTES, OutputSchemaError, decode_schema

    is_json = value.lstrip().startswith("{")
    text = value if is_json else read_text_file(value, limit=MAX_SCHEMA_BYTES)
    try:
        return decode_schema(text)
    except OutputSchemaError as error:
        raise InvalidInputError(f"{'--output-schema' if is_json else value}: {error}.") from error


def _read_tasks(file: str) -> tuple[Task, ...]:
    """Return the tasks of a plan file and warn about unknown fields.

    Raises:
        InvalidInputError: it cannot be read.
    """
    tasks, unknown = read_plan(file)
    if unknown:
        name = "stdin" if file == "-" else file
        print_warning(f"{name}: ignored unknown fields: {', '.join(unknown)}")
    return tasks
