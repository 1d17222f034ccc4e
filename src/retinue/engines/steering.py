"""What others say to one run of a program while it works.

A text waits until the program has its task, goes to the program by a name of its own, and is the agent's once the
program says so. What the program took and never gave its agent must not reach another run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from retinue.engines.base import NOT_AT_WORK
from retinue.engines.child import ChildGone
from retinue.types import Code, Failure

Send = Callable[[str, str], Awaitable[None]]
"""Says a text to the program, under this name."""


class _Told:
    """A text that the program was given, and what it says to that."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_taken = False
        self._failure: Failure | None = None
        self._answered = anyio.Event()

    def answer(self, failure: Failure | None = None) -> None:
        self.is_taken = failure is None
        self._failure = failure
        self._answered.set()

    async def answered(self) -> Failure | None:
        await self._answered.wait()
        return self._failure


class Steering:
    """The way from others to the agent of one run."""

    def __init__(self) -> None:
        self._send: Send | None = None
        self._refusal: Failure | None = None
        """Why nothing is taken any more."""
        self._moved = anyio.Event()
        self._told: dict[str, _Told] = {}
        """What the agent has not been given, by its name, in the order it was said."""

    @property
    def is_pending(self) -> bool:
        """Whether something was said that the agent has not been given."""
        return bool(self._told)

    async def tell(self, text: str) -> Failure | None:
        """Says the text as soon as the program can be told something; why in vain, or None once it has the text."""
        from uuid import uuid4

        while self._send is None and self._refusal is None:
            await self._moved.wait()
        if self._send is None or self._refusal:
            return self._refusal
        name = str(uuid4())
        told = self._told[name] = _Told(text)
        try:
            with anyio.CancelScope(shield=True):  # half a line would spoil the next; it ends with the process
                await self._send(name, text)
        except ChildGone:
            return NOT_AT_WORK
        return await told.answered()

    def begin(self, send: Send) -> None:
        """The task has been given: from now on the program can be told more."""
        self._send = send
        self._moved.set()

    def end(self, why: Failure = NOT_AT_WORK) -> bool:
        """Takes nothing any more; whether all that was said has reached the agent."""
        self._refusal = self._refusal or why
        self._moved.set()
        is_heard = not self._told
        for told in self._told.values():  # whoever waits is told; who does not, hears of it with the result
            told.answer(NOT_AT_WORK)
        self._told.clear()
        return is_heard

    def taken(self, name: str) -> None:
        """Takes note that the program has a text, if that is one of these."""
        if told := self._told.get(name):
            told.answer()

    def refused(self, name: str, failure: Failure) -> None:
        """Takes note that it will not have it."""
        if told := self._told.pop(name, None):
            told.answer(failure)

    def given(self, name: str | None = None) -> str | None:
        """Takes note that the agent has the text of this name, or the first that was taken; which that is, if any."""
        if name is None:
            name = next((name for name, told in self._told.items() if told.is_taken), "")
        told = self._told.pop(name, None)
        if told is None:
            return None
        told.answer()
        return told.text


class SteeredRuns:
    """The runs of an engine that can be told something, each by its id."""

    def __init__(self) -> None:
        self._runs: dict[str, Steering] = {}

    @contextmanager
    def at_work(self, run: str) -> Iterator[Steering]:
        """A block in which the run can be told something."""
        steering = self._runs[run] = Steering()
        try:
            yield steering
        finally:
            steering.end()
            self._runs.pop(run, None)

    async def tell(self, run: str, text: str) -> Failure | None:
        """Says the text to a run; why that was in vain, or None."""
        steering = self._runs.get(run)
        return await steering.tell(text) if steering else NOT_AT_WORK


def not_taken(program: str, error: str) -> Failure:
    """Of a text that the program refuses, in its own words."""
    return Failure(Code.ENGINE, f"{program} did not take it: {error}", "steer")
