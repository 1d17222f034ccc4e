"""`retinue bridge`: the tools of a surface for an extension that runs inside a host."""

from __future__ import annotations

import anyio
import click

from retinue.frontends.cli.opening import opened_to_serve
from retinue.frontends.cli.options import HOST_ID, Options, server_options
from retinue.frontends.cli.talk import examples
from retinue.frontends.wording import unknown


@click.command(epilog=examples("retinue bridge --surface fanout --root CONVERSATION"))
@click.option("--surface", default="fanout", show_default=True, metavar="NAME", help="Whose tools.")
@click.option(
    "--root", type=HOST_ID, metavar="ID", help="The host's conversation it belongs to; a new one if not given."
)
@server_options
@click.pass_context
def bridge(ctx: click.Context, surface: str, root: str | None, options: Options) -> None:
    """Carry a surface's tools to an extension inside a host.

    On stdin and stdout, as JSON lines, until the extension closes them: docs/hosts.md has the protocol. The extension
    for pi starts it by itself. The engine auto never means offline here.
    """
    from retinue.frontends.bridge.stdio import on_stdio

    retinue = opened_to_serve(options, root=root)
    if surface not in retinue.surfaces:
        raise click.UsageError(unknown("surface", surface, retinue.surfaces))
    ctx.exit(anyio.run(on_stdio, retinue, surface))
