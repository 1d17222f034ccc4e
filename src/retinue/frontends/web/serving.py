"""An ASGI application on a socket. The one place that knows uvicorn, which is imported when it is used."""

from __future__ import annotations

import socket
from asyncio import Transport
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from msgspec import Struct

from retinue.frontends.server import Unservable
from retinue.frontends.web.asgi import BODY_SECONDS, App

LOCAL = "127.0.0.1"
MISSING = "What serves HTTP is not installed. Install it with `pip install 'uvicorn>=0.30,<1'` and start again."
MOST_CONNECTIONS = 1024
SHUTDOWN = 5.0
"""Seconds in which every connection is closed."""


class _Seen(Struct, frozen=True):
    """What there was to see of a connection at one moment."""

    cycle: object = None
    """The request that was last begun."""
    drained: int = 0
    """How often its reader has caught up."""
    unsent: int = 0
    """Bytes that wait for the reader."""


def missing() -> str | None:
    """What to do where what serves is not installed; None if it is. Imports nothing."""
    from importlib.util import find_spec

    try:
        return None if find_spec("uvicorn") else MISSING
    except ValueError:  # something that is no module stands in its place
        return MISSING


def listening(port: int, host: str = LOCAL) -> socket.socket:
    """A socket to listen on; 0 is any free port.

    Raises:
        Unservable: the port cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise Unservable(f"Cannot listen on {host}:{port}: {why}. Choose another port.") from error
    # Connections inherit it. asyncio sets it on sockets of its own making only; without it, a small answer waits
    # 40 ms for the other side to acknowledge its first half.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


async def serve_http(app: App, bound: socket.socket, *, patience: float = BODY_SECONDS) -> None:
    """Serves an ASGI application on a socket until cancelled; what is in flight then has a moment to end.

    A connection on which no request, or no further one, has come whole within so many seconds of patience is closed;
    so is one whose reader has taken nothing for as long. uvicorn itself waits for ever for both.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

    class Impatient(H11Protocol):
        """Waits neither for ever for a request, nor for ever for a reader."""

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._drained = 0
            self.loop.call_later(patience, self._look, _Seen())

        def resume_writing(self) -> None:
            super().resume_writing()
            self._drained += 1

        def _look(self, before: _Seen) -> None:
            """Gives up a connection where nothing has moved since the last look, and nothing is being worked at."""
            cycle: RequestResponseCycle | None = self.cycle
            now = _Seen(cycle, self._drained, self.transport.get_write_buffer_size())
            if before.unsent and now.drained == before.drained and now.unsent >= before.unsent:
                # Not closed: that would wait for the reader once more.
                self.transport.abort()
                return
            if cycle is before.cycle and (cycle is None or cycle.response_complete):
                self.transport.close()
            if now.unsent or not self.transport.is_closing():
                self.loop.call_later(patience, self._look, now)

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
        log_level="error",  # what clients do wrong is told to them
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
