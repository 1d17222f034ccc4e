"""A change of somebody's file from the command line: shown, asked about, made."""

from __future__ import annotations

import click

from retinue.cli.printing import make_printable, print_hint
from retinue.cli.trust_prompt import is_interactive
from retinue.hosts.changes import ConfigChange, apply_change

MAX_COLUMNS = 500
"""Characters of a line that is shown."""

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show the change.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def confirm_and_apply(change: ConfigChange, title: str, verb: str, *, dry_run: bool, yes: bool) -> bool:
    """Shows a change and makes it, if it is wanted; whether all is as it should be then.

    Raises:
        Unfit: it cannot be made.
    """
    if not change.is_needed:
        return True
    print_hint(f"{title}: {change.file}")
    for line in change.diff_lines():
        click.secho(make_printable(line)[:MAX_COLUMNS], err=True, fg="green" if line.startswith("+") else "red")
    if dry_run:
        return False
    if not yes and not is_interactive():
        raise click.UsageError(f"There is nobody to ask here: give --yes to {verb}, or --dry-run to only look.")
    if not yes and not click.confirm("Make this change?", default=False, err=True):
        return False
    apply_change(change)
    return True
