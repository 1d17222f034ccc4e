"""Serving of an ASGI application on a socket with uvicorn, which is imported on use."""

from __future__ import annotations

import socket
from asyncio import Transport
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from msgspec import Struct

from retinue.servers.asgi.request_checks import BODY_TIMEOUT, AsgiApp
from retinue.servers.lifecycle import ServerStartError

LOCAL_HOST = "127.0.0.1"
MAX_CONNECTIONS = 1024
SHUTDOWN_TIMEOUT = 5.0
"""Seconds until every connection is closed."""


class _ConnectionState(Struct, frozen=True):
    """The state of a connection at one check."""

    cycle: object = None
    """The latest request."""
    drained: int = 0
    """Times the reader has caught up."""
    unsent: int = 0
    """Bytes the reader has not taken yet."""


def bind_socket(port: int, host: str = LOCAL_HOST) -> socket.socket:
    """Return a socket that listens on the port; 0 is any free port.

    Raises:
        ServerStartError: the port cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServerStartError(f"Cannot listen on {host}:{port}: {why}. Choose another port.") from error
    # Connections inherit it; asyncio sets it only on sockets it makes itself. Without it, a small response waits
    # 40 ms for the client to acknowledge its first packet.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


async def serve_http(app: AsgiApp, bound: socket.socket, *, idle_timeout: float = BODY_TIMEOUT) -> None:
    """Serve an ASGI application on a socket until cancelled; requests in flight have a moment to end.

    A connection is closed if no complete request arrives on it within `idle_timeout`, or if its reader takes nothing
    for as long. uvicorn itself has neither timeout.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

    class TimeoutProtocol(H11Protocol):
        """A connection with a timeout for requests and for readers."""

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._drained = 0
            self.loop.call_later(idle_timeout, self._close_if_stalled, _ConnectionState())

        def resume_writing(self) -> None:
            super().resume_writing()
            self._drained += 1

        def _close_if_stalled(self, before: _ConnectionState) -> None:
            """Close a connection where nothing has moved since the last check and no response is being made."""
            cycle: RequestResponseCycle | None = self.cycle
            now = _ConnectionState(cycle, self._drained, self.transport.get_write_buffer_size())
            if before.unsent and now.drained == before.drained and now.unsent >= before.unsent:
                # Not close(): that would wait for the reader again.
                self.transport.abort()
                return
            if cycle is before.cycle and (cycle is None or cycle.response_complete):
                self.transport.close()
            if now.unsent or not self.transport.is_closing():
                self.loop.call_later(idle_timeout, self._close_if_stalled, now)

    class SignalFreeServer(uvicorn.Server):
        """A server that installs no signal handlers."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        http=TimeoutProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # clients get errors as responses
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
