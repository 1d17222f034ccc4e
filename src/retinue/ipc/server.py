"""The control server of a process with runs: accept connections of other processes. `connection` serves each.

Imports next to nothing: every process with runs has a server, and most never get a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
from anyio.abc import SocketListener, SocketStream

from retinue.ipc import UNIX_SOCKETS_SUPPORTED
from retinue.ipc.addresses import open_listener
from retinue.model.event_codec import EventRecord
from retinue.runtime.delegation import MAX_CALLS, DelegatingRun
from retinue.runtime.event_bus import EventSubscription, SubscriberLaggedError
from retinue.runtime.orchestrator import Orchestrator
from retinue.support.tasks import BackgroundTasks

if TYPE_CHECKING:
    from retinue.toolsets.delegation import ToolsetDelegation


HANDSHAKE_TIMEOUT = 5.0
"""Seconds a client has to send hello."""
MAX_CLIENTS = 32
"""Clients at once, beside the runs of this process; more are declined."""
DRAIN_TIMEOUT = 1.0
"""Seconds subscribers have to read the last events when the server closes."""
ACCEPT_RETRY_DELAY = 0.25
"""Seconds between two attempts to accept when one has failed."""
DISCONNECT_ERRORS = (
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    SubscriberLaggedError,
)
"""Errors by which a connection ends in the middle of a message."""
CONNECTION_FAULT = (
    "A connection to the runs of this process was closed by an internal error of Retinue. The runs continue."
)
SOCKET_UNAVAILABLE = (
    "Other processes cannot watch or cancel the runs of this process, because it has no socket (%s). The runs "
    "continue."
)


class ControlSocket:
    """The socket of a process with runs, bound when its address is asked for the first time."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._is_attempted = False
        self._is_bound = anyio.Event()
        self.listener: socket | None = None
        self.path: Path | None = None

    def address(self) -> str | None:
        """Return the path of the socket, which accepts connections from the first call on; None if there is none."""
        if not self._is_attempted and UNIX_SOCKETS_SUPPORTED:
            self._is_attempted = True
            try:
                self.listener, self.path = open_listener(self._environ)
            except OSError as error:
                logging.getLogger("retinue").warning(SOCKET_UNAVAILABLE, error.strerror or error)
            else:
                self._is_bound.set()
        return str(self.path) if self.path else None

    async def wait_bound(self) -> socket:
        await self._is_bound.wait()
        assert self.listener is not None
        return self.listener


class ControlServer:
    """A server that listens from the first run until its block ends. None of its faults reaches a run."""

    def __init__(
        self,
        socket: ControlSocket,
        orchestrator: Orchestrator,
        make_delegation: Callable[[DelegatingRun], ToolsetDelegation],
    ) -> None:
        self.orchestrator = orchestrator
        self._socket = socket
        self.make_delegation = make_delegation
        """Makes the tools of a run that delegates by the socket."""
        self._tasks = BackgroundTasks(self._listen)
        self._is_closing = False
        self._waiting_scopes: set[anyio.CancelScope] = set()
        """Scopes in which subscribers wait for events."""
        self._in_flight_count = 0
        """Clients whose command is being executed."""
        self._idle = anyio.Event()
        self._handshakes: list[anyio.CancelScope] = []
        """Connections without a hello so far, oldest first."""
        self._client_count = 0
        """Connected clients that are not runs of this process."""

    async def __aenter__(self) -> Self:
        self._group = await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket.path is not None:
            with suppress(OSError):
                self._socket.path.unlink()
            await self._drain()
        await self._tasks.__aexit__(kind, error, trace)
        if self._socket.listener is not None:
            self._socket.listener.close()

    @contextmanager
    def limit_handshake(self) -> Iterator[None]:
        """Limit the time of a handshake in the block; too many handshakes at once end the oldest."""
        with anyio.move_on_after(HANDSHAKE_TIMEOUT) as scope:
            self._handshakes.append(scope)
            if len(self._handshakes) > MAX_CLIENTS + MAX_CALLS * self._count_runs():
                self._handshakes.pop(0).cancel()
            try:
                yield
            finally:
                with suppress(ValueError):  # removed to make room
                    self._handshakes.remove(scope)

    def _count_runs(self) -> int:
        """Return how many runs may connect; one that delegates may be counted twice."""
        return len(self.orchestrator.delegation) + len(self.orchestrator.gates)

    @contextmanager
    def client_slot(self) -> Iterator[bool]:
        """Count a client for the block; yields false if there are too many."""
        self._client_count += 1
        try:
            yield self._client_count <= MAX_CLIENTS
        finally:
            self._client_count -= 1

    @contextmanager
    def delay_closing(self) -> Iterator[None]:
        """Make the closing server wait for the end of the block."""
        self._in_flight_count += 1
        try:
            yield
        finally:
            self._in_flight_count -= 1
            self._idle.set()

    async def next_events(self, subscription: EventSubscription) -> tuple[EventRecord, ...]:
        """Wait for events and return all that have arrived; none when the server closes.

        Raises:
            SubscriberLaggedError: the subscriber was too slow.
        """
        if (events := subscription.drain()) or self._is_closing:
            return events
        with anyio.CancelScope() as scope:
            self._waiting_scopes.add(scope)
            try:
                return (await anext(subscription), *subscription.drain())
            finally:
                self._waiting_scopes.discard(scope)
        return subscription.drain()

    async def _drain(self) -> None:
        self._is_closing = True
        for scope in self._waiting_scopes:
            scope.cancel()
        with anyio.move_on_after(DRAIN_TIMEOUT, shield=True):
            while self._in_flight_count:
                self._idle = anyio.Event()
                await self._idle.wait()

    async def _listen(self) -> None:
        async with await SocketListener.from_socket(await self._socket.wait_bound()) as listener:
            while True:
                # If no descriptor is free for a new connection, one may be later.
                with suppress(OSError, anyio.BrokenResourceError):
                    await listener.serve(self._handle, self._group)
                await anyio.sleep(ACCEPT_RETRY_DELAY)

    async def _handle(self, stream: SocketStream) -> None:
        from retinue.ipc.connection import handle_connection

        try:
            async with stream:
                await handle_connection(stream, self)
        except* DISCONNECT_ERRORS:
            pass  # the client disconnected in the middle of a message, or was too slow
        except* Exception:  # the last place before the group in which runs live: a fault of ours must not end them
            logging.getLogger("retinue").exception(CONNECTION_FAULT)
