"""An ASGI application on a socket. The one place that knows uvicorn, which is imported when it is used."""

from __future__ import annotations

import socket
from asyncio import Transport
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from retinue.frontends.server import Unservable
from retinue.frontends.web.asgi import BODY_SECONDS, App

LOCAL = "127.0.0.1"
MOST_CONNECTIONS = 1024
SHUTDOWN = 5.0
"""Seconds in which every connection is closed."""


def missing() -> bool:
    """Whether what serves is not installed. Imports nothing."""
    from importlib.util import find_spec

    try:
        return find_spec("uvicorn") is None
    except ValueError:  # something that is no module stands in its place
        return True


def listening(port: int, host: str = LOCAL) -> socket.socket:
    """A socket to listen on; 0 is any free port.

    Raises:
        Unservable: the port cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise Unservable(f"Cannot listen on {host}:{port}: {why}. Choose another port.") from error


async def serve_http(app: App, bound: socket.socket, *, patience: float = BODY_SECONDS) -> None:
    """Serves an ASGI application on a socket until cancelled; what is in flight then has a moment to end.

    A connection on which no request has come after so many seconds of patience is closed.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        """Does not wait for ever for a request to begin."""

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(patience, self._give_up)

        def _give_up(self) -> None:
            begun: object = self.cycle
            if begun is None:
                self.transport.close()

    class Quiet(uvicorn.Server):
        """Leaves signals to us."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        http=Impatient,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    serving = Quiet(config)
    try:
        await serving.serve(sockets=[bound])
    finally:
        with anyio.move_on_after(SHUTDOWN, shield=True):
            await serving.shutdown()
