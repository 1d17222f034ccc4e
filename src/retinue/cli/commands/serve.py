"""`retinue serve`: the dashboard and the HTTP API, on loopback."""

from __future__ import annotations

import functools
import socket
import sys
from typing import TYPE_CHECKING, Any

import anyio
import click

from retinue.cli.help_sections import SectionedCommand
from retinue.cli.options import TEXT, InvalidInputError, RunOptions, run_options
from retinue.cli.printing import help_examples, print_hint, print_json, print_json_line

if TYPE_CHECKING:
    from retinue.servers.http.serving import ListenAddress, ServerInfo


DEFAULT_PORT = 8477
EXPOSED_WARNING = (
    "Listening on {host}: whoever can reach this machine there and has the token, or one of these links, can start "
    "agents as you, and nothing on the way is encrypted. Put a proxy with TLS in front, or use an SSH tunnel instead."
)


@click.command(
    cls=SectionedCommand,
    epilog=help_examples(
        "retinue serve",
        "retinue serve --open --engine pi",
        "retinue serve --port 0 --json",
        then="Exit codes: 0 the server runs already, 2 it cannot be started, 130 ended by Ctrl-C or a signal.",
    ),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="PORT",
    help="Where to listen; 0: any free port.",
)
@click.option("--host", type=TEXT, default="127.0.0.1", show_default=True, metavar="HOST", help="On which address.")
@click.option(
    "--listen-anywhere", is_flag=True, help="With --host: let other machines in. Read what it says about that."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    type=TEXT,
    metavar="NAME",
    help="With --host: a name by which others reach this machine.",
)
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in your browser.")
@run_options
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    port: int,
    host: str,
    listen_anywhere: bool,
    names: tuple[str, ...],
    opens: bool,
    **flags: Any,
) -> None:
    """Serve the dashboard and the HTTP API: see, start, stop and continue runs.

    It prints a link that signs a browser in, once, within ten minutes; where it runs already, a new one. It shows the
    runs of every process of yours. What is started there works in this directory, or --cwd, and ends with the server.
    """
    from retinue.servers.http.serving import ListenAddress, is_loopback

    if not is_loopback(host) and not listen_anywhere:
        raise click.UsageError(
            f"--host {host} lets other machines in. If that is what you want, say so: --listen-anywhere."
        )
    if not is_loopback(host):
        print_hint(EXPOSED_WARNING.format(host=host))
        names = (*names, socket.gethostname())
    options = RunOptions(**flags)
    on_ready = functools.partial(_print_server_info, opens=opens, options=options)
    ctx.exit(_run_server(ListenAddress(port=port, host=host, names=names), on_ready, options))


def _run_server(listen_address: ListenAddress, on_ready: functools.partial[None], options: RunOptions) -> int:
    from retinue.cli.runner import make_server_retinue
    from retinue.servers.http.serving import find_running_server
    from retinue.servers.http.serving import run_server as serve_until_signalled
    from retinue.servers.lifecycle import ServerStartError

    retinue = make_server_retinue(options)
    try:
        return anyio.run(serve_until_signalled, retinue, listen_address, on_ready)
    except ServerStartError as error:
        if running := find_running_server(retinue.state, listen_address.port):
            print_hint("It is served already.")
            on_ready(running)
            return 0
        raise InvalidInputError(str(error)) from error


def show_in_dashboard(view: str, *, opens: bool, as_json: bool) -> int:
    """Print a link to a view of the dashboard, open it, and return the exit code; serve it if no server runs.

    The server runs until a signal arrives, on another port if the usual one is taken.

    Raises:
        InvalidInputError: the server cannot start.
    """
    from retinue.cli.runner import make_server_retinue
    from retinue.servers.http.serving import ListenAddress, find_any_server, run_server
    from retinue.servers.lifecycle import ServerStartError

    options = RunOptions(as_json=as_json)
    retinue = make_server_retinue(options)
    if running := find_any_server(retinue.state, DEFAULT_PORT):
        _print_link(running, view, as_json=as_json)
        print_hint(f"Served on {running.address}. {LINK_HINT}")
        if opens:
            _open_browser(running.link + view, wait=BROWSER_START_TIMEOUT)
        return 0
    on_ready = functools.partial(_print_server_info, opens=opens, options=options, view=view)
    try:
        return anyio.run(run_server, retinue, ListenAddress(port=DEFAULT_PORT), on_ready)
    except ServerStartError:
        return _run_server(ListenAddress(port=0), on_ready, options)


LINK_HINT = "The link signs one browser in, within ten minutes."
BROWSER_START_TIMEOUT = 10.0
"""Seconds to wait for a browser to start before the process ends."""


def _print_server_info(info: ServerInfo, *, opens: bool, options: RunOptions, view: str = "") -> None:
    """Print the link to stdout and everything else to stderr."""
    _print_link(info, view, as_json=options.as_json)
    if not options.quiet:
        print_hint(f"Serving on {info.address}; Ctrl-C ends it. {LINK_HINT}")
        print_hint(f"Programs: Authorization: Bearer with the token in {info.token_file}")
    if opens:
        _open_browser(info.link + view)


def _print_link(info: ServerInfo, view: str, *, as_json: bool) -> None:
    link = info.link + view
    if as_json:
        print_json({"link": link, "address": info.address, "port": info.port, "tokenFile": info.token_file})
    else:
        print_json_line(f"{link}\n".encode())
    sys.stdout.flush()


def _open_browser(link: str, *, wait: float = 0.0) -> None:
    """Open a link in the browser that BROWSER names, or else the usual one; wait until it has started."""
    import threading
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        print_hint(NO_BROWSER)
        return

    def open_link() -> None:
        if not browser.open(link):
            print_hint(NO_BROWSER)

    # In a thread: some browsers return only when they are closed.
    thread = threading.Thread(target=open_link, daemon=True)
    thread.start()
    thread.join(wait)


NO_BROWSER = "No browser could be opened here: open the link in one."
