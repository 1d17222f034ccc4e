"""The end of the control socket that looks on: sees the runs of another process, stops, steers and extends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.ipc import socket_path as places
from retinue.ipc.messages import (
    MAX_REPLY_BYTES,
    CancelCommand,
    CancelReply,
    Command,
    ErrorReply,
    EventMessage,
    ExtendCommand,
    ExtendReply,
    HelloCommand,
    HelloReply,
    LiveRunsMessage,
    Reply,
    SteerCommand,
    SteerReply,
    SubscriberLagged,
    WatchCommand,
    decode_reply,
    encode_line,
)
from retinue.model.event_codec import EventRecord
from retinue.support.sockets import CancelSafeReceiveStream

HANDSHAKE_TIMEOUT = 3.0
"""Seconds the other process has to greet us: one that is stopped never will."""


DISCONNECTED = "It ended before it had answered."

CommandReply = TypeVar("CommandReply", CancelReply, SteerReply, ExtendReply)


class ProcessUnreachableError(Exception):
    """The other process cannot be spoken to; the message says why."""


class ControlConnection:
    """A connection that has been greeted."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._receiver = BufferedByteReceiveStream(CancelSafeReceiveStream(stream))

    async def handshake(self) -> None:
        await self._stream.send(encode_line(HelloCommand()))
        with anyio.move_on_after(HANDSHAKE_TIMEOUT):
            match await self._next_reply():
                case HelloReply():
                    return
                case ErrorReply(message=message):
                    raise ProcessUnreachableError(message)
                case _:
                    raise ProcessUnreachableError("It says nothing that could be understood.")
        raise ProcessUnreachableError("It does not answer: it may be stopped.")

    async def cancel(self, run: str) -> CancelReply:
        """Stops a run; returns once it has ended.

        Raises:
            Unreachable: the process ended first, or will not.
        """
        return await self._request(CancelCommand(run), CancelReply)

    async def steer(self, run: str, text: str) -> SteerReply:
        """Says something to the agent of a run; returns once its engine has it, or could not take it.

        Raises:
            Unreachable: the process ended first, or will not.
        """
        return await self._request(SteerCommand(run, text), SteerReply)

    async def extend(self, run: str, seconds: float) -> ExtendReply:
        """Gives a run more time.

        Raises:
            Unreachable: the same.
        """
        return await self._request(ExtendCommand(run, seconds), ExtendReply)

    async def watch(
        self,
        on_live_runs: Callable[[tuple[str, ...]], Awaitable[None]],
        on_event: Callable[[EventRecord], Awaitable[None]],
        *,
        deltas: bool = True,
    ) -> None:
        """Tells which runs are `live` at first, then hands on what happens, until the process ends.

        Raises:
            Unreachable: we were too slow and have been cut off.
        """
        await self._stream.send(encode_line(WatchCommand(deltas)))
        while (reply := await self._next_reply()) is not None:
            match reply:
                case LiveRunsMessage(runs=runs):
                    await on_live_runs(runs)
                case EventMessage():
                    try:
                        stamped = reply.decode_event()
                    except msgspec.MsgspecError:
                        continue  # of a later version
                    await on_event(stamped)
                case SubscriberLagged():
                    raise ProcessUnreachableError("More happened than could be shown; the runs go on.")
                case _:
                    pass

    async def _request(self, command: Command, reply_type: type[CommandReply]) -> CommandReply:
        """What came of an order."""
        try:
            await self._stream.send(encode_line(command))
        except anyio.BrokenResourceError:
            raise ProcessUnreachableError(DISCONNECTED) from None
        match await self._next_reply():
            case ErrorReply(message=message):
                raise ProcessUnreachableError(message)
            case done if isinstance(done, reply_type):
                return done
            case _:
                raise ProcessUnreachableError(DISCONNECTED)

    async def _next_reply(self) -> Reply | None:
        """The next answer that we know; None when there will be no more."""
        while True:
            try:
                received = await self._receiver.receive_until(b"\n", MAX_REPLY_BYTES)
            except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError):
                return None
            if (reply := decode_reply(received)) is not None:
                return reply


@asynccontextmanager
async def open_connection(address: str) -> AsyncIterator[ControlConnection]:
    """A connection for the block to the process that listens there.

    Raises:
        Unreachable: nobody does.
    """
    if not places.UNIX_SOCKETS_SUPPORTED:
        raise ProcessUnreachableError(
            "This system has no sockets by which one process could reach the runs of another."
        )
    try:
        stream = await anyio.connect_unix(address)
    except ConnectionRefusedError as error:
        places.remove_socket(address)
        raise ProcessUnreachableError("Its process is gone.") from error
    except OSError as error:
        raise ProcessUnreachableError(f"Its socket {address} cannot be used: {error.strerror}.") from error
    async with stream:
        connection = ControlConnection(stream)
        try:
            await connection.handshake()
        except anyio.BrokenResourceError as error:
            raise ProcessUnreachableError("It closed the connection.") from error
        yield connection
