"""`retinue completion`: print the completion script of a shell; also the completion of agents, sessions and runs.

Completion only reads: it recovers no interrupted run, so the next command can still report it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from retinue.cli.printing import help_examples, print_lines
from retinue.support.formatting import SHORT_ID_LENGTH

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

MAX_SESSIONS = 50
"""Sessions offered for completion."""
MAX_HELP_CHARS = 60
"""Characters of a description beside a value."""


@click.command(
    epilog=help_examples(
        """echo 'eval "$(retinue completion bash)"' >> ~/.bashrc""",
        """echo 'eval "$(retinue completion zsh)"' >> ~/.zshrc""",
        "retinue completion fish > ~/.config/fish/completions/retinue.fish",
        "retinue completion powershell | Out-String | Invoke-Expression",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "powershell"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, flags, agents, engines, sessions and runs; zsh, fish and PowerShell show descriptions.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        from importlib.metadata import version

        raise click.UsageError(f"The installed click {version('click')} cannot complete {shell}: upgrade it.")
    script = kind(ctx.find_root().command, {}, "retinue", "_RETINUE_COMPLETE")
    # Not `source()`: for bash it starts a shell to ask for its version.
    print_lines([script.source_template % script.source_vars()])


def complete_agents(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the agents that can be called from here, with their descriptions."""
    from retinue.client import Retinue

    roster = Retinue().roster()
    return _list_items(((name, getattr(roster.find(name), "description", "")) for name in roster.names()), incomplete)


def complete_engines(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the engines of this installation, with what each is."""
    from retinue.client import Retinue

    engines = ((name, kind.summary_for(None)) for name, kind in Retinue().engines.items())
    return _list_items((("auto", "the first engine that is ready"), *engines), incomplete)


def complete_providers(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the providers of engines that call models themselves, with what each needs."""
    from retinue.client import Retinue

    listing = (kind.list_providers(None) for kind in Retinue().engines.values() if kind.list_providers)
    providers = (provider for found in listing for provider in found)
    return _list_items(((each.name, each.missing or f"by {each.configured_by}") for each in providers), incomplete)


def complete_sessions(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the ids of the latest sessions, with agent and task."""
    import anyio

    from retinue.client import Retinue
    from retinue.sessions.store import SessionFilter

    found = anyio.run(Retinue().sessions, SessionFilter(limit=MAX_SESSIONS))
    rows = ((each.session[:SHORT_ID_LENGTH], f"{each.agent}: {each.task}") for each in found)
    return _list_items(rows, incomplete)


def complete_runs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the ids of active runs of all processes."""
    import anyio

    from retinue.client import Retinue

    return _list_items(((owner.run[:SHORT_ID_LENGTH], "") for owner in anyio.run(Retinue().owners)), incomplete)


def _list_items(rows: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem[str]]:
    """Return the values that start with what was typed, each with its sanitized description."""
    from click.shell_completion import CompletionItem

    from retinue.output.untrusted_text import to_one_line

    return [
        CompletionItem(value, help=to_one_line(text, MAX_HELP_CHARS) or None)
        for value, text in rows
        if value.startswith(incomplete)
    ]


def complete_worktrees(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the worktrees of runs, with their agents and tasks."""
    from retinue.client import Retinue

    found = Retinue().worktrees.list_all()
    return _list_items(((each.id, f"{each.agent}: {each.task}") for each in found), incomplete)
