"""What others say to one run of a program while it works.

A text waits until the program has its task, goes to the program by a name of its own, and is the agent's once the
program says so. What the program took and never gave its agent must not reach another run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from retinue.engines.base import RUN_NOT_ACTIVE
from retinue.engines.process.child import ChildExitedError
from retinue.model.errors import ErrorCode, Failure

SendText = Callable[[str, str], Awaitable[None]]
"""Says a text to the program, under this name."""


class _PendingMessage:
    """A text that the program was given, and what it says to that."""

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
    """The way from others to the agent of one run."""

    def __init__(self) -> None:
        self._send: SendText | None = None
        self._refusal: Failure | None = None
        """Why nothing is taken any more."""
        self._changed = anyio.Event()
        self._pending: dict[str, _PendingMessage] = {}
        """What the agent has not been given, by its name, in the order it was said."""

    @property
    def is_pending(self) -> bool:
        """Whether something was said that the agent has not been given."""
        return bool(self._pending)

    async def send(self, text: str) -> Failure | None:
        """Says the text as soon as the program can be told something; why in vain, or None once it has the text."""
        from uuid import uuid4

        while self._send is None and self._refusal is None:
            await self._changed.wait()
        if self._send is None or self._refusal:
            return self._refusal
        name = str(uuid4())
        message = self._pending[name] = _PendingMessage(text)
        try:
            with anyio.CancelScope(shield=True):  # half a line would spoil the next; it ends with the process
                await self._send(name, text)
        except ChildExitedError:
            return RUN_NOT_ACTIVE
        return await message.wait_resolved()

    def open(self, send: SendText) -> None:
        """The task has been given: from now on the program can be told more."""
        self._send = send
        self._changed.set()

    def close(self, reason: Failure = RUN_NOT_ACTIVE) -> bool:
        """Takes nothing any more; whether all that was said has reached the agent."""
        self._refusal = self._refusal or reason
        self._changed.set()
        all_delivered = not self._pending
        for message in self._pending.values():  # whoever waits is told; who does not, hears of it with the result
            message.resolve(RUN_NOT_ACTIVE)
        self._pending.clear()
        return all_delivered

    def mark_accepted(self, name: str) -> None:
        """Takes note that the program has a text, if that is one of these."""
        if message := self._pending.get(name):
            message.resolve()

    def mark_refused(self, name: str, failure: Failure) -> None:
        """Takes note that it will not have it."""
        if message := self._pending.pop(name, None):
            message.resolve(failure)

    def mark_delivered(self, name: str | None = None) -> str | None:
        """Takes note that the agent has the text of this name, or the first that was taken; which that is, if any."""
        if name is None:
            name = next((name for name, told in self._pending.items() if told.is_accepted), "")
        message = self._pending.pop(name, None)
        if message is None:
            return None
        message.resolve()
        return message.text


class SteeringRegistry:
    """The runs of an engine that can be told something, each by its id."""

    def __init__(self) -> None:
        self._channels: dict[str, SteeringChannel] = {}

    @contextmanager
    def register(self, run: str) -> Iterator[SteeringChannel]:
        """A block in which the run can be told something."""
        channel = self._channels[run] = SteeringChannel()
        try:
            yield channel
        finally:
            channel.close()
            self._channels.pop(run, None)

    async def send(self, run: str, text: str) -> Failure | None:
        """Says the text to a run; why that was in vain, or None."""
        channel = self._channels.get(run)
        return await channel.send(text) if channel else RUN_NOT_ACTIVE


def steering_refused(program: str, error: str) -> Failure:
    """Of a text that the program refuses, in its own words."""
    return Failure(ErrorCode.ENGINE, f"{program} did not take it: {error}", "steer")
