"""`retinue completion`: print the completion script of a shell; also the completion of agents, sessions and runs.

Completion only reads: it recovers no interrupted run, so the next command can still report it.
"""

from __future__ import annotations

import click

from retinue.cli.printing import help_examples, print_lines
from retinue.support.formatting import SHORT_ID_LENGTH

MAX_SESSIONS = 50
"""Sessions offered for completion."""


@click.command(
    epilog=help_examples(
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
    assert kind is not None, shell
    script = kind(ctx.find_root().command, {}, "retinue", "_RETINUE_COMPLETE")
    # Not `source()`: for bash it starts a shell to ask for its version.
    print_lines([script.source_template % script.source_vars()])


def complete_agents(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the agents that can be called from here."""
    from retinue.client import Retinue

    return [name for name in Retinue().roster().names() if name.startswith(incomplete)]


def complete_engines(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the engines of this installation."""
    from retinue.client import Retinue

    return [name for name in ("auto", *Retinue().engines) if name.startswith(incomplete)]


def complete_providers(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the providers of engines that call models themselves."""
    from retinue.client import Retinue

    listing = (kind.list_providers(None) for kind in Retinue().engines.values() if kind.list_providers)
    return [provider.name for found in listing for provider in found if provider.name.startswith(incomplete)]


def complete_sessions(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of the latest sessions."""
    import anyio

    from retinue.client import Retinue
    from retinue.sessions.store import SessionFilter

    found = anyio.run(Retinue().sessions, SessionFilter(limit=MAX_SESSIONS))
    return [summary.session[:SHORT_ID_LENGTH] for summary in found if summary.session.startswith(incomplete)]


def complete_runs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of active runs of all processes."""
    import anyio

    from retinue.client import Retinue

    return [owner.run[:SHORT_ID_LENGTH] for owner in anyio.run(Retinue().owners) if owner.run.startswith(incomplete)]
