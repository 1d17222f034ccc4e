"""Generate the page of the command line from the commands."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

import click
from docs._generate.tables import code, table

from retinue.cli.group import COMMAND_SECTIONS, root
from retinue.cli.options import RunOptions

COMMON = frozenset(RunOptions.__struct_fields__)
"""The parameters of every command that runs agents."""


def cli_page() -> str:
    context = click.Context(root, info_name="retinue")
    sections = "\n".join(_section(title, list(names), context) for title, names in COMMAND_SECTIONS.items())
    run = root.get_command(context, "run")
    assert run is not None
    flags = _flags([param for param in run.params if param.name in COMMON], context)
    return f"""\
# Commands

{inspect.cleandoc(root.help or "")} `retinue --version` prints the version; every command has `--help`.

Answers go to stdout, everything else to stderr. `--json` prints JSON on stdout.

{sections}
## Common flags

Of `run`, `delegate`, `chain`, `call` and `sessions resume`. They win over the environment and over every file; see
[settings](settings.md).

{flags}"""


def _section(title: str, names: list[str], context: click.Context) -> str:
    parts: list[str] = []
    for name in names:
        command = root.get_command(context, name)
        assert command is not None, name
        parts += _command_parts(command, click.Context(command, info_name=name, parent=context))
    return "\n".join([f"## {title}\n", *parts])


def _command_parts(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the text of a command and of its subcommands."""
    yield _describe_command(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            within = command.commands[name]
            yield _describe_command(within, click.Context(within, info_name=name, parent=context))


def _describe_command(command: click.Command, context: click.Context) -> str:
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    is_common = {param.name for param in command.params} >= COMMON
    own = [param for param in command.params if not (is_common and param.name in COMMON)]
    flags = [_flags(own, context)] if any(isinstance(param, click.Option) for param in own) else []
    more = ["And the [common flags](#common-flags).\n"] if is_common else []
    parts = [f"### {context.command_path}\n", _fenced(usage), *_prose(command.help), *flags, *more]
    return "\n".join([*parts, *_prose(command.epilog)])


def _prose(text: str | None) -> Iterator[str]:
    """Yield the paragraphs of click's help text; those it must not wrap become blocks."""
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if first == "\b":
            title, _, lines = rest.partition("\n")
            yield f"{title}\n"
            yield _fenced(textwrap.dedent(lines))
        elif paragraph:
            yield f"{' '.join(paragraph.split())}\n"


def _flags(params: list[click.Parameter], context: click.Context) -> str:
    options = [param for param in params if isinstance(param, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    return table(["flag", "meaning"], [(code(names), " ".join(meaning.split())) for names, meaning in records])


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```\n"
