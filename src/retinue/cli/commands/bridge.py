"""`retinue bridge`: serve a toolset to an extension that runs inside a host."""

from __future__ import annotations

from typing import Any

import anyio
import click

from retinue.cli.help_sections import SectionedCommand
from retinue.cli.options import HOST_ID, RunOptions, server_options
from retinue.cli.printing import help_examples
from retinue.cli.runner import make_server_retinue
from retinue.support.formatting import unknown_name_message


@click.command(cls=SectionedCommand, epilog=help_examples("retinue bridge --toolset fanout --root CONVERSATION"))
@click.option("--toolset", default="fanout", show_default=True, metavar="NAME", help="Whose tools.")
@click.option(
    "--root", type=HOST_ID, metavar="ID", help="The host's conversation it belongs to; a new one if not given."
)
@server_options
@click.pass_context
def bridge(ctx: click.Context, /, toolset: str, root: str | None, **flags: Any) -> None:
    """Carry a toolset's tools to an extension inside a host.

    On stdin and stdout, as JSON lines, until the extension closes them: docs/hosts.md has the protocol. The extension
    for pi starts it by itself. The engine auto never means offline here.
    """
    from retinue.servers.bridge.server import serve_bridge

    retinue = make_server_retinue(RunOptions(**flags), root=root)
    if toolset not in retinue.toolsets:
        raise click.UsageError(unknown_name_message("toolset", toolset, retinue.toolsets))
    ctx.exit(anyio.run(serve_bridge, retinue, toolset))
