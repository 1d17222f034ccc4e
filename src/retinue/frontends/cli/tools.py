"""`retinue tools`: what a host would register."""

from __future__ import annotations

import click
import msgspec

from retinue.frontends.cli.opening import opened
from retinue.frontends.cli.options import Options, cwd_option, json_option
from retinue.frontends.cli.talk import answer_json, examples, lines, note
from retinue.frontends.cli.work import at_work
from retinue.frontends.policy import policy
from retinue.frontends.wording import unknown
from retinue.output.frame import plain
from retinue.surfaces.base import Tool


@click.command(epilog=examples("retinue tools", "retinue tools --surface single --json", "retinue tools --policy"))
@click.option("--surface", default="single", show_default=True, metavar="NAME", help="Whose tools.")
@click.option(
    "--policy",
    "shows_policy",
    is_flag=True,
    help="Instead: what a host can tell its model of when to delegate, and to whom.",
)
@json_option
@cwd_option
def tools(surface: str, shows_policy: bool, as_json: bool, cwd: str | None) -> None:
    """Show a surface's tools as a host would register them.

    With --json: name, description and inputSchema of each. A host's model is told the policy only if you say so, with
    the setting policy or with --policy where the host starts us.
    """
    options = Options(cwd=cwd)
    retinue = opened(options)
    if shows_policy:
        text = policy(retinue)
        answer_json({"policy": text}) if as_json else lines([text])
        return

    async def registered() -> tuple[Tool, ...]:
        return retinue.surface(surface).tools(retinue.call(surface))

    if surface not in retinue.surfaces:
        raise click.UsageError(unknown("surface", surface, retinue.surfaces))
    found = at_work(retinue, registered, options, surface=surface, shows_progress=False)
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
        schema = msgspec.json.format(msgspec.json.encode(tool.input_schema)).decode()
        lines([click.style(tool.name, bold=True), plain(tool.description), "", schema])
    if not found:
        note(f"No tool of {surface} may be registered here: `retinue doctor` shows enabled and max_depth.")
