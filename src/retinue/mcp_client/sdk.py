"""The only module that imports the MCP SDK as a client: transports to a server, and a session on one.

Lists and results are taken as the server sent them: the SDK's own types would refuse a whole list for one bad tool.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams
    from mcp.shared.exceptions import MCPError
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

MAX_MESSAGE_BYTES = 16 * 2**20
"""Bytes of one message of a server; one that sends more is ended."""
HTTP_TIMEOUT = 30.0
"""Seconds to connect to a server and to send a request. How long an answer may take is the call's matter."""
STATUS_ERROR = 400

ReceiveChunk = Callable[[], Awaitable[bytes]]
"""Returns the next bytes of a server; none at the end."""
SendMessage = Callable[[bytes], Awaitable[None]]


class ServerError(Exception):
    """A server refused a request, or the connection to it ended; the message is the server's own, or the SDK's."""


class ConnectionClosedError(ServerError):
    """The connection to a server ended."""


class MessageTooLongError(Exception):
    """A server sent more than a message may have."""


async def import_sdk() -> None:
    """Import the SDK, which takes a second, in a thread; a stopped run does not wait for it."""
    for module in ("mcp.client.session", "mcp.client.streamable_http"):
        await anyio.to_thread.run_sync(import_module, module, abandon_on_cancel=True)


class ServerSession:
    """A session with one server, after the handshake."""

    def __init__(self, dispatcher: JSONRPCDispatcher[Any]) -> None:
        self._dispatcher = dispatcher

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result of a request as the server sent it.

        Raises:
            ServerError: the server refused it, or is gone.
        """
        from mcp.shared.exceptions import MCPError

        try:
            return await self._dispatcher.send_raw_request(method, params)
        except MCPError as error:
            raise _convert_error(error) from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise ConnectionClosedError("the connection is closed") from error


@asynccontextmanager
async def open_session(streams: TransportStreams) -> AsyncIterator[ServerSession]:
    """Shake hands with the server at the end of the streams.

    Raises:
        ServerError: the server refused, or is gone.
    """
    import mcp_types as types
    from mcp.client.session import ClientSession
    from mcp.shared.exceptions import MCPError
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    from retinue import __version__

    dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(*streams)
    info = types.Implementation(name="retinue", version=__version__)
    async with ClientSession(dispatcher=dispatcher, client_info=info) as session:
        try:
            await session.initialize()
        except MCPError as error:
            raise _convert_error(error) from error
        yield ServerSession(dispatcher)


def _convert_error(error: MCPError) -> ServerError:
    import mcp_types as types

    kind = ConnectionClosedError if error.error.code == types.CONNECTION_CLOSED else ServerError
    return kind(str(error))


@asynccontextmanager
async def open_stdio(
    receive: ReceiveChunk, send: SendMessage, on_too_long: Callable[[MessageTooLongError], None]
) -> AsyncIterator[TransportStreams]:
    """Exchange messages, one a line, with a program. Lines that are no messages are ignored.

    If a line is too long, its error is passed on at once, the block is cancelled, and the error raised.

    Raises:
        MessageTooLongError
    """
    from mcp.shared.message import SessionMessage

    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def read_messages() -> None:
        async with incoming:
            async for line in _split_lines(receive, on_too_long):
                if (message := _parse_message(line)) is not None:
                    try:
                        await incoming.send(message)
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return

    async def write_messages() -> None:
        async with outgoing:
            async for message in outgoing:
                try:
                    await send(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                except OSError:  # the program no longer reads; its end is noticed by its output
                    return

    async with anyio.create_task_group() as group, read_stream, write_stream:
        group.start_soon(read_messages)
        group.start_soon(write_messages)
        yield read_stream, write_stream
        group.cancel_scope.cancel()


async def _split_lines(
    receive: ReceiveChunk, on_too_long: Callable[[MessageTooLongError], None]
) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    size = 0
    while chunk := await receive():
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield b"".join([*parts, line])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > MAX_MESSAGE_BYTES:
            error = MessageTooLongError()
            on_too_long(error)
            raise error


def _parse_message(line: bytes) -> Any:
    import mcp_types as types
    from mcp.shared.message import SessionMessage

    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


# -- HTTP ------------------------------------------------------------------------------------------


class HttpFailures:
    """The last status of an HTTP server that is an error."""

    def __init__(self) -> None:
        self.status = 0

    async def note(self, response: httpx2.Response) -> None:
        if response.status_code >= STATUS_ERROR:
            self.status = response.status_code


@asynccontextmanager
async def open_http(
    url: str, headers: Mapping[str, str], failures: HttpFailures, *, is_sse: bool = False
) -> AsyncIterator[TransportStreams]:
    """Connect to a server by streamable HTTP, or by the older SSE transport."""
    if is_sse:
        from mcp.client.sse import sse_client

        async with sse_client(url, headers=dict(headers), httpx_client_factory=_ClientFactory(failures)) as streams:
            yield streams
        return
    from mcp.client.streamable_http import streamable_http_client

    async with (
        _ClientFactory(failures)(headers=dict(headers)) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


class _ClientFactory:
    """Makes HTTP clients that note failures, and refuse endless JSON and compressed answers of any size."""

    def __init__(self, failures: HttpFailures) -> None:
        self._failures = failures

    def __call__(
        self, headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None
    ) -> httpx2.AsyncClient:
        import httpx2

        return httpx2.AsyncClient(
            headers={**(headers or {}), "Accept-Encoding": "identity"},
            timeout=timeout or httpx2.Timeout(HTTP_TIMEOUT, read=None),
            auth=auth,
            event_hooks={"response": [self._failures.note, _refuse_compressed, _bound_json]},
        )


async def _refuse_compressed(response: httpx2.Response) -> None:
    """Refuse a body that could be thousands of times as large once it is decoded."""
    import httpx2

    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        raise httpx2.DecodingError(f"it compresses its answers ({encoding[:20]!a}), although it was asked not to")


async def _bound_json(response: httpx2.Response) -> None:
    """Replace the body of a JSON response by one that ends with an error when it is too long; streams have events."""
    import httpx2

    class BoundedStream(httpx2.AsyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._inner:
                size += len(chunk)
                if size > MAX_MESSAGE_BYTES:
                    raise httpx2.ReadError(f"the response has more than {MAX_MESSAGE_BYTES} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._inner.aclose()

    if "event-stream" not in response.headers.get("content-type", ""):
        response.stream = BoundedStream(response.stream)
