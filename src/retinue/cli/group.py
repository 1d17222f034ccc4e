"""The `retinue` command: its subcommands, their summaries, and the report of errors.

Exit codes: 0 completed; 1 failed; 2 refused before anything ran; 124 the only failure was a timeout; 130 cancelled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from retinue import __version__
from retinue.cli.main import report_cancelled
from retinue.cli.printing import choose_color
from retinue.support.formatting import find_similar_word

COLOR_CHOICES = ("auto", "always", "never")
OLD_OPTION_NAMES = {"surface": "toolset"}
"""Former names of options, accepted for one version and not shown in any help."""


def normalize_option_name(name: str) -> str:
    """Return the present name of an option that may be typed by its former one."""
    return OLD_OPTION_NAMES.get(name, name)


class LazyCommand(NamedTuple):
    """A command that is imported when it is used."""

    target: str
    """`module:name`, below `retinue.cli.commands`."""
    summary: str
    """One line, the same as the command's own."""


COMMAND_SECTIONS = {
    "Dispatch agents": {
        "run": LazyCommand("run:run", "Give one agent one task and print its answer."),
        "delegate": LazyCommand("run:delegate", "Run several agents, each with its own task, in parallel."),
        "resume": LazyCommand("resume:resume", "Continue a session with another task."),
        "chain": LazyCommand("run:chain", "Run agents one after another, each with the previous answer."),
        "demo": LazyCommand("demo:demo", "Run five agents in this directory, without a key or network."),
    },
    "Active runs": {
        "watch": LazyCommand("watch:watch", "Show all running agents, including those started by other processes."),
        "steer": LazyCommand("steer:steer", "Send a message to a running agent."),
        "extend": LazyCommand("extend:extend", "Extend the timeout of a run."),
        "cancel": LazyCommand("cancel:cancel", "Cancel runs, including those of other processes."),
        "serve": LazyCommand(
            "serve:serve", "Serve the dashboard and the HTTP API, to show, start, cancel and resume runs."
        ),
    },
    "Inspect and configure": {
        "agents": LazyCommand("agents:agents", "List, show, check, approve, create, edit and delete agents."),
        "sessions": LazyCommand("sessions:sessions", "List, show, resume and prune earlier runs."),
        "worktrees": LazyCommand("worktrees:worktrees", "List, show, merge and discard the git worktrees of runs."),
        "events": LazyCommand("events:events", "Print the events of a conversation as JSON lines."),
        "models": LazyCommand("models:models", "List the providers and models of the api engine."),
        "setup": LazyCommand("setup:setup", "Find engines, write your configuration, and test it with one task."),
        "config": LazyCommand("config:config", "Show and change your settings."),
        "doctor": LazyCommand(
            "doctor:doctor", "Check whether a model can be used, and list problems with their fixes."
        ),
    },
    "Other programs": {
        "install": LazyCommand("install:install", "Add Retinue's tools to another program's configuration."),
        "uninstall": LazyCommand("install:uninstall", "Remove Retinue's tools from another program's configuration."),
    },
    "For programs": {
        "call": LazyCommand("call:call", "Call a toolset's tool with JSON and print its result."),
        "mcp": LazyCommand("mcp:mcp", "Serve toolsets to a host that speaks MCP."),
        "bridge": LazyCommand("bridge:bridge", "Serve a toolset's tools to an extension of a host."),
        "tools": LazyCommand("tools:tools", "Show a toolset's tools as a host would register them."),
        "help": LazyCommand("help:help_command", "Show the help of a command."),
        "completion": LazyCommand("completion:completion", "Print the completion script of a shell."),
    },
}


SIMILAR_COMMANDS = {
    "add": "install", "ask": "run", "continue": "resume", "dashboard": "serve", "exec": "run",
    "export": "sessions show", "history": "sessions list", "init": "setup", "kill": "cancel",
    "list": "sessions list", "log": "events --follow", "login": "setup", "logs": "events --follow",
    "ls": "sessions list", "lst": "sessions list", "merge": "worktrees merge", "new": "agents new",
    "prune": "sessions prune", "ps": "watch", "search": "sessions list --search", "settings": "config",
    "show": "sessions show ID", "start": "run", "status": "watch", "stop": "cancel", "top": "watch",
    "trust": "agents trust", "ui": "serve", "version": "--version", "web": "serve",
}  # fmt: skip
"""What other programs call our commands."""
OPTION_SECTIONS = {
    "Run": ("engine", "model", "effort", "cwd", "session", "is_continued", "name", "steps", "output_schema"),
    "Limits": ("timeout", "max_depth", "max_concurrency", "max_turns", "max_tokens", "max_cost"),
    "Permissions": ("allow_write", "isolation", "project_agents", "sandbox", "policy"),
    "Output": ("as_json", "quiet", "stream"),
}
"""The options of each heading, by the names of their parameters; others are under `Options`."""
MAX_SUMMARY_CHARS = 200
"""Characters of the summary of a command."""
MAX_OPTION_COLUMNS = 26
"""Columns of the longest option that keeps its description beside it."""


class LazyGroup(click.Group):
    """A group that lists its commands under headings from a table and imports each when it is used."""

    similar = SIMILAR_COMMANDS

    def __init__(self, *, sections: Mapping[str, Mapping[str, LazyCommand]], **rest: Any) -> None:
        super().__init__(**rest)
        self._sections = sections
        self._entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def main(self, args: Sequence[str] | None = None, *others: Any, **more: Any) -> Any:
        """Run a command and exit with its code; report errors as text or as the JSON that was asked for."""
        typed = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(typed, *others, **{**more, "standalone_mode": False})
        except click.Abort as abort:
            # Click turns every EOFError into Abort, as if Ctrl-D had answered one of its prompts.
            fault = abort.__cause__
            code = _report_exception(fault, typed) if isinstance(fault, EOFError) else report_cancelled(typed)
        except Exception as error:  # noqa: BLE001 - the last place that can report it
            code = _report_exception(error, typed)
        sys.exit(code or 0)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.target.partition(":")
        command = getattr(import_module(f"retinue.cli.commands.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._entries and not name.startswith("-") and not ctx.resilient_parsing:
            raise unknown_command_error(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Click's own method would import every command for its summary.
        widest = max(map(len, self._entries))
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), entry.summary) for name, entry in section.items()])


def unknown_command_error(ctx: click.Context, name: str) -> click.UsageError:
    """Return the error for a command that the group of the context does not have, with the one that was meant."""
    group = ctx.command
    assert isinstance(group, LazyGroup | CommandGroup)
    near = find_similar_word(name, [*group.list_commands(ctx), *group.similar])
    hint = f" Did you mean `{ctx.command_path} {group.similar.get(near, near)}`?" if near else ""
    return click.UsageError(f"No such command '{name}'.{hint}", ctx)


def _report_exception(error: Exception, typed: Sequence[str]) -> int:
    if isinstance(error.__cause__, KeyboardInterrupt):  # Python wraps Ctrl-C while a class is created
        return report_cancelled(typed)
    from retinue.cli.exit import report_error

    return report_error(error, typed, choose_color(os.environ, _find_color_choice(typed)))


def _find_color_choice(typed: Sequence[str]) -> str:
    """Return the value of --color before the command: an error may end the command before it is known."""
    for word, following in zip(typed, [*typed[1:], ""], strict=False):
        if not word.startswith("-"):
            break
        name, has_value, value = word.partition("=")
        choice = value if has_value else following
        if name == "--color" and choice in COLOR_CHOICES:
            return choice
    return "auto"


@click.group(
    cls=LazyGroup,
    sections=COMMAND_SECTIONS,
    invoke_without_command=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "token_normalize_func": normalize_option_name,
    },
    epilog="Start with `retinue demo`. Each command has its own help: `retinue run --help`.",
)
@click.version_option(__version__, "-V", "--version", message="retinue %(version)s")
@click.option(
    "--color",
    type=click.Choice(COLOR_CHOICES),
    default="auto",
    help="Use colors: auto means on terminals, and honors NO_COLOR and FORCE_COLOR.",
)
@click.pass_context
def root(ctx: click.Context, color: str) -> None:
    """Run agents as tool calls: limited, observable and resumable, on any engine."""
    ctx.color = choose_color(os.environ, color)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        return
    try:
        os.getcwd()  # noqa: PTH109 - only checks that there is one
    except OSError as error:
        raise click.UsageError(
            f"The current directory cannot be used ({error.strerror}). Change to another."
        ) from error


class CommandGroup(click.Group):
    """A group below the `retinue` command: its summaries wrap, and an unknown command gets a suggestion."""

    def __init__(self, *, similar: Mapping[str, str], **rest: Any) -> None:
        super().__init__(**rest)
        self.similar = similar
        """What other programs call our commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            raise unknown_command_error(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Click's own method cuts the summaries to one line.
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(MAX_SUMMARY_CHARS)) for name in sorted(self.commands)]
            )


class SectionedCommand(click.Command):
    """A command that lists its options under headings, all descriptions in one column."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = {title: rows for title, rows in self._list_sections(ctx) if rows}
        widest = max((len(option) for rows in sections.values() for option, _ in rows), default=0)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(option.ljust(min(widest, MAX_OPTION_COLUMNS)), text) for option, text in rows],
                    col_max=MAX_OPTION_COLUMNS,
                )

    def _list_sections(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        titles = {name: title for title, names in OPTION_SECTIONS.items() for name in names}
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        records = [(titles.get(each.name or ""), each.get_help_record(ctx)) for each in options]
        for wanted in (*OPTION_SECTIONS, None):
            yield wanted or "Options", [record for title, record in records if record and title == wanted]
