"""A server from its first moment to its last."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from msgspec import Struct

from retinue.app import Retinue
from retinue.control.announcing import announced
from retinue.frontends.http.access import Access
from retinue.frontends.http.acting import Actor
from retinue.frontends.http.api import Api, link
from retinue.frontends.http.app import App
from retinue.frontends.http.assets import Assets
from retinue.frontends.http.hub import Hub
from retinue.frontends.http.lists import Lists
from retinue.frontends.http.reading import Reader
from retinue.frontends.http.shelf import Shelf
from retinue.frontends.http.sources import Sources
from retinue.frontends.server import until_signalled
from retinue.frontends.web.names import LOOPBACK, Names
from retinue.frontends.web.serving import LOCAL, listening, serve_http


class Served(Struct, frozen=True, kw_only=True):
    """What a server that listens is known by."""

    address: str
    link: str
    """Opens the dashboard, once."""
    port: int
    token_file: str


class Ears(Struct, frozen=True, kw_only=True):
    """Where a server listens, and under which names."""

    port: int
    host: str = LOCAL
    names: tuple[str, ...] = ()
    """Others than loopback's."""

    @property
    def all_names(self) -> tuple[str, ...]:
        own = (f"[{self.host}]" if ":" in self.host else self.host,)
        return tuple(dict.fromkeys((*LOOPBACK, *(() if is_every(self.host) else own), *self.names)))

    @property
    def shown(self) -> str:
        """The name it is told by."""
        if is_every(self.host):
            return self.names[0] if self.names else LOCAL
        return f"[{self.host}]" if ":" in self.host else self.host


class Opened(Struct, frozen=True):
    """A server that is ready to answer, whoever carries its requests."""

    app: App
    hub: Hub
    access: Access


async def serve(retinue: Retinue, ears: Ears, ready: Callable[[Served], None]) -> int:
    """Serves until a signal ends it; the exit code. `ready` is told once requests are answered.

    Raises:
        Unservable: the port is taken, or the token cannot be used.
    """

    async def served() -> None:
        with listening(ears.port, ears.host) as bound:
            port = bound.getsockname()[1]
            address = f"http://{ears.shown}:{port}"
            async with retinue, opened(retinue, Names(port, ears.all_names), port, address) as server:
                file, once = server.access.token_file, link(address, server.access.new_code())
                with announced(retinue.state, port, address):
                    ready(Served(address=address, link=once, port=port, token_file=str(file)))
                    await serve_http(server.app, bound)

    return await until_signalled(served)


@asynccontextmanager
async def opened(retinue: Retinue, names: Names, port: int, address: str) -> AsyncIterator[Opened]:
    """A server over an open Retinue, for the block: it knows what runs, and ends what it started.

    Raises:
        Unservable: the token cannot be used.
    """
    access = Access(retinue.state, port)
    hub = Hub({kind.name for kind in retinue.engines.values() if kind.capabilities.steers})
    shelf = Shelf(retinue, hub)
    reader = Reader(retinue, hub, shelf)
    async with anyio.create_task_group() as group:
        actor = Actor(retinue, hub, reader, group)
        api = Api(retinue, hub, Lists(shelf, hub), reader, actor, access, address)
        await group.start(Sources(retinue, hub).follow)
        group.start_soon(_close_at_the_end, hub)
        try:
            yield Opened(App(api.routes(), hub, access, names, Assets()), hub, access)
        finally:
            group.cancel_scope.cancel()


async def _close_at_the_end(hub: Hub) -> None:
    """Lets streams end when everything does: a server waits for its connections."""
    try:
        await anyio.sleep_forever()
    finally:
        hub.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_every(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
