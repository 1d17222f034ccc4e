"""`retinue install` and `uninstall`: add our tools to the configuration of another program, and remove them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from retinue.cli.options import TEXT, InvalidInputError, for_users_only, json_option
from retinue.cli.printing import help_examples, is_interactive, make_printable, print_hint, print_json, print_warning
from retinue.hosts.changes import ConfigChange, apply_change, plan_install, plan_uninstall
from retinue.hosts.config_editors import UnsupportedConfigError
from retinue.hosts.environments import list_needed_variables
from retinue.hosts.hosts import HOSTS, Host, HostMachine
from retinue.hosts.own_command import own_command, temporary_problem
from retinue.hosts.status import HostInstallation, describe_installation, probe_hosts
from retinue.support.formatting import unknown_name_message

if TYPE_CHECKING:
    from retinue.client import Retinue

INSTALL_EXIT_CODES = "Exit codes: 0 installed, 1 cancelled (nothing changed), 2 error."
UNINSTALL_EXIT_CODES = "Exit codes: 0 removed, 1 cancelled (nothing changed), 2 error."

MAX_COLUMNS = 500
"""Characters of a printed line of a change."""

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show the change.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
_host_argument = click.argument("host", type=click.Choice(list(HOSTS)), metavar="HOST")
_project_option = click.option(
    "--project", is_flag=True, help="Only for this directory, instead of for all directories."
)


@click.command(
    epilog=help_examples(
        "retinue install pi",
        "retinue install claude --dry-run",
        "retinue install codex --project --yes",
        "retinue install gemini -- --background --engine pi",
        then=INSTALL_EXIT_CODES,
    )
)
@_host_argument
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS]")
@_project_option
@click.option(
    "--toolset",
    type=TEXT,
    metavar="NAME",
    help="Toolset to serve.  [default: fanout for pi, single,fanout elsewhere]",
)
@dry_run_option
@yes_option
@json_option
@click.pass_context
@for_users_only
def install(
    ctx: click.Context,
    host: str,
    arguments: tuple[str, ...],
    project: bool,
    toolset: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Add Retinue's tools to another program's configuration.

    HOST is pi (as an extension) or a program that speaks MCP: claude, codex, gemini, opencode, cursor or vscode. The
    change is shown first, and the old file is kept as a backup. Running the command again changes nothing. ARGUMENTS
    are passed to `retinue mcp` when the host starts it, or to `retinue bridge` for pi.
    """
    from retinue.client import Retinue

    found, folder, machine = HOSTS[host], Path() if project else None, HostMachine(os.environ)
    file = found.config_path(machine, folder)
    _validate_arguments(found, toolset, arguments)
    if problem := temporary_problem():
        raise InvalidInputError(f"{found.title} could not start Retinue later: {problem}. Nothing was changed.")
    retinue = Retinue()
    model = retinue.settings("single").settings.model
    variables = list_needed_variables(os.environ, retinue.engines.values(), model)
    entry = found.environment.name_variables(found.make_entry(own_command(), toolset, arguments), variables)
    installation = describe_installation(found, file, entry, folder, machine, variables)
    try:
        change = plan_install(file, found.editor, entry)
        if change.is_needed and not dry_run:
            _check_start(installation, retinue.cwd)
        is_done = confirm_and_apply(change, found.title, "install", dry_run=dry_run, yes=yes)
    except UnsupportedConfigError as error:
        raise InvalidInputError(
            f"{file} was not changed: {error}. Add this by hand:\n\n{found.editor.manual_instructions(entry)}"
        ) from error
    if is_done and change.is_needed:
        _warn_if_calls_refused(retinue, installation)
    options = [*_project_words(project), *(["--toolset", toolset] if toolset else [])]
    again = ["install", host, *options, *(["--", *arguments] if arguments else [])]
    _print_outcome(ctx, found, change, again, is_done=is_done, is_wanted=True, dry_run=dry_run, as_json=as_json)


@click.command(
    epilog=help_examples("retinue uninstall pi", "retinue uninstall claude --yes", then=UNINSTALL_EXIT_CODES)
)
@_host_argument
@_project_option
@dry_run_option
@yes_option
@json_option
@click.pass_context
@for_users_only
def uninstall(ctx: click.Context, host: str, project: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove Retinue's tools from another program's configuration.

    If nothing else has changed since `retinue install`, the old file is restored; otherwise only the entry of
    Retinue is removed.
    """
    found = HOSTS[host]
    file = found.config_path(HostMachine(os.environ), Path() if project else None)
    try:
        change = plan_uninstall(file, found.editor)
        is_done = confirm_and_apply(change, found.title, "uninstall", dry_run=dry_run, yes=yes)
    except UnsupportedConfigError as error:
        raise InvalidInputError(
            f"{file} was not changed: {error}. If it has an entry retinue, remove it by hand."
        ) from error
    again = ["uninstall", host, *_project_words(project)]
    _print_outcome(ctx, found, change, again, is_done=is_done, is_wanted=False, dry_run=dry_run, as_json=as_json)


def _project_words(project: bool) -> list[str]:
    return ["--project"] if project else []


def confirm_and_apply(change: ConfigChange, title: str, verb: str, *, dry_run: bool, yes: bool) -> bool:
    """Show a change, apply it if the user agrees, and return whether the file is in the wanted state.

    Raises:
        UnsupportedConfigError: the change cannot be applied.
    """
    if not change.is_needed:
        return True
    print_hint(f"{title}: {change.file}")
    for line in change.diff_lines():
        click.secho(make_printable(line)[:MAX_COLUMNS], err=True, fg="green" if line.startswith("+") else "red")
    if dry_run:
        return False
    if not yes and not is_interactive():
        raise click.UsageError(f"Not a terminal: pass --yes to {verb} or --dry-run to preview.")
    if not yes and not click.confirm("Make this change?", default=False, err=True):
        return False
    apply_change(change)
    return True


def _validate_arguments(host: Host, toolset: str | None, arguments: Sequence[str]) -> None:
    """Check that the host will be able to start the command.

    Raises:
        click.UsageError: it would not start.
    """
    from retinue.cli.commands.bridge import bridge
    from retinue.cli.commands.mcp import mcp
    from retinue.cli.group import normalize_option_name

    command = mcp if host.speaks_mcp else bridge
    words = [*(["--toolset", toolset] if toolset else []), *arguments]
    name = f"retinue {command.name}"
    params = command.make_context(name, words, token_normalize_func=normalize_option_name).params
    if params.get("port") is not None or params.get("clients"):
        raise click.UsageError(
            "--http and --client cannot be used here: they are for a server that you start yourself."
        )
    if params.get("root"):
        raise click.UsageError("--root cannot be used here: the extension sets the conversation.")
    for folder in (params["cwd"], *params.get("roots", ())):
        if folder and not Path(folder).is_absolute():
            raise click.UsageError(f"Pass {folder} as an absolute path: a host starts Retinue in its own directory.")
    _validate_toolsets_and_engine(params["toolsets"] if host.speaks_mcp else (params["toolset"],), params["engine"])


def _validate_toolsets_and_engine(toolsets: Sequence[str], engine: str | None) -> None:
    from retinue.composition import TOOLSETS, available_engines
    from retinue.servers.mcp.toolset_server import find_conflict

    for name in toolsets:
        if name not in TOOLSETS:
            raise click.UsageError(unknown_name_message("toolset", name, TOOLSETS))
    if sentence := find_conflict(toolsets):
        raise click.UsageError(sentence)
    engines = ("auto", *available_engines(os.environ))
    if engine and engine not in engines:
        raise click.UsageError(unknown_name_message("engine", engine, engines))


def _check_start(host: HostInstallation, cwd: str) -> None:
    """Start the command once, as the host will.

    Raises:
        InvalidInputError: it does not start.
    """
    (probed,) = anyio.run(probe_hosts, (host,), cwd)
    if probed.status.fault:
        raise InvalidInputError(f"{probed.status.fault.removesuffix('.')}. Nothing was changed.")


def _warn_if_calls_refused(retinue: Retinue, host: HostInstallation) -> None:
    """Print a warning if every call of the host will be refused."""
    from retinue.cli.commands.doctor import list_hosts_without_engine

    for sentence in list_hosts_without_engine(retinue, (host,)):
        print_warning(sentence)


def _print_outcome(
    ctx: click.Context,
    host: Host,
    change: ConfigChange,
    again: Sequence[str],
    *,
    is_done: bool,
    is_wanted: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    is_installed = is_wanted if is_done else host.editor.find_entry(change.before or "") is not None
    is_changed = is_done and change.is_needed
    backup = str(change.backup) if is_changed and change.keeps_backup else None
    if as_json:
        print_json(
            {
                "host": host.name,
                "file": str(change.file),
                "installed": is_installed,
                "changed": is_changed,
                "backup": backup,
                "change": [make_printable(line) for line in change.diff_lines()],
            }
        )
    if is_installed and not is_done:
        state = "is still"
    elif is_installed:
        state = "is" if change.is_needed else "is already"
    else:
        state = "is no longer" if is_changed else "is not"
    kept = f" Backup of the old file: {backup}." if backup else ""
    if not is_done:
        reason = f"Dry run; `retinue {shlex.join(again)}` asks and makes this change." if dry_run else "Cancelled."
        print_hint(f"{reason} Nothing was changed: Retinue {state} installed in {host.title}.")
    else:
        print_hint(f"Retinue {state} installed in {host.title} ({change.file}).{kept}")
    if is_wanted and is_changed:
        print_hint(f"Restart {host.title} to use it; `retinue doctor` checks the installation.")
    ctx.exit(0 if is_done or dry_run else 1)
