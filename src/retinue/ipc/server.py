"""The door of a process that has runs: where others knock. What is said once they are in is in `talking`.

Imports next to nothing: every process that runs something has one, and most are never knocked at.
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

from retinue.ipc import socket_path as places
from retinue.model.event_codec import EventRecord
from retinue.runtime.delegation import MAX_CONNECTIONS
from retinue.runtime.event_bus import EventSubscription, SubscriberLaggedError
from retinue.runtime.orchestrator import Orchestrator
from retinue.support.tasks import BackgroundTasks

if TYPE_CHECKING:
    from retinue.toolsets.base import ToolProvider


HANDSHAKE_TIMEOUT = 5.0
"""Seconds a client has to say who it is."""
MAX_CLIENTS = 32
"""Clients at once, beside the runs themselves; whoever comes then is declined."""
DRAIN_TIMEOUT = 1.0
"""Seconds watchers have to take the last events when everything ends."""
ACCEPT_RETRY_DELAY = 0.25
"""Seconds before someone is let in again after that could not be done."""
DISCONNECT_ERRORS = (
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    SubscriberLaggedError,
)
"""How a connection ends before all was said."""
CONNECTION_FAULT = "A connection to the runs of this process was ended by a fault of Retinue itself. The runs go on."
SOCKET_UNAVAILABLE = "Other processes cannot watch or cancel the runs of this one: no socket (%s). The runs go on."


class ControlServer:
    """Open from the first run on until its block ends. No fault of it, or of whoever comes, reaches a run."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._tasks = BackgroundTasks()
        self._path: Path | None = None
        self._is_attempted = False
        self._is_closing = False
        self._waiting_scopes: set[anyio.CancelScope] = set()
        """Where a watcher waits for news."""
        self._in_flight_count = 0
        """Clients who are being told something."""
        self._idle = anyio.Event()
        self._handshakes: list[anyio.CancelScope] = []
        """Those who have not said who they are, the first to come first."""
        self._client_count = 0
        """Those who are no runs of ours."""

    async def __aenter__(self) -> Self:
        self._group = await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            places.remove_socket(str(self._path))
            await self._drain()
        await self._tasks.__aexit__(kind, error, trace)

    def bind(self, orchestrator: Orchestrator, make_toolset: Callable[[], ToolProvider]) -> None:
        """Says whose runs are behind it, and what they delegate with; it stays closed."""
        self.orchestrator = orchestrator
        self._make_toolset = make_toolset

    @property
    def toolset(self) -> ToolProvider:
        return self._make_toolset()

    def address(self) -> str | None:
        """Where to knock; it is open from the first time this is asked. None if it cannot be."""
        if not self._is_attempted and places.UNIX_SOCKETS_SUPPORTED:
            self._is_attempted = True
            try:
                listener, self._path = places.open_listener(self._environ)
            except OSError as error:
                logging.getLogger("retinue").warning(SOCKET_UNAVAILABLE, error.strerror or error)
            else:
                self._group.start_soon(self._listen, listener)
        return str(self._path) if self._path else None

    @contextmanager
    def unauthenticated(self) -> Iterator[None]:
        """A block in which someone says who they are. It ends early: for want of time, or as too many others wait."""
        with anyio.move_on_after(HANDSHAKE_TIMEOUT) as scope:
            self._handshakes.append(scope)
            if len(self._handshakes) > MAX_CLIENTS + MAX_CONNECTIONS * len(self.orchestrator.delegation):
                self._handshakes.pop(0).cancel()
            try:
                yield
            finally:
                with suppress(ValueError):  # it had to make room
                    self._handshakes.remove(scope)

    @contextmanager
    def client_slot(self) -> Iterator[bool]:
        """A block in which someone is served who is no run of ours; whether there is room for it."""
        self._client_count += 1
        try:
            yield self._client_count <= MAX_CLIENTS
        finally:
            self._client_count -= 1

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """A block whose end is waited for when everything ends."""
        self._in_flight_count += 1
        try:
            yield
        finally:
            self._in_flight_count -= 1
            self._idle.set()

    async def next_events(self, subscription: EventSubscription) -> tuple[EventRecord, ...]:
        """What has happened since the last time, once something has; nothing at the end.

        Raises:
            Lagged: the watcher was cut off.
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

    async def _listen(self, bound: socket) -> None:
        async with await SocketListener.from_socket(bound) as listener:
            while True:
                # Where there is no descriptor left for whoever knocks, there may be one later.
                with suppress(OSError, anyio.BrokenResourceError):
                    await listener.serve(self._handle, self._group)
                await anyio.sleep(ACCEPT_RETRY_DELAY)

    async def _handle(self, stream: SocketStream) -> None:
        from retinue.ipc.connection import handle_connection

        try:
            async with stream:
                await handle_connection(stream, self)
        except* DISCONNECT_ERRORS:
            pass  # in the middle of a word, or too slow to be told everything
        except* Exception:  # the last place before the group in which runs live: a fault of ours must not end them
            logging.getLogger("retinue").exception(CONNECTION_FAULT)
