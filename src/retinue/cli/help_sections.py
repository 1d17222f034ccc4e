"""Options under headings in the help of a command."""

from __future__ import annotations

from collections.abc import Iterator

import click

OPTION_SECTIONS = {
    "Run": ("engine", "model", "effort", "cwd", "session", "is_continued", "name", "steps", "output_schema"),
    "Limits": ("timeout", "max_depth", "max_concurrency", "max_turns", "max_tokens", "max_cost"),
    "Permissions": ("allow_write", "project_agents", "sandbox", "policy"),
    "Output": ("as_json", "quiet", "stream"),
}
"""The options of each heading, by the names of their parameters; others are under `Options`."""
MAX_OPTION_COLUMNS = 26
"""Columns of the longest option that keeps its description beside it."""


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
