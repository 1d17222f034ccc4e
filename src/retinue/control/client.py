"""The end of the control socket that looks on: sees the runs of another process, and stops them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.control import places
from retinue.control.protocol import (
    ANSWER_BYTES,
    Answer,
    Cancel,
    Cancelled,
    Declined,
    Happened,
    Hello,
    Lagging,
    Live,
    Watch,
    Welcome,
    answer,
    line,
)
from retinue.events import Stamped

GREETING = 3.0
"""Seconds the other process has to greet us: one that is stopped never will."""


class Unreachable(Exception):  # noqa: N818 - it says what the other process is
    """The other process cannot be spoken to; the message says why."""


class Connection:
    """A connection that has been greeted."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._answers = BufferedByteReceiveStream(stream)

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
        await self._stream.send(line(Cancel(run)))
        match await self._next():
            case Cancelled() as done:
                return done
            case Declined(message=message):
                raise Unreachable(message)
            case _:
                raise Unreachable("It ended before the run did.")

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
