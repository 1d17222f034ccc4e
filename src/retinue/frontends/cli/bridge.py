"""`retinue bridge`: the tools of a surface for an extension that runs inside a host."""

from __future__ import annotations

import anyio
import click

from retinue.app import Retinue
from retinue.frontends.cli.inputs import Unreadable
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

    try:
        retinue = Retinue(cwd=options.cwd, settings=options.settings(), root=root, owns_process=True)
    except ValueError as error:
        raise Unreadable(f"{error}. Nothing was started.") from error
    if surface not in retinue.surfaces:
        raise click.UsageError(unknown("surface", surface, retinue.surfaces))
    ctx.exit(anyio.run(on_stdio, retinue, surface))
