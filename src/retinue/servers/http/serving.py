"""Start and end of the HTTP server."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec import Struct

from retinue.client import Retinue
from retinue.ipc.addresses import find_server, list_ports, publish_port
from retinue.servers.asgi.request_checks import LOOPBACK, AllowedHosts
from retinue.servers.asgi.serving import LOCAL_HOST, bind_socket, serve_http
from retinue.servers.asgi.tokens import load_user_token
from retinue.servers.http.app import AssetFolder, HttpApp
from retinue.servers.http.auth import Authenticator, create_code
from retinue.servers.http.commands import RunCommands
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.queries import RunQueries
from retinue.servers.http.routes import ApiHandlers, login_url
from retinue.servers.http.run_list import RunListCache, RunLists
from retinue.servers.http.run_sources import EventSources
from retinue.servers.lifecycle import ServerStartError, run_until_signal


class ServerInfo(Struct, frozen=True, kw_only=True):
    """The address, login link and token file of a running server."""

    address: str
    link: str
    """Opens the dashboard once."""
    port: int
    token_file: str


class ListenAddress(Struct, frozen=True, kw_only=True):
    """The address and host names of a server."""

    port: int
    host: str = LOCAL_HOST
    names: tuple[str, ...] = ()
    """Host names beside those of loopback."""

    @property
    def all_names(self) -> tuple[str, ...]:
        own = (f"[{self.host}]" if ":" in self.host else self.host,)
        return tuple(dict.fromkeys((*LOOPBACK, *(() if is_unspecified(self.host) else own), *self.names)))

    @property
    def display_name(self) -> str:
        """Return the host name for links."""
        if is_unspecified(self.host):
            return self.names[0] if self.names else LOCAL_HOST
        return f"[{self.host}]" if ":" in self.host else self.host


class ServerParts(Struct, frozen=True):
    """The parts of a server that is ready for requests, without a socket."""

    app: HttpApp
    feed: EventFeed
    authenticator: Authenticator


async def run_server(retinue: Retinue, listen_address: ListenAddress, ready: Callable[[ServerInfo], None]) -> int:
    """Serve until a signal ends the process, and return the exit code; call `ready` once requests are answered.

    Raises:
        ServerStartError: the port is taken, or the token cannot be used.
    """

    async def serve_until_cancelled() -> None:
        with bind_socket(listen_address.port, listen_address.host) as bound:
            port = bound.getsockname()[1]
            address = f"http://{listen_address.display_name}:{port}"
            async with (
                retinue,
                open_server(retinue, AllowedHosts(port, listen_address.all_names), port, address) as server,
            ):
                file, once = server.authenticator.token_file, login_url(address, server.authenticator.create_code())
                with publish_port(retinue.state, port, address):
                    ready(ServerInfo(address=address, link=once, port=port, token_file=str(file)))
                    await serve_http(server.app, bound)

    return await run_until_signal(serve_until_cancelled)


@asynccontextmanager
async def open_server(
    retinue: Retinue, allowed_hosts: AllowedHosts, port: int, address: str
) -> AsyncIterator[ServerParts]:
    """Open a server over an open Retinue; the runs it started end with the block.

    Raises:
        ServerStartError: the token cannot be used.
    """
    authenticator = Authenticator(retinue.state, port)
    feed = EventFeed({kind.name for kind in retinue.engines.values() if kind.capabilities.steers})
    runs = RunListCache(retinue, feed)
    queries = RunQueries(retinue, feed, runs)
    async with anyio.create_task_group() as group:
        commands = RunCommands(retinue, feed, queries, group)
        api = ApiHandlers(retinue, feed, RunLists(runs, feed), queries, commands, authenticator, address)
        await group.start(EventSources(retinue, feed).follow)
        group.start_soon(_close_feed_at_end, feed)
        try:
            yield ServerParts(
                HttpApp(api.routes(), feed, authenticator, allowed_hosts, AssetFolder()), feed, authenticator
            )
        finally:
            group.cancel_scope.cancel()


async def _close_feed_at_end(feed: EventFeed) -> None:
    """Close the feed on cancellation: the server waits for its connections, and streams end with the feed."""
    try:
        await anyio.sleep_forever()
    finally:
        feed.close()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server on this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def find_any_server(state: Path, preferred_port: int) -> ServerInfo | None:
    """Return a running server of this state folder, the one on the preferred port first; None if there is none."""
    ports = sorted(list_ports(state), key=lambda port: port != preferred_port)
    return next((found for port in ports if (found := find_running_server(state, port))), None)


def find_running_server(state: Path, port: int) -> ServerInfo | None:
    """Return the running server of this state folder on this port; None if there is none.

    Sends nothing to the port: another process that listens there must not get the token or choose the link.
    """
    address = find_server(state, port)
    if address is None:
        return None
    try:
        token = load_user_token(state)
    except ServerStartError:
        return None
    once = login_url(address, create_code(token, port, time.time()))
    return ServerInfo(address=address, link=once, port=port, token_file=str(token.file))
