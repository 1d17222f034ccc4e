"""`retinue bridge`: serve a toolset to an extension that runs inside a host."""

from __future__ import annotations

from typing import Any

import anyio
import click

from retinue.cli.group import SectionedCommand
from retinue.cli.options import HOST_ID, RunOptions, for_users_only, server_options
from retinue.cli.printing import help_examples
from retinue.cli.runner import make_server_retinue
from retinue.support.formatting import unknown_name_message


@click.command(cls=SectionedCommand, epilog=help_examples("retinue bridge --toolset fanout --root CONVERSATION"))
@click.option("--toolset", default="fanout", show_default=True, metavar="NAME", help="Toolset to serve.")
@click.option(
    "--root",
    type=HOST_ID,
    metavar="ID",
    help="The host's conversation that the runs belong to.  [default: a new one]",
)
@server_options
@click.pass_context
@for_users_only
def bridge(ctx: click.Context, /, toolset: str, root: str | None, **flags: Any) -> None:
    """Serve a toolset's tools to an extension of a host.

    Serve JSON lines on stdin and stdout until the extension closes them; docs/hosts.md describes the protocol. The
    extension for pi starts this command itself. The engine auto never selects offline here.
    """
    from retinue.servers.bridge.server import serve_bridge

    retinue = make_server_retinue(RunOptions(**flags), root=root)
    if toolset not in retinue.toolsets:
        raise click.UsageError(unknown_name_message("toolset", toolset, retinue.toolsets))
    ctx.exit(anyio.run(serve_bridge, retinue, toolset))
