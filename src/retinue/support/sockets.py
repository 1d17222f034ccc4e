"""What arrives at a socket of this machine, for readers who may be cancelled at any moment."""

from __future__ import annotations

import anyio
from anyio.abc import ByteReceiveStream, SocketAttribute, SocketStream


class CancelSafeReceiveStream(ByteReceiveStream):
    """The bytes of a stream, waited for by itself.

    In anyio's own waiting, what arrives in the very moment of a cancellation is a fault in the event loop's log.
    """

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's, no database

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while True:
            await anyio.wait_readable(self._socket)
            try:
                data = self._socket.recv(max_bytes)
            except (BlockingIOError, InterruptedError):  # it looked as if there were something
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            return data

    async def aclose(self) -> None:
        await self._stream.aclose()
