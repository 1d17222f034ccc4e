"""`retinue serve`: the dashboard and the HTTP API, on loopback."""

from __future__ import annotations

import functools
import socket
import sys
from typing import TYPE_CHECKING

import anyio
import click

from retinue.frontends.cli.inputs import Unreadable
from retinue.frontends.cli.options import WORD, Options, run_options
from retinue.frontends.cli.talk import answer_json, answer_line, examples, note

if TYPE_CHECKING:
    from retinue.frontends.http.serving import Ears, Served

PORT = 8477
EVERYONE = (
    "Listening on {host}: whoever can reach this machine there and has the token, or one of these links, can start "
    "agents as you, and nothing on the way is encrypted. Put a proxy with TLS in front, or use an SSH tunnel instead."
)


@click.command(
    epilog=examples(
        "retinue serve",
        "retinue serve --open --engine pi",
        "retinue serve --port 0 --json",
        then="Exit codes: 0 the server runs already, 2 it cannot be started, 130 ended by Ctrl-C or a signal.",
    )
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    metavar="PORT",
    help="Where to listen; 0: any free port.",
)
@click.option("--host", type=WORD, default="127.0.0.1", show_default=True, metavar="HOST", help="On which address.")
@click.option(
    "--listen-anywhere", is_flag=True, help="With --host: let other machines in. Read what it says about that."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    type=WORD,
    metavar="NAME",
    help="With --host: a name by which others reach this machine.",
)
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in your browser.")
@run_options
@click.pass_context
def serve(
    ctx: click.Context,
    port: int,
    host: str,
    listen_anywhere: bool,
    names: tuple[str, ...],
    opens: bool,
    options: Options,
) -> None:
    """Serve the dashboard and the HTTP API: see, start, stop and continue runs.

    It prints a link that signs a browser in, once, within ten minutes; where it runs already, a new one. It shows the
    runs of every process of yours. What is started there works in this directory, or --cwd, and ends with the server.
    """
    from retinue.frontends.web.serving import missing

    if sentence := missing():
        raise Unreadable(sentence)
    from retinue.frontends.http.serving import Ears, is_loopback

    if not is_loopback(host) and not listen_anywhere:
        raise click.UsageError(
            f"--host {host} lets other machines in. If that is what you want, say so: --listen-anywhere."
        )
    if not is_loopback(host):
        note(EVERYONE.format(host=host))
        names = (*names, socket.gethostname())
    told = functools.partial(_tell, opens=opens, options=options)
    ctx.exit(_served(Ears(port=port, host=host, names=names), told, options))


def _served(ears: Ears, told: functools.partial[None], options: Options) -> int:
    from retinue.frontends.cli.opening import opened_to_serve
    from retinue.frontends.http.running import already_served
    from retinue.frontends.http.serving import serve as serve_until_signalled
    from retinue.frontends.server import Unservable

    retinue = opened_to_serve(options)
    try:
        return anyio.run(serve_until_signalled, retinue, ears, told)
    except Unservable as error:
        if running := already_served(retinue.state, ears.port):
            note("It is served already.")
            told(running)
            return 0
        raise Unreadable(str(error)) from error


def _tell(served: Served, *, opens: bool, options: Options) -> None:
    """Says where the dashboard is: the link is the answer, everything else goes to stderr."""
    if options.as_json:
        answer_json(
            {"link": served.link, "address": served.address, "port": served.port, "tokenFile": served.token_file}
        )
    else:
        answer_line(f"{served.link}\n".encode())
    sys.stdout.flush()
    if not options.quiet:
        note(f"Serving on {served.address}; Ctrl-C ends it. The link signs one browser in, within ten minutes.")
        note(f"Programs: Authorization: Bearer with the token in {served.token_file}")
    if opens:
        _open(served.link)


def _open(link: str) -> None:
    import threading
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        note("There is no browser to open here: open the link in one.")
    else:
        # Beside us: some return only when they are closed.
        threading.Thread(target=browser.open, args=(link,), daemon=True).start()
