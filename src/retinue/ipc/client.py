"""The client of a control socket: watch, cancel, steer and extend runs of another process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.ipc import UNIX_SOCKETS_SUPPORTED, messages
from retinue.ipc.messages import Command, ErrorReply, HelloCommand, HelloReply, Reply, encode_line
from retinue.model.event_codec import EventRecord


class CancelSafeReceiveStream(ByteReceiveStream):
    """Receives the bytes of a stream with its own wait.

    In anyio's wait, data that arrives in the moment of a cancellation logs an error of the event loop.
    """

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's, no database

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while True:
            await anyio.wait_readable(self._socket)
            try:
                data = self._socket.recv(max_bytes)
            except (BlockingIOError, InterruptedError):  # a spurious wakeup
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            return data

    async def aclose(self) -> None:
        await self._stream.aclose()


HANDSHAKE_TIMEOUT = 3.0
"""Seconds the other process has to answer hello: a stopped process never does."""

DISCONNECTED = "The process ended before it answered."

CommandReply = TypeVar("CommandReply", messages.CancelReply, messages.SteerReply, messages.ExtendReply)


class ProcessUnreachableError(Exception):
    """The other process cannot be reached; the message gives the reason."""


class ControlConnection:
    """A connection to the control socket of another process."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._receiver = BufferedByteReceiveStream(CancelSafeReceiveStream(stream))

    async def handshake(self) -> None:
        """Exchange hello with the other process.

        Raises:
            ProcessUnreachableError: it does not answer, or declines the connection.
        """
        await self._stream.send(encode_line(HelloCommand()))
        with anyio.move_on_after(HANDSHAKE_TIMEOUT):
            match await self.next_reply():
                case HelloReply():
                    return
                case ErrorReply(message=message):
                    raise ProcessUnreachableError(message)
                case _:
                    raise ProcessUnreachableError("The process sent an invalid answer.")
        raise ProcessUnreachableError("The process does not answer; it may be suspended.")

    async def request(self, command: Command, reply_type: type[CommandReply]) -> CommandReply:
        """Send a command and return its reply.

        Raises:
            ProcessUnreachableError: the process ended first, or declined the command.
        """
        try:
            await self._stream.send(encode_line(command))
        except anyio.BrokenResourceError:
            raise ProcessUnreachableError(DISCONNECTED) from None
        reply = await self.next_reply()
        if isinstance(reply, reply_type):
            return reply
        raise ProcessUnreachableError(reply.message if isinstance(reply, ErrorReply) else DISCONNECTED)

    async def watch(
        self,
        on_live_runs: Callable[[tuple[str, ...]], Awaitable[None]],
        on_event: Callable[[EventRecord], Awaitable[None]],
        *,
        deltas: bool = True,
    ) -> None:
        """Report the live runs once, then each event, until the process ends.

        Raises:
            ProcessUnreachableError: this process was too slow and has been disconnected.
        """
        await self._stream.send(encode_line(messages.WatchCommand(deltas)))
        while (reply := await self.next_reply()) is not None:
            match reply:
                case messages.LiveRunsMessage(runs=runs):
                    await on_live_runs(runs)
                case messages.EventMessage():
                    try:
                        record = reply.decode_event()
                    except msgspec.MsgspecError:
                        continue  # of a later version
                    await on_event(record)
                case messages.SubscriberLagged():
                    raise ProcessUnreachableError(
                        "Some events were not shown, because too many occurred at once; the runs continue."
                    )
                case _:
                    pass

    async def next_reply(self) -> Reply | None:
        """Return the next reply of a known type; None at the end of the connection."""
        while True:
            try:
                line = await self._receiver.receive_until(b"\n", messages.MAX_REPLY_BYTES)
            except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError):
                return None
            if (reply := messages.decode_reply(line)) is not None:
                return reply


@asynccontextmanager
async def open_connection(address: str) -> AsyncIterator[ControlConnection]:
    """Connect to the process that listens at the address, for the block.

    Raises:
        ProcessUnreachableError: no process listens there, or it does not answer.
    """
    if not UNIX_SOCKETS_SUPPORTED:
        raise ProcessUnreachableError(
            "This system has no Unix sockets, so one process cannot reach the runs of another."
        )
    try:
        stream = await anyio.connect_unix(address)
    except ConnectionRefusedError as error:
        remove_socket(address)
        raise ProcessUnreachableError("The process has ended.") from error
    except OSError as error:
        raise ProcessUnreachableError(
            f"The socket {address} of the process cannot be used: {error.strerror}."
        ) from error
    async with stream:
        connection = ControlConnection(stream)
        try:
            await connection.handshake()
        except anyio.BrokenResourceError as error:
            raise ProcessUnreachableError("The process closed the connection.") from error
        yield connection


def remove_socket(address: str) -> None:
    """Remove the socket of a process that has ended."""
    with suppress(OSError):
        Path(address).unlink()
