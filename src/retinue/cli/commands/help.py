"""`retinue help`: show the help of a command."""

from __future__ import annotations

import click

from retinue.cli.group import unknown_command_error
from retinue.cli.printing import help_examples


@click.command("help", epilog=help_examples("retinue help", "retinue help run", "retinue help sessions prune"))
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command.

    Same as --help after the command.
    """
    shown = ctx.find_root()
    for word in words:
        group = shown.command
        found = group.get_command(shown, word) if isinstance(group, click.Group) else None
        if found is None:
            if isinstance(group, click.Group):
                raise unknown_command_error(shown, word)
            raise click.UsageError(f"`{shown.command_path}` has no commands. `{shown.command_path} --help` shows it.")
        shown = click.Context(found, info_name=word, parent=shown, **found.context_settings)
    click.echo(shown.get_help(), color=shown.color)
