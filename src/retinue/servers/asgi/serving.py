"""An ASGI application on a socket. The one place that knows uvicorn, which is imported when it is used."""

from __future__ import annotations

import socket
from asyncio import Transport
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from msgspec import Struct

from retinue.servers.asgi.asgi import BODY_TIMEOUT, AsgiApp
from retinue.servers.lifecycle import ServerStartError

LOCAL_HOST = "127.0.0.1"
MAX_CONNECTIONS = 1024
SHUTDOWN_TIMEOUT = 5.0
"""Seconds in which every connection is closed."""


class _ConnectionState(Struct, frozen=True):
    """What there was to see of a connection at one moment."""

    cycle: object = None
    """The request that was last begun."""
    drained: int = 0
    """How often its reader has caught up."""
    unsent: int = 0
    """Bytes that wait for the reader."""


def bind_socket(port: int, host: str = LOCAL_HOST) -> socket.socket:
    """A socket to listen on; 0 is any free port.

    Raises:
        Unservable: the port cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServerStartError(f"Cannot listen on {host}:{port}: {why}. Choose another port.") from error
    # Connections inherit it. asyncio sets it on sockets of its own making only; without it, a small answer waits
    # 40 ms for the other side to acknowledge its first half.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


async def serve_http(app: AsgiApp, bound: socket.socket, *, idle_timeout: float = BODY_TIMEOUT) -> None:
    """Serves an ASGI application on a socket until cancelled; what is in flight then has a moment to end.

    A connection on which no request, or no further one, has come whole within so many seconds of patience is closed;
    so is one whose reader has taken nothing for as long. uvicorn itself waits for ever for both.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

    class TimeoutProtocol(H11Protocol):
        """Waits neither for ever for a request, nor for ever for a reader."""

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._drained = 0
            self.loop.call_later(idle_timeout, self._close_if_stalled, _ConnectionState())

        def resume_writing(self) -> None:
            super().resume_writing()
            self._drained += 1

        def _close_if_stalled(self, before: _ConnectionState) -> None:
            """Gives up a connection where nothing has moved since the last look, and nothing is being worked at."""
            cycle: RequestResponseCycle | None = self.cycle
            now = _ConnectionState(cycle, self._drained, self.transport.get_write_buffer_size())
            if before.unsent and now.drained == before.drained and now.unsent >= before.unsent:
                # Not closed: that would wait for the reader once more.
                self.transport.abort()
                return
            if cycle is before.cycle and (cycle is None or cycle.response_complete):
                self.transport.close()
            if now.unsent or not self.transport.is_closing():
                self.loop.call_later(idle_timeout, self._close_if_stalled, now)

    class SignalFreeServer(uvicorn.Server):
        """Leaves signals to us."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        http=TimeoutProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # what clients do wrong is told to them
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    serving = SignalFreeServer(config)
    try:
        await serving.serve(sockets=[bound])
    finally:
        with anyio.move_on_after(SHUTDOWN_TIMEOUT, shield=True):
            await serving.shutdown()
