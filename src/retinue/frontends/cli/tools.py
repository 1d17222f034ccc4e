"""`retinue tools`: what a host would register."""

from __future__ import annotations

import click
import msgspec

from retinue.app import Retinue
from retinue.frontends.cli.finding import within
from retinue.frontends.cli.helping import did_you_mean, examples
from retinue.frontends.cli.options import cwd_option, json_option
from retinue.frontends.cli.talk import answer_json, lines, note
from retinue.output.frame import plain
from retinue.surfaces.base import Tool


@click.command(epilog=examples("retinue tools", "retinue tools --surface single --json"))
@click.option("--surface", default="single", show_default=True, help="Whose tools.")
@json_option
@cwd_option
def tools(surface: str, as_json: bool, cwd: str | None) -> None:
    """Show a surface's tools as a host would register them.

    With --json: name, description and inputSchema of each.
    """
    retinue = Retinue(cwd=cwd)
    if surface not in retinue.surfaces:
        near = did_you_mean(surface, retinue.surfaces)
        raise click.UsageError(f"Unknown surface: {surface}.{near} Surfaces: {', '.join(retinue.surfaces)}")
    found = within(lambda opened: _registered(opened, surface), cwd=cwd)
    if as_json:
        answer_json(
            {
                "tools": [
                    {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
                    for tool in found
                ]
            }
        )
        return
    for tool in found:
        click.secho(tool.name, bold=True)
        lines([plain(tool.description), "", msgspec.json.format(msgspec.json.encode(tool.input_schema)).decode()])
    if not found:
        note(f"No tool of {surface} may be registered here: `retinue doctor` shows enabled and max_depth.")


async def _registered(retinue: Retinue, surface: str) -> tuple[Tool, ...]:
    return retinue.surface(surface).tools(retinue.call(surface))
