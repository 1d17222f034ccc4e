"""The end of the control socket that looks on: sees the runs of another process, stops, steers and extends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.arriving import Arriving
from retinue.control import places
from retinue.control.protocol import (
    ANSWER_BYTES,
    Answer,
    Cancel,
    Cancelled,
    Declined,
    Extend,
    Extended,
    Happened,
    Hello,
    Lagging,
    Live,
    Order,
    Steer,
    Steered,
    Watch,
    Welcome,
    answer,
    line,
)
from retinue.events import Stamped

GREETING = 3.0
"""Seconds the other process has to greet us: one that is stopped never will."""


GONE = "It ended before it had answered."

Done = TypeVar("Done", Cancelled, Steered, Extended)


class Unreachable(Exception):  # noqa: N818 - it says what the other process is
    """The other process cannot be spoken to; the message says why."""


class Connection:
    """A connection that has been greeted."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._answers = BufferedByteReceiveStream(Arriving(stream))

    async def greet(self) -> None:
        await self._stream.send(line(Hello()))
        with anyio.move_on_after(GREETING):
            match await self._next():
                case Welcome():
                    return
                case Declined(message=message):
                    raise Unreachable(message)
                case _:
                    raise Unreachable("It says nothing that could be understood.")
        raise Unreachable("It does not answer: it may be stopped.")

    async def cancel(self, run: str) -> Cancelled:
        """Stops a run; returns once it has ended.

        Raises:
            Unreachable: the process ended first, or will not.
        """
        return await self._obeyed(Cancel(run), Cancelled)

    async def steer(self, run: str, text: str) -> Steered:
        """Says something to the agent of a run; returns once its engine has it, or could not take it.

        Raises:
            Unreachable: the process ended first, or will not.
        """
        return await self._obeyed(Steer(run, text), Steered)

    async def extend(self, run: str, seconds: float) -> Extended:
        """Gives a run more time.

        Raises:
            Unreachable: the same.
        """
        return await self._obeyed(Extend(run, seconds), Extended)

    async def watch(
        self,
        live: Callable[[tuple[str, ...]], Awaitable[None]],
        take: Callable[[Stamped], Awaitable[None]],
        *,
        deltas: bool = True,
    ) -> None:
        """Tells which runs are `live` at first, then hands on what happens, until the process ends.

        Raises:
            Unreachable: we were too slow and have been cut off.
        """
        await self._stream.send(line(Watch(deltas)))
        while (told := await self._next()) is not None:
            match told:
                case Live(runs=runs):
                    await live(runs)
                case Happened():
                    try:
                        stamped = told.stamped()
                    except msgspec.MsgspecError:
                        continue  # of a later version
                    await take(stamped)
                case Lagging():
                    raise Unreachable("More happened than could be shown; the runs go on.")
                case _:
                    pass

    async def _obeyed(self, given: Order, kind: type[Done]) -> Done:
        """What came of an order."""
        try:
            await self._stream.send(line(given))
        except anyio.BrokenResourceError:
            raise Unreachable(GONE) from None
        match await self._next():
            case Declined(message=message):
                raise Unreachable(message)
            case done if isinstance(done, kind):
                return done
            case _:
                raise Unreachable(GONE)

    async def _next(self) -> Answer | None:
        """The next answer that we know; None when there will be no more."""
        while True:
            try:
                received = await self._answers.receive_until(b"\n", ANSWER_BYTES)
            except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError):
                return None
            if (told := answer(received)) is not None:
                return told


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Connection]:
    """A connection for the block to the process that listens there.

    Raises:
        Unreachable: nobody does.
    """
    if not places.IS_HERE:
        raise Unreachable("This system has no sockets by which one process could reach the runs of another.")
    try:
        stream = await anyio.connect_unix(address)
    except ConnectionRefusedError as error:
        places.bury(address)
        raise Unreachable("Its process is gone.") from error
    except OSError as error:
        raise Unreachable(f"Its socket {address} cannot be used: {error.strerror}.") from error
    async with stream:
        connection = Connection(stream)
        try:
            await connection.greet()
        except anyio.BrokenResourceError as error:
            raise Unreachable("It closed the connection.") from error
        yield connection
