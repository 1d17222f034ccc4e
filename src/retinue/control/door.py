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

from retinue.beside import Beside
from retinue.bus import Lagged, Watcher
from retinue.control import places
from retinue.events import Stamped
from retinue.home import MOST_CONNECTIONS
from retinue.orchestrator import Orchestrator

if TYPE_CHECKING:
    from retinue.surfaces.base import Surface

GREETING = 5.0
"""Seconds a client has to say who it is."""
MOST_GUESTS = 32
"""Clients at once, beside the runs themselves; whoever comes then is declined."""
FAREWELL = 1.0
"""Seconds watchers have to take the last events when everything ends."""
REST = 0.25
"""Seconds before someone is let in again after that could not be done."""
LEAVING = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, Lagged)
"""How a connection ends before all was said."""
FAULT = "A connection to the runs of this process was ended by a fault of Retinue itself. The runs go on."
UNREACHABLE = "Other processes cannot watch or cancel the runs of this one: no socket (%s). The runs go on."


class Door:
    """Open from the first run on until its block ends. No fault of it, or of whoever comes, reaches a run."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._beside = Beside()
        self._path: Path | None = None
        self._is_tried = False
        self._is_ending = False
        self._waiting: set[anyio.CancelScope] = set()
        """Where a watcher waits for news."""
        self._busy = 0
        """Clients who are being told something."""
        self._idle = anyio.Event()
        self._newcomers: list[anyio.CancelScope] = []
        """Those who have not said who they are, the first to come first."""
        self._guests = 0
        """Those who are no runs of ours."""

    async def __aenter__(self) -> Self:
        self._group = await self._beside.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            places.bury(str(self._path))
            await self._tell_the_rest()
        await self._beside.__aexit__(kind, error, trace)

    def serve(self, orchestrator: Orchestrator, surface: Callable[[], Surface]) -> None:
        """Says whose runs are behind it, and what they delegate with; it stays closed."""
        self.orchestrator = orchestrator
        self._surface = surface

    @property
    def surface(self) -> Surface:
        return self._surface()

    def address(self) -> str | None:
        """Where to knock; it is open from the first time this is asked. None if it cannot be."""
        if not self._is_tried and places.IS_HERE:
            self._is_tried = True
            try:
                listener, self._path = places.listening_socket(self._environ)
            except OSError as error:
                logging.getLogger("retinue").warning(UNREACHABLE, error.strerror or error)
            else:
                self._group.start_soon(self._listen, listener)
        return str(self._path) if self._path else None

    @contextmanager
    def newcomer(self) -> Iterator[None]:
        """A block in which someone says who they are. It ends early: for want of time, or as too many others wait."""
        with anyio.move_on_after(GREETING) as scope:
            self._newcomers.append(scope)
            if len(self._newcomers) > MOST_GUESTS + MOST_CONNECTIONS * len(self.orchestrator.household):
                self._newcomers.pop(0).cancel()
            try:
                yield
            finally:
                with suppress(ValueError):  # it had to make room
                    self._newcomers.remove(scope)

    @contextmanager
    def guest(self) -> Iterator[bool]:
        """A block in which someone is served who is no run of ours; whether there is room for it."""
        self._guests += 1
        try:
            yield self._guests <= MOST_GUESTS
        finally:
            self._guests -= 1

    @contextmanager
    def telling(self) -> Iterator[None]:
        """A block whose end is waited for when everything ends."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._idle.set()

    async def news(self, watcher: Watcher) -> tuple[Stamped, ...]:
        """What has happened since the last time, once something has; nothing at the end.

        Raises:
            Lagged: the watcher was cut off.
        """
        if (news := watcher.waiting()) or self._is_ending:
            return news
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                return (await anext(watcher), *watcher.waiting())
            finally:
                self._waiting.discard(scope)
        return watcher.waiting()

    async def _tell_the_rest(self) -> None:
        self._is_ending = True
        for scope in self._waiting:
            scope.cancel()
        with anyio.move_on_after(FAREWELL, shield=True):
            while self._busy:
                self._idle = anyio.Event()
                await self._idle.wait()

    async def _listen(self, bound: socket) -> None:
        async with await SocketListener.from_socket(bound) as listener:
            while True:
                # Where there is no descriptor left for whoever knocks, there may be one later.
                with suppress(OSError, anyio.BrokenResourceError):
                    await listener.serve(self._let_in, self._group)
                await anyio.sleep(REST)

    async def _let_in(self, stream: SocketStream) -> None:
        from retinue.control.talking import talk

        try:
            async with stream:
                await talk(stream, self)
        except* LEAVING:
            pass  # in the middle of a word, or too slow to be told everything
        except* Exception:  # the last place before the group in which runs live: a fault of ours must not end them
            logging.getLogger("retinue").exception(FAULT)
