"""The queue of messages to one peer: replies in order, partial results only as fast as the peer reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

from retinue.ipc.messages import BridgeMessage, Reply, encode_line

OutgoingMessage = Reply | BridgeMessage
MakeMessage = Callable[[], OutgoingMessage]


class OutgoingQueue:
    """Write messages one after the other. Of the unwritten partial results of a call only the newest is kept."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]], update_interval: float = 0.0) -> None:
        """`update_interval` is the time in seconds between two partial results: each repeats the whole so far."""
        self._write = write
        self._update_interval = update_interval
        self._messages: deque[OutgoingMessage | anyio.Event] = deque()
        self._updates: dict[str, MakeMessage] = {}
        self._changed = anyio.Event()
        self._urgent = anyio.Event()

    def send(self, message: OutgoingMessage | anyio.Event) -> None:
        """Add a message to the queue; an event is set when all messages before it are written."""
        self._messages.append(message)
        self._urgent.set()
        self._changed.set()

    async def drain(self) -> None:
        """Return when all messages sent so far are written."""
        self.send(written := anyio.Event())
        await written.wait()

    def send_update(self, call: str, make: MakeMessage) -> None:
        """Replace the unwritten partial result of a call; it is made when it is written."""
        self._updates[call] = make
        self._changed.set()

    def drop_updates(self, call: str) -> None:
        """Remove the unwritten partial result of a call."""
        self._updates.pop(call, None)

    async def write_messages(self) -> None:
        """Write until cancelled, or until the write function raises."""
        while True:
            await self._changed.wait()
            self._changed, self._urgent = anyio.Event(), anyio.Event()
            while self._messages:
                message = self._messages.popleft()
                if isinstance(message, anyio.Event):
                    message.set()
                else:
                    await self._write(encode_line(message))
            calls = tuple(self._updates)
            for call in calls:
                if not self._messages and (make := self._updates.pop(call, None)):
                    await self._write(encode_line(make()))
            if calls and self._update_interval:
                with anyio.move_on_after(self._update_interval):
                    await self._urgent.wait()
