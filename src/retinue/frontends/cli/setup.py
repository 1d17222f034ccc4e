"""`retinue setup`: finds what can run agents here, writes it down, and tries it with one task."""

from __future__ import annotations

import os

import click

from retinue.app import Retinue
from retinue.folders import config_folder
from retinue.frontends.cli.changing import carried_out, dry_run_option, yes_option
from retinue.frontends.cli.completion import engine_names
from retinue.frontends.cli.config_file import setting
from retinue.frontends.cli.diagnosis import EngineFound, engines_found
from retinue.frontends.cli.doctor import engine_lines
from retinue.frontends.cli.inputs import Unreadable
from retinue.frontends.cli.opening import opened
from retinue.frontends.cli.options import WORD, Options, cwd_option, json_option
from retinue.frontends.cli.outcome import carry_out, tell_failures
from retinue.frontends.cli.results import result_json, whole
from retinue.frontends.cli.talk import answer, answer_json, examples, note, warn
from retinue.frontends.cli.trusting import is_interactive
from retinue.frontends.hosts.changes import Change
from retinue.frontends.hosts.forms import Unfit
from retinue.frontends.wording import unknown
from retinue.results import RunResult
from retinue.surfaces.base import exit_status
from retinue.types import Plan, Task

SURFACE = "single"
FIRST = Task(agent="explorer", prompt="Where is the main entry point, and what does the README say it is for?")
BY_RULES = (
    "No model can be reached from here yet: until one can, `retinue run` answers by rules, and other programs are "
    "told that there is no engine. See above what each engine lacks, then run `retinue setup` again."
)
NEXT = 'Next: `retinue run AGENT "…"`, `retinue agents`, or `retinue install HOST`.'
CODES = "Exit codes: 0 it works, 1 the task failed or nothing was written, 2 it cannot be done."


@click.command(
    epilog=examples("retinue setup", "retinue setup --engine pi --yes", "retinue setup --dry-run", then=CODES)
)
@click.option(
    "--engine",
    type=WORD,
    metavar="ENGINE",
    shell_complete=engine_names,
    help="Take this engine.  [default: asks, or takes the first that is ready]",
)
@click.option("--model", type=WORD, metavar="MODEL", help="The model to use, in the engine's own words.")
@click.option("--no-run", is_flag=True, help="Do not try it with a task.")
@dry_run_option
@yes_option
@cwd_option
@json_option
@click.pass_context
def setup(
    ctx: click.Context,
    engine: str | None,
    model: str | None,
    no_run: bool,
    dry_run: bool,
    yes: bool,
    cwd: str | None,
    as_json: bool,
) -> None:
    """Find engines, write your configuration, and try it with one task.

    Looks for the engines on this computer and for their keys and logins, writes the one you choose into
    ~/.config/retinue/config.toml (the change is shown first, and what was there is kept beside it), and gives the
    explorer one task with it, here.
    """
    retinue = Retinue(cwd=cwd)
    found = tuple(engines_found(retinue))
    for line in engine_lines(found):
        click.echo(line, err=True)
    usual = next(each for each in found if each.is_chosen)
    if engine is None and not yes and not dry_run:
        engine = _asked(found, usual)
    chosen = usual if engine is None else _named(retinue, found, engine)
    is_kept = engine is not None or chosen.uses_models
    change, is_done = _written(chosen if is_kept else None, model, dry_run=dry_run, yes=yes)
    if not is_kept:
        warn(BY_RULES)
    result = None if dry_run or no_run or not is_done else _tried(chosen, model, cwd)
    if as_json:
        answer_json(
            {
                "engines": whole(found),
                "engine": chosen.name,
                "file": str(change.file),
                "changed": is_done and change.is_one,
                "result": result_json(result) if result else None,
            }
        )
    elif result and result.text and not result.failure:
        answer(result.text)
    if result and not result.failure:
        note(f"It works. {NEXT}")
    elif not result and is_done and change.is_one:
        note(f"{change.file} is written. {NEXT}")
    elif not is_done and not dry_run:
        note("Nothing was written.")
    ctx.exit(exit_status([result]) if result else 0 if is_done or dry_run else 1)


def _asked(found: tuple[EngineFound, ...], usual: EngineFound) -> str | None:
    """The engine a person chooses; None if there is nobody, or nothing to choose."""
    ready = [engine.name for engine in found if engine.missing is None and engine.is_automatic]
    if len(ready) == 1 or not is_interactive():
        return None
    return str(click.prompt("Which one?", type=click.Choice(ready), default=usual.name, err=True))


def _named(retinue: Retinue, found: tuple[EngineFound, ...], wanted: str) -> EngineFound:
    """The engine of this name.

    Raises:
        Unreadable: there is none, or it cannot be used.
    """
    by_name = {engine.name: engine for engine in found}
    if wanted not in by_name:
        raise Unreadable(f"{unknown('engine', wanted, by_name)}. Nothing was written.")
    # One that is only not ready, such as a pi whose provider an extension brings, may well work: the task will tell.
    if missing := retinue.engines[wanted].missing():
        raise Unreadable(f"{wanted} cannot be used: {missing} Nothing was written.")
    return by_name[wanted]


def _written(engine: EngineFound | None, model: str | None, *, dry_run: bool, yes: bool) -> tuple[Change, bool]:
    """The change of the user's file, and whether the file says what was chosen now.

    Raises:
        Unreadable: it cannot be changed.
    """
    file = config_folder(os.environ) / "config.toml"
    values = {name: value for name, value in (("engine", engine and engine.name), ("model", model)) if value}
    try:
        change = setting(file, values)
        return change, carried_out(change, "Your settings", "write them", dry_run=dry_run, yes=yes)
    except Unfit as error:
        lines = "\n".join(f'{name} = "{value}"' for name, value in values.items())
        raise Unreadable(f"{file} was not changed: {error}. Add this by hand:\n\n{lines}") from error


def _tried(engine: EngineFound, model: str | None, cwd: str | None) -> RunResult:
    note(f"Trying it: {FIRST.agent}, {FIRST.prompt}")
    options = Options(engine=engine.name, model=model, cwd=cwd)
    retinue, plan = opened(options), Plan(tasks=(FIRST,))
    results = carry_out(retinue, plan, SURFACE, options)
    tell_failures(results, retinue, plan.mode, options)
    return results[0]
