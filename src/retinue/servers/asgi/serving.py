"""Serving of an ASGI application on a socket with uvicorn, which is imported on use."""

from __future__ import annotations

import os
import socket
import typing
from asyncio import Protocol, TimerHandle, Transport
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from msgspec import Struct

from retinue.servers.asgi.request_checks import BODY_TIMEOUT, AsgiApp
from retinue.servers.lifecycle import ServerStartError

LOCAL_HOST = "127.0.0.1"
MAX_CONNECTIONS = 1024
"""Connections at once; half of the descriptors of this process if those are fewer."""
RESERVED_CONNECTIONS = 16
"""Connections that are reserved for clients who send requests: beyond the rest, the oldest silent one is closed."""
SHUTDOWN_TIMEOUT = 5.0
"""Seconds until every connection is closed."""


MAX_PORT = 65_535


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
        # Without the address, which asyncio and socket repeat in the text of the error.
        number = error.errno if isinstance(error, OSError) else None
        why = os.strerror(number).lower() if number else str(error)
        advice = f"Try --port {port + 1}." if 0 < port < MAX_PORT else "Choose another port."
        raise ServerStartError(f"Could not listen on {host}:{port}: {why}. {advice}") from error
    # Connections inherit it; asyncio sets it only on sockets it makes itself. Without it, a small response waits
    # 40 ms for the client to acknowledge its first packet.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def count_usable_connections() -> int:
    """Return how many connections this process may have, so that descriptors are left for runs."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MAX_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft // 2)


async def serve_http(
    app: AsgiApp,
    bound: socket.socket,
    *,
    idle_timeout: float = BODY_TIMEOUT,
    max_connections: int | None = None,
) -> None:
    """Serve an ASGI application on a socket until cancelled; requests in flight have a moment to end.

    A connection is closed if no complete request arrives on it within `idle_timeout`, or if its reader takes nothing
    for as long. uvicorn itself has neither timeout. Connections without a request make room for new ones, so that
    silent clients shut nobody out.
    """
    import uvicorn

    limit = max_connections or count_usable_connections()

    class SignalFreeServer(uvicorn.Server):
        """A server that installs no signal handlers."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        http=_make_protocol(idle_timeout, _ConnectionRoom(limit - RESERVED_CONNECTIONS)),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # clients get errors as responses
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limit,
        timeout_graceful_shutdown=1,
    )
    serving = SignalFreeServer(config)
    try:
        await serving.serve(sockets=[bound])
    finally:
        with anyio.move_on_after(SHUTDOWN_TIMEOUT, shield=True):
            await serving.shutdown()


class _OpenConnection(typing.Protocol):
    transport: Transport

    @property
    def is_answering(self) -> bool: ...


class _ConnectionRoom:
    """The open connections, oldest first. A silent one makes room when there are too many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._opened: dict[_OpenConnection, None] = {}

    def enter(self, connection: _OpenConnection) -> None:
        """Add a connection, and close the oldest other one without a request if there are too many."""
        silent = (each for each in self._opened if not each.is_answering)
        if len(self._opened) >= self._limit and (oldest := next(silent, None)):
            self.leave(oldest)
            oldest.transport.abort()
        self._opened[connection] = None

    def leave(self, connection: _OpenConnection) -> None:
        self._opened.pop(connection, None)


def _make_protocol(idle_timeout: float, room: _ConnectionRoom) -> type[Protocol]:
    """Return the class of a connection that times out and makes room for others."""
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

    class TimeoutProtocol(H11Protocol):
        """A connection with a timeout for requests and for readers."""

        _next_check: TimerHandle

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            room.enter(self)
            self._drained = 0
            self._check_later(_ConnectionState())

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            room.leave(self)
            self._next_check.cancel()  # else the loop keeps this connection until the check

        def resume_writing(self) -> None:
            super().resume_writing()
            self._drained += 1

        @property
        def is_answering(self) -> bool:
            cycle: RequestResponseCycle | None = self.cycle
            return cycle is not None and not cycle.response_complete

        def _close_if_stalled(self, before: _ConnectionState) -> None:
            """Close a connection where nothing has moved since the last check and no response is being made."""
            cycle: RequestResponseCycle | None = self.cycle
            now = _ConnectionState(cycle, self._drained, self.transport.get_write_buffer_size())
            if before.unsent and now.drained == before.drained and now.unsent >= before.unsent:
                # Not close(): that would wait for the reader again.
                self.transport.abort()
                return
            if cycle is before.cycle and not self.is_answering:
                self.transport.close()
            if now.unsent or not self.transport.is_closing():
                self._check_later(now)

        def _check_later(self, state: _ConnectionState) -> None:
            self._next_check = self.loop.call_later(idle_timeout, self._close_if_stalled, state)

    return TimeoutProtocol
