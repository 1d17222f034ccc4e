"""Steering of runs that a program executes: messages to an agent while it works.

A message waits until the program has its task, is sent under an id of its own, and is delivered when the program
reports so. A message that the program accepted and never delivered must not reach another run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from retinue.engines.base import RUN_NOT_ACTIVE
from retinue.engines.process.child import ChildExitedError
from retinue.model.errors import ErrorCode, Failure

SendText = Callable[[str, str], Awaitable[None]]
"""Send a message to the program: its id and its text."""


class _PendingMessage:
    """A message that was sent to the program, and the response to it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_accepted = False
        self._failure: Failure | None = None
        self._resolved = anyio.Event()

    def resolve(self, failure: Failure | None = None) -> None:
        self.is_accepted = failure is None
        self._failure = failure
        self._resolved.set()

    async def wait_resolved(self) -> Failure | None:
        await self._resolved.wait()
        return self._failure


class SteeringChannel:
    """The messages to the agent of one run."""

    def __init__(self) -> None:
        self._send: SendText | None = None
        self._refusal: Failure | None = None
        """Why no message is accepted any more."""
        self._changed = anyio.Event()
        self._pending: dict[str, _PendingMessage] = {}
        """Undelivered messages by id, oldest first."""

    @property
    def is_pending(self) -> bool:
        """A message was sent that is not delivered."""
        return bool(self._pending)

    async def send(self, text: str) -> Failure | None:
        """Send a text as soon as the program can take it; return why it was refused, or None when it is accepted."""
        from uuid import uuid4

        while self._send is None and self._refusal is None:
            await self._changed.wait()
        if self._send is None or self._refusal:
            return self._refusal
        id_ = str(uuid4())
        message = self._pending[id_] = _PendingMessage(text)
        try:
            with anyio.CancelScope(shield=True):  # half a line would break the next one; ends with the process
                await self._send(id_, text)
        except ChildExitedError:
            return RUN_NOT_ACTIVE
        return await message.wait_resolved()

    def open(self, send: SendText) -> None:
        """Start to send messages, because the program has its task."""
        self._send = send
        self._changed.set()

    def close(self, reason: Failure = RUN_NOT_ACTIVE) -> bool:
        """Refuse further messages; return true if all messages were delivered."""
        self._refusal = self._refusal or reason
        self._changed.set()
        all_delivered = not self._pending
        for message in self._pending.values():  # a sender that still waits gets the failure
            message.resolve(RUN_NOT_ACTIVE)
        self._pending.clear()
        return all_delivered

    def mark_accepted(self, id_: str) -> None:
        """Record that the program accepted a message; other ids are ignored."""
        if message := self._pending.get(id_):
            message.resolve()

    def mark_refused(self, id_: str, failure: Failure) -> None:
        """Record that the program refused a message."""
        if message := self._pending.pop(id_, None):
            message.resolve(failure)

    def mark_delivered(self, id_: str | None = None) -> str | None:
        """Record that the agent has a message, by default the oldest accepted one; return its text, if any."""
        if id_ is None:
            id_ = next((id_ for id_, message in self._pending.items() if message.is_accepted), "")
        message = self._pending.pop(id_, None)
        if message is None:
            return None
        message.resolve()
        return message.text


class SteeringRegistry:
    """The steering channels of an engine, by run."""

    def __init__(self) -> None:
        self._channels: dict[str, SteeringChannel] = {}

    @contextmanager
    def register(self, run: str) -> Iterator[SteeringChannel]:
        """Open the channel of a run for the block."""
        channel = self._channels[run] = SteeringChannel()
        try:
            yield channel
        finally:
            channel.close()
            self._channels.pop(run, None)

    async def send(self, run: str, text: str) -> Failure | None:
        """Send a text to a run; return why it was refused, or None."""
        channel = self._channels.get(run)
        return await channel.send(text) if channel else RUN_NOT_ACTIVE


def steering_refused(program: str, error: str) -> Failure:
    """Return the failure of a message that the program refused, with its error."""
    return Failure(ErrorCode.ENGINE, f"{program} did not accept the message: {error}", "steer")
