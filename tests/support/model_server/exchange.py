"""The part of HTTP/1.1 that a model server needs: requests with a body, JSON replies, event streams."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import anyio
import msgspec
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct
from tests.support.model_server.answer import ServerSentEvent

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 32 * 2**20
"""Bytes of a request: a long conversation with images has some megabytes."""


class UnreadableError(ValueError):
    """A malformed request; the connection ends with the reply."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class HttpRequest(Struct, frozen=True):
    """One HTTP request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class HttpConnection:
    """The requests and replies of one connection."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._incoming = BufferedByteReceiveStream(stream)
        self._wants_body = True

    async def read_request(self) -> HttpRequest:
        """Read the next request.

        Raises:
            UnreadableError: it is malformed.
            EndOfStream, IncompleteRead: the client has disconnected.
        """
        try:
            head = (await self._incoming.receive_until(b"\r\n\r\n", MAX_HEAD_BYTES)).decode("latin-1")
        except anyio.DelimiterNotFound as error:
            raise UnreadableError(HTTPStatus.BAD_REQUEST, "The request has no end of its head.") from error
        line, *fields = head.split("\r\n")
        match line.split(" "):
            case [method, path, _]:
                headers = _parse_headers(fields)
            case _:
                raise UnreadableError(HTTPStatus.BAD_REQUEST, f"This is no HTTP request line: {line[:80]!r}.")
        if headers.get("expect", "").lower() == "100-continue":
            await self._stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._wants_body = method != "HEAD"
        return HttpRequest(method, path, headers, await self._read_body(headers))

    async def _read_body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._read_chunks()
        return await self._incoming.receive_exactly(_parse_size(headers.get("content-length", "0"), 10))

    async def _read_chunks(self) -> bytes:
        body = bytearray()
        while size := _parse_size((await self._read_line()).partition(";")[0], 16, so_far=len(body)):
            body += await self._incoming.receive_exactly(size)
            await self._read_line()
        while await self._read_line():
            pass
        return bytes(body)

    async def _read_line(self) -> str:
        try:
            return (await self._incoming.receive_until(b"\r\n", MAX_HEAD_BYTES)).decode("latin-1")
        except anyio.DelimiterNotFound as error:
            raise UnreadableError(HTTPStatus.BAD_REQUEST, "A chunk of the body has no size.") from error

    async def reply(
        self, status: int, value: object, headers: Mapping[str, str] | None = None, *, half: bool = False
    ) -> None:
        """Send a reply, or half of it to simulate a broken connection."""
        data = msgspec.json.encode(value)
        fields = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        sent = len(data) // 2 if half else len(data)
        await self._stream.send(_encode_head(status, fields) + (data[:sent] if self._wants_body else b""))

    async def start_events(self) -> None:
        fields = {"content-type": "text/event-stream", "cache-control": "no-cache", "transfer-encoding": "chunked"}
        await self._stream.send(_encode_head(HTTPStatus.OK, fields))

    async def send_event(self, event: ServerSentEvent) -> None:
        data = event.encode()
        await self._stream.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end_events(self) -> None:
        await self._stream.send(b"0\r\n\r\n")

    async def send_raw(self, status: int, content_type: str, body: bytes, *, endless: bool) -> None:
        """Send a body as it is, again and again if it is endless."""
        await self._stream.send(_encode_head(status, {"content-type": content_type, "transfer-encoding": "chunked"}))
        chunk = b"%x\r\n%s\r\n" % (len(body), body)
        await self._stream.send(chunk)
        while endless:
            await self._stream.send(chunk)
        await self.end_events()

    async def wait_closed(self) -> None:
        """Wait until the client disconnects."""
        try:
            while True:
                await self._incoming.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return

    async def drop(self) -> None:
        """Close the connection at once."""
        await anyio.aclose_forcefully(self._stream)


def _parse_headers(fields: list[str]) -> Mapping[str, str]:
    pairs = (field.partition(":") for field in fields)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _encode_head(status: int, fields: Mapping[str, Any]) -> bytes:
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _parse_size(digits: str, base: int, *, so_far: int = 0) -> int:
    try:
        size = int(digits.strip(), base)
    except ValueError as error:
        raise UnreadableError(HTTPStatus.BAD_REQUEST, f"{digits[:40]!r} is no size of a body.") from error
    if size < 0 or so_far + size > MAX_BODY_BYTES:
        raise UnreadableError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A body may have {MAX_BODY_BYTES} bytes.")
    return size
