"""`retinue mcp`: toolsets for a host that speaks the Model Context Protocol."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from retinue.cli.group import SectionedCommand
from retinue.cli.options import InvalidInputError, RunOptions, WholeNumberType, for_users_only, server_options
from retinue.cli.printing import help_examples, print_hint
from retinue.cli.runner import make_server_retinue
from retinue.support.formatting import unknown_name_message

if TYPE_CHECKING:
    from retinue.servers.mcp.serving import MountOptions


class ToolsetNamesType(click.ParamType[tuple[str, ...]]):
    """Names of toolsets, with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(filter(None, (name.strip() for name in value.split(",")))))
        if not names:
            self.fail("The value is empty: name at least one toolset.", param, ctx)
        return names


class ClientNameType(click.ParamType[str]):
    """The name of a client, which is also the name of its token file."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from retinue.servers.asgi.tokens import CLIENT_NAME_PATTERN

        if not re.fullmatch(CLIENT_NAME_PATTERN, value):
            self.fail("A name has letters, digits, - and _, at most 64 characters.", param, ctx)
        return str(value)


@click.command(
    cls=SectionedCommand,
    epilog=help_examples(
        "retinue mcp",
        "retinue mcp --toolset sticky --background --engine pi",
        "retinue mcp --http 8765 --client editor --client ci",
    ),
)
@click.option(
    "--toolset",
    "toolsets",
    type=ToolsetNamesType(),
    default="single,fanout",
    show_default=True,
    metavar="NAMES",
    help="Toolsets to serve, separated by commas.",
)
@click.option(
    "--background",
    is_flag=True,
    help="Also serve tools to start, inspect, await, steer and cancel long work by id, and MCP tasks.",
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Also allow agents to work and read files below this directory.",
)
@click.option(
    "--http",
    "port",
    type=WholeNumberType(0, 65535),
    metavar="PORT",
    help="Serve HTTP on loopback instead of stdin and stdout; 0: any free port.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=ClientNameType(),
    metavar="NAME",
    help="With --http: a client with a token and sessions of its own.",
)
@server_options
@click.pass_context
@for_users_only
def mcp(
    ctx: click.Context,
    /,
    toolsets: tuple[str, ...],
    background: bool,
    roots: tuple[str, ...],
    port: int | None,
    clients: tuple[str, ...],
    **flags: Any,
) -> None:
    """Serve toolsets to a host that speaks MCP.

    Serve on stdin and stdout until the host closes them. Agents work in this directory, or --cwd, and below it. The
    engine auto never selects offline here, because offline is not a model.
    """
    from retinue.servers.lifecycle import ServerStartError

    options = RunOptions(**flags)
    retinue = make_server_retinue(options)
    for name in toolsets:
        if name not in retinue.toolsets:
            raise click.UsageError(unknown_name_message("toolset", name, retinue.toolsets))
    if clients and port is None:
        raise click.UsageError("--client requires --http: on stdin and stdout there is only one client.")
    from retinue.servers.mcp.serving import MountOptions, serve_stdio_client

    mount = MountOptions(
        toolsets=toolsets, background=background, roots=(retinue.cwd, *(str(Path(root).absolute()) for root in roots))
    )
    if port is None and sys.stdin is not None and sys.stdin.isatty():
        print_hint(TERMINAL_HINT)
    try:
        code = (
            anyio.run(serve_stdio_client, retinue, mount)
            if port is None
            else _serve_http(mount, port, clients, options)
        )
    except ServerStartError as error:
        raise InvalidInputError(str(error)) from error
    ctx.exit(code)


TERMINAL_HINT = (
    "This is an MCP server: it waits for JSON-RPC messages of a host on stdin. Ctrl-C or Ctrl-D ends it.\n"
    "`retinue install HOST` lets a host start it; `retinue run AGENT TASK` runs an agent here."
)


def _serve_http(mount: MountOptions, port: int, clients: tuple[str, ...], options: RunOptions) -> int:
    from retinue.servers.asgi.tokens import load_client_token
    from retinue.servers.mcp.serving import PATH, serve_http_clients

    state = make_server_retinue(options).state
    tokens = [load_client_token(state, name) for name in clients] or [load_client_token(state)]

    def ready(found: int) -> None:
        print_hint(f"Serving MCP on http://127.0.0.1:{found}{PATH}")
        for token in tokens:
            print_hint(f"Clients send `Authorization: Bearer TOKEN`, with the token in {token.file}")

    served = {token.digest: make_server_retinue(options, client=token.client) for token in tokens}
    return anyio.run(serve_http_clients, served, mount, port, ready)
