"""`retinue completion`: the script that teaches a shell to complete."""

from __future__ import annotations

import click

from retinue.frontends.cli.helping import examples


@click.command(
    epilog=examples(
        """echo 'eval "$(retinue completion bash)"' >> ~/.bashrc""",
        """echo 'eval "$(retinue completion zsh)"' >> ~/.zshrc""",
        "retinue completion fish > ~/.config/fish/completions/retinue.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, flags, agents and sessions.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, shell  # the choices are click's own
    script = kind(ctx.find_root().command, {}, "retinue", "_RETINUE_COMPLETE")
    # Not `source()`: for bash it starts a shell to ask for its version.
    click.echo(script.source_template % script.source_vars())
