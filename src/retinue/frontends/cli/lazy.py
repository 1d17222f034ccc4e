"""Commands that are imported when they are used: listing them imports none."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

import click

from retinue.frontends.cli.helping import did_you_mean


class Entry(NamedTuple):
    """A command before it is imported."""

    place: str
    """`module:name`, below `retinue.frontends.cli`."""
    summary: str
    """One line, the same as the command's own."""


class LazyGroup(click.Group):
    """A group whose commands stand in a table, under headings."""

    def __init__(self, *, sections: Mapping[str, Mapping[str, Entry]], **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]  # click's own parameters, handed through
        self._sections = sections
        self._entries = {name: entry for section in sections.values() for name, entry in section.items()}

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
