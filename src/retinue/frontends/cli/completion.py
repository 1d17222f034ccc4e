"""`retinue completion`: the script that teaches a shell to complete, and what it completes beside words of ours.

Completing only looks: it ends no interrupted run, and keeps no news from whoever dispatches next.
"""

from __future__ import annotations

import click

from retinue.frontends.cli.talk import examples, lines
from retinue.frontends.wording import SHORT

LATEST = 50
"""Sessions a shell offers."""


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
    lines([script.source_template % script.source_vars()])


def agent_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The agents that can be called from here."""
    from retinue.app import Retinue

    return [name for name in Retinue().roster().names() if name.startswith(incomplete)]


def engine_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The engines of this installation."""
    from retinue.app import Retinue

    return [name for name in ("auto", *Retinue().engines) if name.startswith(incomplete)]


def session_ids(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The latest sessions."""
    import anyio

    from retinue.app import Retinue
    from retinue.sessions.store import Wanted

    found = anyio.run(Retinue().sessions, Wanted(limit=LATEST))
    return [summary.session[:SHORT] for summary in found if summary.session.startswith(incomplete)]


def run_ids(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """What runs at this moment, in whatever process."""
    import anyio

    from retinue.app import Retinue

    return [owner.run[:SHORT] for owner in anyio.run(Retinue().owners) if owner.run.startswith(incomplete)]
