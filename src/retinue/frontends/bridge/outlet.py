"""What the bridge has to say, said in its order and never waited for by what runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import anyio

from retinue.frontends.bridge.protocol import Said, line_of
from retinue.frontends.stdio import Writer

PACE = 0.1
"""Seconds between two partial results of a call: each repeats the whole so far."""

Make = Callable[[], Said]


class Outlet:
    """Says one thing after the other. Of what is shown of a call and nobody has read yet only the newest is said."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._due: deque[Said | anyio.Event] = deque()
        self._shown: dict[str, Make] = {}
        self._news = anyio.Event()
        self._urgent = anyio.Event()

    def say(self, said: Said) -> None:
        """Says it as soon as there is a reader for it."""
        self._due.append(said)
        self._urgent.set()
        self._news.set()

    async def drain(self) -> None:
        """Return when everything said so far is written."""
        written = anyio.Event()
        self._due.append(written)
        self._urgent.set()
        self._news.set()
        await written.wait()

    def show(self, call: str, make: Make) -> None:
        """Says how far a call has come, if the reader gets round to it; made only then."""
        self._shown[call] = make
        self._news.set()

    def forget(self, call: str) -> None:
        """Leaves out what was still to be shown of a call."""
        self._shown.pop(call, None)

    async def speak(self) -> None:
        """Writes what there is to say until it is cancelled.

        Raises:
            anyio.ClosedResourceError: nobody reads any more.
        """
        while True:
            await self._news.wait()
            self._news, self._urgent = anyio.Event(), anyio.Event()
            while self._due:
                said = self._due.popleft()
                if isinstance(said, anyio.Event):
                    said.set()
                else:
                    await self._writer.write(line_of(said))
            calls = tuple(self._shown)
            for call in calls:
                if not self._due and (make := self._shown.pop(call, None)):
                    await self._writer.write(line_of(make()))
            if calls:
                with anyio.move_on_after(PACE):
                    await self._urgent.wait()
