"""Receive from local sockets, safely for readers that are cancelled at any moment."""

from __future__ import annotations

import anyio
from anyio.abc import ByteReceiveStream, SocketAttribute, SocketStream


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
