"""`retinue tools`: show the tools a host would register."""

from __future__ import annotations

import anyio
import click
import msgspec

from retinue.cli.options import RunOptions, cwd_option, json_option
from retinue.cli.printing import help_examples, print_hint, print_json, print_lines
from retinue.cli.runner import live_view, make_retinue, restore_signal_handlers, run_watched
from retinue.output.json_text import encode_json
from retinue.output.untrusted_text import strip_control_characters
from retinue.servers.delegation_hint import render_hint
from retinue.support.formatting import unknown_name_message
from retinue.toolsets.base import ToolDefinition


@click.command(
    epilog=help_examples("retinue tools", "retinue tools --toolset single --json", "retinue tools --policy")
)
@click.option("--toolset", default="single", show_default=True, metavar="NAME", help="Toolset to serve.")
@click.option(
    "--policy",
    "shows_policy",
    is_flag=True,
    help="Print the delegation hint for a host's model instead: when to delegate, and to which agents.",
)
@json_option
@cwd_option
def tools(toolset: str, shows_policy: bool, as_json: bool, cwd: str | None) -> None:
    """Show a toolset's tools as a host would register them.

    With --json: name, description and inputSchema of each. A host's model gets the delegation hint only if you
    enable it, with the setting policy or with `retinue mcp --policy`.
    """
    options = RunOptions(cwd=cwd)
    retinue = make_retinue(options)
    if shows_policy:
        text = render_hint(retinue)
        print_json({"policy": text}) if as_json else print_lines([text])
        return

    async def list_tools() -> tuple[ToolDefinition, ...]:
        return retinue.toolset(toolset).list_tools(retinue.call(toolset))

    if toolset not in retinue.toolsets:
        raise click.UsageError(unknown_name_message("toolset", toolset, retinue.toolsets))
    with live_view(retinue, toolset, options, shows_progress=False) as view, restore_signal_handlers():
        found = anyio.run(run_watched, retinue, list_tools, view, toolset, options)
    if as_json:
        print_json(
            {
                "tools": [
                    {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
                    for tool in found
                ]
            }
        )
        return
    for tool in found:
        schema = msgspec.json.format(encode_json(tool.input_schema)).decode()
        print_lines([click.style(tool.name, bold=True), strip_control_characters(tool.description), "", schema])
    if not found:
        print_hint(
            f"No tool of {toolset} is available here: `retinue doctor --all` shows the settings enabled and "
            "max_depth."
        )
