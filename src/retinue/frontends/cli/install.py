"""`retinue install` and `uninstall`: our tools in the configuration of another program, and out of it again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from retinue.frontends.cli.changing import carried_out, dry_run_option, yes_option
from retinue.frontends.cli.inputs import Unreadable
from retinue.frontends.cli.options import WORD, json_option
from retinue.frontends.cli.talk import answer_json, examples, note, sayable, warn
from retinue.frontends.hosts.changes import Change, installing, uninstalling
from retinue.frontends.hosts.checking import HostFound, command_of
from retinue.frontends.hosts.forms import Unfit
from retinue.frontends.hosts.places import Machine
from retinue.frontends.hosts.table import HOSTS, Host, own_command
from retinue.frontends.wording import unknown

CODES = "Exit codes: 0 it is so, 1 it was left as it is, 2 it cannot be done."

_host = click.argument("host", type=click.Choice(list(HOSTS)), metavar="HOST")
_project = click.option("--project", is_flag=True, help="For this directory alone, not for all you do.")


@click.command(
    epilog=examples(
        "retinue install pi",
        "retinue install claude --dry-run",
        "retinue install codex --project --yes",
        "retinue install gemini -- --background --engine pi",
        then=CODES,
    )
)
@_host
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS]")
@_project
@click.option(
    "--surface", type=WORD, metavar="NAME", help="Whose tools.  [default: fanout for pi, single,fanout elsewhere]"
)
@dry_run_option
@yes_option
@json_option
@click.pass_context
def install(
    ctx: click.Context,
    host: str,
    arguments: tuple[str, ...],
    project: bool,
    surface: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Give another program our tools, in its own configuration.

    HOST is pi, for which it is an extension, or a program that speaks MCP: claude, codex, gemini, opencode, cursor or
    vscode. The change is shown first; what was there is kept beside the file. Doing it again changes nothing more.
    What follows -- is given to `retinue mcp` whenever the host starts it; for pi to `retinue bridge`.
    """
    found = HOSTS[host]
    file = found.file(Machine(os.environ), Path() if project else None)
    _check(found, surface, arguments)
    entry = found.entry(own_command(), surface, arguments)
    try:
        change = installing(file, found.form, entry)
        if found.speaks_mcp:
            _say_if_missing()
        is_done = carried_out(change, found.title, "install", dry_run=dry_run, yes=yes)
    except Unfit as error:
        raise Unreadable(
            f"{file} was not changed: {error}. Add this by hand:\n\n{found.form.by_hand(entry)}"
        ) from error
    if is_done and change.is_one:
        _say_if_refused(HostFound(found.name, found.title, str(file), None, command_of(found, entry)))
    _tell(ctx, found, change, is_done=is_done, is_wanted=True, dry_run=dry_run, as_json=as_json)


@click.command(epilog=examples("retinue uninstall pi", "retinue uninstall claude --yes", then=CODES))
@_host
@_project
@dry_run_option
@yes_option
@json_option
@click.pass_context
def uninstall(ctx: click.Context, host: str, project: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Take our tools out of another program's configuration.

    If nothing else has changed since `retinue install`, the file is as it was before; else only our entry goes.
    """
    found = HOSTS[host]
    file = found.file(Machine(os.environ), Path() if project else None)
    try:
        change = uninstalling(file, found.form)
        is_done = carried_out(change, found.title, "uninstall", dry_run=dry_run, yes=yes)
    except Unfit as error:
        raise Unreadable(f"{file} was not changed: {error}. Remove the entry retinue by hand.") from error
    _tell(ctx, found, change, is_done=is_done, is_wanted=False, dry_run=dry_run, as_json=as_json)


def _check(host: Host, surface: str | None, arguments: Sequence[str]) -> None:
    """Lets through what the host will be able to start.

    Raises:
        click.UsageError: it would not start.
    """
    from retinue.frontends.cli.bridge import bridge
    from retinue.frontends.cli.mcp import mcp

    command = mcp if host.speaks_mcp else bridge
    words = [*(["--surface", surface] if surface else []), *arguments]
    params = command.make_context(f"retinue {command.name}", words).params
    if params.get("port") is not None or params.get("clients"):
        raise click.UsageError("--http and --client are for a server that you start yourself; a host starts its own.")
    if params.get("root"):
        raise click.UsageError("--root is left to the extension: it names the conversation it is in.")
    for folder in (params["cwd"], *params.get("roots", ())):
        if folder and not Path(folder).is_absolute():
            raise click.UsageError(f"Give {folder} as a whole path: a host starts us wherever it is itself.")
    _check_parts(params["surfaces"] if host.speaks_mcp else (params["surface"],), params["engine"])


def _check_parts(surfaces: Sequence[str], engine: str | None) -> None:
    from retinue.frontends.mcp.shapes import clash
    from retinue.parts import SURFACES, engine_kinds

    for name in surfaces:
        if name not in SURFACES:
            raise click.UsageError(unknown("surface", name, SURFACES))
    if sentence := clash(surfaces):
        raise click.UsageError(sentence)
    engines = ("auto", *engine_kinds(os.environ))
    if engine and engine not in engines:
        raise click.UsageError(unknown("engine", engine, engines))


def _say_if_missing() -> None:
    from retinue.frontends.mcp.sdk import missing

    if sentence := missing():
        warn(f"{sentence.removesuffix(' and start again.')}: until then it cannot serve.")


def _say_if_refused(host: HostFound) -> None:
    """Says if the host will see our tools, and every call will be refused."""
    from retinue.app import Retinue
    from retinue.frontends.cli.diagnosis import engines_found, without_engine

    retinue = Retinue()
    for sentence in without_engine(retinue, tuple(engines_found(retinue)), (host,)):
        warn(sentence)


def _tell(
    ctx: click.Context, host: Host, change: Change, *, is_done: bool, is_wanted: bool, dry_run: bool, as_json: bool
) -> None:
    is_installed = is_wanted if is_done else host.form.entry(change.before or "") is not None
    is_changed = is_done and change.is_one
    backup = str(change.backup) if is_changed and change.keeps else None
    if as_json:
        answer_json(
            {
                "host": host.name,
                "file": str(change.file),
                "installed": is_installed,
                "changed": is_changed,
                "backup": backup,
                "change": [sayable(line) for line in change.lines()],
            }
        )
    if is_installed and not is_done:
        state = "is still"
    elif is_installed:
        state = "is" if change.is_one else "is already"
    else:
        state = "is no longer" if is_changed else "is not"
    kept = f" What was there: {backup}." if backup else ""
    note(f"Retinue {state} installed in {host.title} ({change.file}).{kept}")
    if is_wanted and is_changed:
        note(f"Start {host.title} anew to use it; `retinue doctor` checks it.")
    ctx.exit(0 if is_done or dry_run else 1)
