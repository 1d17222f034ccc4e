"""The `retinue` command: what there is to type, and how it ends whatever happens.

Exit codes: 0 completed; 1 failed; 2 refused before anything ran; 124 the only failure was a timeout; 130 cancelled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from retinue import __version__
from retinue.frontends.cli.main import cancelled
from retinue.frontends.cli.talk import is_colorless
from retinue.frontends.wording import did_you_mean


class Entry(NamedTuple):
    """A command before it is imported."""

    place: str
    """`module:name`, below `retinue.frontends.cli`."""
    summary: str
    """One line, the same as the command's own."""


SECTIONS = {
    "Dispatch agents": {
        "run": Entry("dispatching:run", "Give one agent one task and print its answer."),
        "delegate": Entry("dispatching:delegate", "Give many agents a task each, several at once."),
        "chain": Entry("dispatching:chain", "Give agents one task after another, passing answers on."),
        "demo": Entry("demo:demo", "See five agents at work here: no key, no network."),
    },
    "What runs": {
        "watch": Entry("watch:watch", "See what runs, in whatever process it was started."),
        "steer": Entry("steer:steer", "Say something to an agent while it works."),
        "extend": Entry("extend:extend", "Give a run more time."),
        "cancel": Entry("cancel:cancel", "Stop runs, in whatever process they are."),
        "serve": Entry("serve:serve", "Serve the dashboard and the HTTP API: see, start, stop and continue runs."),
    },
    "What there is": {
        "agents": Entry("agents:agents", "List, show, check, accept, begin, edit and delete agents."),
        "sessions": Entry("sessions:sessions", "List, read, continue and forget earlier runs."),
        "events": Entry("events:events", "Print what happened in a conversation, as JSON lines."),
        "setup": Entry("setup:setup", "Find engines, write your configuration, and try it with one task."),
        "doctor": Entry("doctor:doctor", "Show engines, settings and what is wrong, with what to do."),
    },
    "Other programs": {
        "install": Entry("install:install", "Give another program our tools, in its own configuration."),
        "uninstall": Entry("install:uninstall", "Take our tools out of another program's configuration."),
    },
    "For programs": {
        "call": Entry("call:call", "Call a surface's tool with JSON and print its result."),
        "mcp": Entry("mcp:mcp", "Serve the tools of surfaces to a host that speaks MCP."),
        "bridge": Entry("bridge:bridge", "Carry a surface's tools to an extension inside a host."),
        "tools": Entry("tools:tools", "Show a surface's tools as a host would register them."),
        "completion": Entry("completion:completion", "Print the completion script of a shell."),
    },
}


class Root(click.Group):
    """A group whose commands stand in a table, under headings, and are imported when they are used."""

    def __init__(self, *, sections: Mapping[str, Mapping[str, Entry]], **rest: Any) -> None:
        super().__init__(**rest)
        self._sections = sections
        self._entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def main(self, args: Sequence[str] | None = None, *others: Any, **more: Any) -> Any:
        """Runs a command and ends with its exit code; what it could not do is told in the form it was asked in."""
        typed = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(typed, *others, **{**more, "standalone_mode": False})
        except click.Abort as abort:
            # Click takes every end of a file for Ctrl-D at a question of its own.
            fault = abort.__cause__
            code = _told(fault, typed) if isinstance(fault, EOFError) else cancelled(typed)
        except Exception as error:  # noqa: BLE001 - the last place where anyone could say something useful
            code = _told(error, typed)
        sys.exit(code or 0)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.place.partition(":")
        command = getattr(import_module(f"retinue.frontends.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._entries and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command '{name}'.{did_you_mean(name, self._entries)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Not click's own: it would import every command to ask for its summary.
        widest = max(map(len, self._entries))
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), entry.summary) for name, entry in section.items()])


def _told(error: Exception, typed: Sequence[str]) -> int:
    if isinstance(error.__cause__, KeyboardInterrupt):  # Python's own wrapping, of Ctrl-C while a class was made
        return cancelled(typed)
    from retinue.frontends.cli.endings import told

    return told(error, typed)


@click.group(
    cls=Root,
    sections=SECTIONS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Begin with `retinue demo`. Each command has its own help: `retinue run --help`.",
)
@click.version_option(__version__, message="retinue %(version)s")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Dispatch agents: bounded, watched, remembered, on any engine."""
    if is_colorless():
        ctx.color = False
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        return
    try:
        os.getcwd()  # noqa: PTH109 - only whether there is one
    except OSError as error:
        raise click.UsageError(
            f"The current directory cannot be used ({error.strerror}). Change to another."
        ) from error
