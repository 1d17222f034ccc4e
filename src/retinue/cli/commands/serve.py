"""`retinue serve`: the dashboard and the HTTP API, on loopback."""

from __future__ import annotations

import functools
import socket
import sys
from typing import TYPE_CHECKING, Any

import anyio
import click

from retinue.cli.group import SectionedCommand
from retinue.cli.options import TEXT, InvalidInputError, RunOptions, WholeNumberType, for_users_only, run_options
from retinue.cli.printing import help_examples, print_hint, print_json, print_json_line

if TYPE_CHECKING:
    from retinue.servers.http.serving import ListenAddress, ServerInfo


DEFAULT_PORT = 8477
EXPOSED_WARNING = (
    "Listening on {host}: anyone who can reach this address and has the token or one of these links can start "
    "agents as you, and connections are not encrypted. Use a proxy with TLS or an SSH tunnel."
)


@click.command(
    cls=SectionedCommand,
    epilog=help_examples(
        "retinue serve",
        "retinue serve --open --engine pi",
        "retinue serve --port 0 --json",
        then="Exit codes: 0 the server is already running, 2 the server cannot be started, "
        "130 ended by Ctrl-C or a signal.",
    ),
)
@click.option(
    "--port",
    type=WholeNumberType(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="PORT",
    help="Port to listen on; 0: any free port.",
)
@click.option(
    "--host", type=TEXT, default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on."
)
@click.option(
    "--listen-anywhere",
    is_flag=True,
    help="With --host: allow connections from other machines (unencrypted; see docs/serve.md#security).",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    type=TEXT,
    metavar="NAME",
    help="With --host: a name under which other machines reach this one.",
)
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in your browser.")
@run_options
@click.pass_context
@for_users_only
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
    """Serve the dashboard and the HTTP API, to show, start, cancel and resume runs.

    Print a link that signs in one browser, once, within ten minutes; if the server is already running, print a new
    link. The dashboard shows the runs of all your processes. Runs started there work in this directory, or --cwd,
    and end with the server.
    """
    from retinue.servers.http.serving import ListenAddress, is_loopback

    if not is_loopback(host) and not listen_anywhere:
        raise click.UsageError(
            f"--host {host} allows connections from other machines. Confirm with --listen-anywhere."
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
            print_hint("The server is already running.")
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
        print_hint(f"Programs send `Authorization: Bearer TOKEN`, with the token in {info.token_file}")
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
