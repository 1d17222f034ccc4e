"""`retinue help`: show the help of a command."""

from __future__ import annotations

import click

from retinue.cli.printing import help_examples
from retinue.support.formatting import suggest_spelling


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
        known = group.list_commands(shown) if isinstance(group, click.Group) else []
        found = group.get_command(shown, word) if isinstance(group, click.Group) else None
        if found is None:
            raise click.UsageError(f"No such command '{' '.join(words)}'.{suggest_spelling(word, known)}", shown)
        shown = click.Context(found, info_name=word, parent=shown, **found.context_settings)
    click.echo(shown.get_help(), color=shown.color)
