"""A change of somebody's file from the command line: shown, asked about, made."""

from __future__ import annotations

import click

from retinue.frontends.cli.talk import note, sayable
from retinue.frontends.cli.trusting import is_interactive
from retinue.frontends.hosts.changes import Change, make

MOST = 500
"""Characters of a line that is shown."""

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show the change.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def carried_out(change: Change, title: str, word: str, *, dry_run: bool, yes: bool) -> bool:
    """Shows a change and makes it, if it is wanted; whether all is as it should be then.

    Raises:
        Unfit: it cannot be made.
    """
    if not change.is_one:
        return True
    note(f"{title}: {change.file}")
    for line in change.lines():
        click.secho(sayable(line)[:MOST], err=True, fg="green" if line.startswith("+") else "red")
    if dry_run:
        return False
    if not yes and not is_interactive():
        raise click.UsageError(f"There is nobody to ask here: give --yes to {word}, or --dry-run to only look.")
    if not yes and not click.confirm("Make this change?", default=False, err=True):
        return False
    make(change)
    return True
