"""`retinue mcp`: the tools of surfaces for a host that speaks the Model Context Protocol."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import click

from retinue.frontends.cli.inputs import Unreadable
from retinue.frontends.cli.opening import opened_to_serve
from retinue.frontends.cli.options import Options, server_options
from retinue.frontends.cli.talk import examples, note
from retinue.frontends.wording import unknown


class Surfaces(click.ParamType[tuple[str, ...]]):
    """Names of surfaces, with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(filter(None, (name.strip() for name in value.split(",")))))
        if not names:
            self.fail("It is empty: name at least one surface.", param, ctx)
        return names


class ClientName(click.ParamType[str]):
    """The name of a client: its token's file is called so."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from retinue.frontends.web.tokens import NAMES

        if not re.fullmatch(NAMES, value):
            self.fail("It must be letters, digits, - and _, at most 64 of them.", param, ctx)
        return str(value)


@click.command(
    epilog=examples(
        "retinue mcp",
        "retinue mcp --surface sticky --background --engine pi",
        "retinue mcp --http 8765 --client editor --client ci",
    )
)
@click.option(
    "--surface",
    "surfaces",
    type=Surfaces(),
    default="single,fanout",
    show_default=True,
    metavar="NAMES",
    help="Whose tools, with commas between them.",
)
@click.option(
    "--background",
    is_flag=True,
    help="Also tools to start, look at, wait for, steer and cancel long work by id, and the protocol's tasks.",
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Let agents also work and read files below this directory.",
)
@click.option(
    "--http",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve HTTP on loopback instead of stdin and stdout; 0: any free port.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=ClientName(),
    metavar="NAME",
    help="With --http: a client with a token and sessions of its own.",
)
@server_options
@click.pass_context
def mcp(
    ctx: click.Context,
    surfaces: tuple[str, ...],
    background: bool,
    roots: tuple[str, ...],
    port: int | None,
    clients: tuple[str, ...],
    options: Options,
) -> None:
    """Serve the tools of surfaces to a host that speaks MCP.

    On stdin and stdout, until the host closes them. Agents work in this directory, or --cwd, and below it. The engine
    auto never means offline here: a host's model must not take rules for an agent.
    """
    from retinue.frontends.mcp.sdk import missing
    from retinue.frontends.server import Unservable

    retinue = opened_to_serve(options)
    for name in surfaces:
        if name not in retinue.surfaces:
            raise click.UsageError(unknown("surface", name, retinue.surfaces))
    if clients and port is None:
        raise click.UsageError("--client is for --http: on stdin and stdout there is one client, and it is you.")
    if sentence := missing():
        raise Unreadable(sentence)
    from retinue.frontends.mcp.serving import Mount, on_stdio

    mount = Mount(
        surfaces=surfaces,
        background=background,
        roots=(retinue.cwd, *(str(Path(root).absolute()) for root in roots)),
    )
    try:
        code = anyio.run(on_stdio, retinue, mount) if port is None else _on_http(mount, port, clients, options)
    except Unservable as error:
        raise Unreadable(str(error)) from error
    ctx.exit(code)


def _on_http(mount: Any, port: int, clients: tuple[str, ...], options: Options) -> int:
    from retinue.frontends.mcp.gate import PATH
    from retinue.frontends.mcp.serving import on_http
    from retinue.frontends.web.tokens import token_of

    state = opened_to_serve(options).state
    tokens = [token_of(state, name) for name in clients] or [token_of(state)]

    def ready(found: int) -> None:
        note(f"Serving MCP on http://127.0.0.1:{found}{PATH}")
        for token in tokens:
            note(f"Authorization: Bearer with the token in {token.file}")

    # Several Retinues in one process would take each other's children for orphans.
    alone = len(tokens) == 1
    served = {token.digest: opened_to_serve(options, client=token.client, owns_process=alone) for token in tokens}
    return anyio.run(on_http, served, mount, port, ready)
