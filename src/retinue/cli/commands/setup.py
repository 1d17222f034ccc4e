"""`retinue setup`: find engines, write the chosen one to the settings, and try it with one task."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from retinue.cli.commands.completion import complete_engines
from retinue.cli.commands.doctor import EngineStatus, list_engine_status, render_engines
from retinue.cli.commands.install import confirm_and_apply, dry_run_option, yes_option
from retinue.cli.json_output import result_json, to_json
from retinue.cli.options import TEXT, InvalidInputError, cwd_option, for_users_only, json_option
from retinue.cli.printing import (
    help_examples,
    is_interactive,
    print_answer,
    print_hint,
    print_json,
    print_warning,
    stderr_columns,
)
from retinue.cli.runner import REQUEST_TASK, SEARCH_TASK, run_trial
from retinue.client import Retinue
from retinue.config.directories import config_folder
from retinue.hosts.changes import ConfigChange, read_config
from retinue.hosts.config_editors import UnsupportedConfigError, set_toml_values
from retinue.model.results import compute_exit_status
from retinue.model.tasks import Task
from retinue.support.formatting import unknown_name_message


def plan_settings_change(file: Path, values: Mapping[str, str]) -> ConfigChange:
    """Plan the change that sets these values for every toolset.

    Raises:
        UnsupportedConfigError: the file cannot be read or changed.
    """
    file, before = read_config(file)
    after = set_toml_values(before or "", values)
    return ConfigChange(file=file, before=before, after=after or before, keeps_backup=before is not None)


OFFLINE_NOTE = (
    "No engine with a language model is ready yet. Until one is, `retinue run` uses the offline engine (rules), and "
    "calls from other programs are refused. The list above shows what each engine needs; then run `retinue setup` "
    "again."
)
NEXT_STEPS = 'Next: `retinue run AGENT "…"`, `retinue agents`, or `retinue install HOST`.'
SETUP_EXIT_CODES = "Exit codes: 0 the engine works, 1 the test failed or nothing was written, 2 error."


@click.command(
    epilog=help_examples(
        "retinue setup", "retinue setup --engine pi --yes", "retinue setup --dry-run", then=SETUP_EXIT_CODES
    )
)
@click.option(
    "--engine",
    type=TEXT,
    metavar="ENGINE",
    shell_complete=complete_engines,
    help="Engine to use.  [default: asks, or uses the first that is ready]",
)
@click.option("--model", type=TEXT, metavar="MODEL", help="Model to use, as the engine names it.")
@click.option("--no-run", is_flag=True, help="Do not test the engine.")
@dry_run_option
@yes_option
@cwd_option
@json_option
@click.pass_context
@for_users_only
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
    """Find engines, write your configuration, and test it with one task.

    Find the engines on this computer with their keys and logins, write the one you choose to
    ~/.config/retinue/config.toml (the change is shown first, and the old file is kept as a backup), and test it:
    the explorer gets one task in this directory, or the api engine one short request. --no-run skips the test.
    """
    retinue = Retinue(cwd=cwd)
    found = tuple(list_engine_status(retinue))
    for line in render_engines(found, stderr_columns()):
        click.echo(line, err=True)
    usual = next(each for each in found if each.is_chosen)
    if engine is None and not yes and not dry_run:
        engine = _prompt_for_engine(found, usual)
    chosen = usual if engine is None else _find_engine(retinue, found, engine)
    is_kept = engine is not None or chosen.uses_models
    change, is_done = _write_settings(chosen if is_kept else None, model, dry_run=dry_run, yes=yes)
    if not is_kept:
        print_warning(OFFLINE_NOTE)
    elif chosen.missing:
        print_warning(f"{chosen.name} cannot answer yet: {chosen.missing}.")
    calls_provider = retinue.engines[chosen.name].list_providers is not None
    trial = REQUEST_TASK if calls_provider else SEARCH_TASK
    is_tried = not dry_run and not no_run and is_done and (yes or _confirm_trial(trial))
    result = run_trial(chosen.name, trial, model=model, cwd=cwd) if is_tried else None
    if as_json:
        print_json(
            {
                "engines": to_json(found),
                "engine": chosen.name,
                "file": str(change.file),
                "changed": is_done and change.is_needed,
                "result": result_json(result) if result else None,
            }
        )
    elif result and result.text and not result.failure:
        print_answer(result.text)
    if result and not result.failure:
        print_hint(f"Test passed. {NEXT_STEPS}")
    elif not result and is_done and change.is_needed:
        print_hint(f"{change.file} was written. {NEXT_STEPS}")
    elif not is_done and not dry_run:
        print_hint("Nothing was written.")
    ctx.exit(compute_exit_status([result]) if result else 0 if is_done or dry_run else 1)


def _prompt_for_engine(found: tuple[EngineStatus, ...], usual: EngineStatus) -> str | None:
    """Ask which engine to use; return None if nobody can be asked or there is no choice."""
    ready = [engine.name for engine in found if engine.missing is None and engine.is_automatic]
    if len(ready) == 1 or not is_interactive():
        return None
    return str(click.prompt("Which one?", type=click.Choice(ready), default=usual.name, err=True))


def _confirm_trial(task: Task) -> bool:
    """Ask whether to try the engine; where nobody can be asked, it is tried."""
    question = "Test the engine with one short request?" if task is REQUEST_TASK else "Test the engine with one task?"
    return not is_interactive() or click.confirm(question, default=True, err=True)


def _find_engine(retinue: Retinue, found: tuple[EngineStatus, ...], wanted: str) -> EngineStatus:
    """Return the engine of this name.

    Raises:
        InvalidInputError: it is unknown or cannot be used.
    """
    by_name = {engine.name: engine for engine in found}
    if wanted not in by_name:
        raise InvalidInputError(f"{unknown_name_message('engine', wanted, by_name)}. Nothing was written.")
    # An engine that is only not configured, such as a pi with a provider extension, may work: the task shows it.
    if missing := retinue.engines[wanted].not_installed_reason():
        raise InvalidInputError(f"{wanted} cannot be used: {missing} Nothing was written.")
    return by_name[wanted]


def _write_settings(
    engine: EngineStatus | None, model: str | None, *, dry_run: bool, yes: bool
) -> tuple[ConfigChange, bool]:
    """Write the choice to the user's settings; return the change and whether the file now has the choice.

    Raises:
        InvalidInputError: the file cannot be changed.
    """
    file = config_folder(os.environ) / "config.toml"
    values = {name: value for name, value in (("engine", engine and engine.name), ("model", model)) if value}
    try:
        change = plan_settings_change(file, values)
        return change, confirm_and_apply(change, "Your settings", "write them", dry_run=dry_run, yes=yes)
    except UnsupportedConfigError as error:
        lines = "\n".join(f'{name} = "{value}"' for name, value in values.items())
        raise InvalidInputError(f"{file} was not changed: {error}. Add this by hand:\n\n{lines}") from error
