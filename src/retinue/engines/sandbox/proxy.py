"""The proxy that is the only way out of a `strict` sandbox: it connects to allowed hosts and to nothing else.

Its listening socket comes out of the sandbox's own network, so nothing inside has to forward connections.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
from anyio.abc import ByteStream, SocketStream, TaskGroup
from msgspec import Struct

from retinue.model.sandbox import HostPattern, host_of_url, is_allowed, split_host
from retinue.support.tasks import BackgroundTasks

PROXY_PORT = 3128
"""The port inside: nothing else listens in a new network."""
MAX_CONNECTIONS = 64
MAX_HEAD_BYTES = 64 * 2**10
HEAD_TIMEOUT = 30.0
"""Seconds in which a client sends the head of its request."""
CONNECT_TIMEOUT = 30.0
CHUNK_BYTES = 64 * 2**10
_HEAD_END = b"\r\n\r\n"
_HOP_HEADERS = (b"proxy-connection:", b"proxy-authorization:", b"connection:", b"keep-alive:")


class RequestRefusedError(Exception):
    """A request that the proxy does not pass on: the status line, and the reason for the client."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class SandboxProxy:
    """The proxy of one sandbox."""

    def __init__(self, patterns: Sequence[HostPattern]) -> None:
        self.patterns: tuple[HostPattern, ...] = tuple(patterns)
        """The hosts that can be reached; may be replaced while it runs."""
        self.refused: list[str] = []
        """The hosts that were asked for and not allowed, each once."""
        self._slots = anyio.Semaphore(MAX_CONNECTIONS)

    def take_refused(self) -> list[str]:
        """Return the hosts that were refused since the last call."""
        refused, self.refused = self.refused, []
        return refused

    async def serve(self, listener: socket.socket) -> None:
        """Serve connections until cancelled."""
        listener.setblocking(False)
        async with anyio.create_task_group() as group:
            while True:
                await self._slots.acquire()
                await anyio.wait_readable(listener)
                await self._accept(listener, group)

    async def _accept(self, listener: socket.socket, group: TaskGroup) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError:  # the client has given up meanwhile
            self._slots.release()
            return
        stream = await SocketStream.from_socket(accepted)
        group.start_soon(self._serve_connection, stream)

    async def _serve_connection(self, client: SocketStream) -> None:
        try:
            async with client:
                await self._serve_request(client)
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # one of the two ends is gone
        finally:
            self._slots.release()

    async def _serve_request(self, client: SocketStream) -> None:
        try:
            head, rest = await _receive_head(client)
            host, port, forwarded = self._parse_request(head)
            upstream = await _connect(host, port)
        except RequestRefusedError as error:
            text = f"{error}\n".encode()
            await client.send(
                f"HTTP/1.1 {error.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + text
            )
            return
        async with upstream:
            if forwarded is None:
                await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _pump_both(client, upstream, rest)
            else:
                await _pump_both(client, upstream, forwarded + rest)

    def _parse_request(self, head: bytes) -> tuple[str, int, bytes | None]:
        """Return the host and port of a request, and its head as the host gets it; None for a tunnel.

        Raises:
            RequestRefusedError: it is not HTTP, or the host is not allowed.
        """
        line, _, headers = head.partition(b"\r\n")
        words = line.split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):  # noqa: PLR2004
            raise RequestRefusedError("400 Bad Request", "This proxy understands HTTP/1.1 only.")
        method, target, version = words
        url = target.decode("ascii", "replace")
        address = url if method == b"CONNECT" else host_of_url(url) if url.startswith("http://") else None
        host, port = split_host(address or "")
        if not host or port is None:
            raise RequestRefusedError("400 Bad Request", f"This proxy cannot pass on {url[:200]!r}.")
        if not is_allowed(host, port, self.patterns):
            name = f"{host}:{port}"
            if name not in self.refused and len(self.refused) < MAX_CONNECTIONS:
                self.refused.append(name)
            raise RequestRefusedError(
                "403 Forbidden",
                f"Retinue's sandbox does not allow {name}. The user can allow it with the setting sandbox_hosts.",
            )
        if method == b"CONNECT":
            return host, port, None
        # The next request of this connection could name another host: the connection ends with this one.
        kept = [each for each in headers.split(b"\r\n") if each and not each.lower().startswith(_HOP_HEADERS)]
        path = b"/" + target.split(b"/", 3)[3] if target.count(b"/") > 2 else b"/"  # noqa: PLR2004
        start = b" ".join((method, path, version))
        return host, port, b"\r\n".join((start, *kept, b"Connection: close", b"", b""))


async def _receive_head(client: ByteStream) -> tuple[bytes, bytes]:
    """Return the head of a request, and what the client sent behind it.

    Raises:
        RequestRefusedError: it is too long, or takes too long.
    """
    received = b""
    with anyio.move_on_after(HEAD_TIMEOUT):
        while _HEAD_END not in received:
            if len(received) > MAX_HEAD_BYTES:
                raise RequestRefusedError(
                    "431 Request Header Fields Too Large", "The head of the request is too long."
                )
            received += await client.receive()
        head, _, rest = received.partition(_HEAD_END)
        return head, rest
    raise RequestRefusedError("408 Request Timeout", "The head of the request did not arrive.")


async def _connect(host: str, port: int) -> SocketStream:
    try:
        with anyio.fail_after(CONNECT_TIMEOUT):
            return await anyio.connect_tcp(host, port)
    except (OSError, TimeoutError) as error:
        raise RequestRefusedError("502 Bad Gateway", f"{host}:{port} cannot be reached: {error}.") from error


async def _pump_both(client: SocketStream, upstream: SocketStream, first: bytes) -> None:
    """Pass on all bytes in both directions until the host has sent everything."""
    if first:
        await upstream.send(first)
    async with BackgroundTasks(partial(_pump, client, upstream)):
        await _pump(upstream, client)


async def _pump(source: SocketStream, target: SocketStream) -> None:
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
        while True:
            await target.send(await source.receive(CHUNK_BYTES))
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await target.send_eof()


class OpenProxy(Struct, frozen=True):
    """A proxy that runs, and how it is reached."""

    proxy: SandboxProxy
    port: int
    socket: str | None
    """Where the sandbox sends the socket that listens in its own network; None without such a network."""


@asynccontextmanager
async def open_proxy(patterns: Sequence[HostPattern], folder: str) -> AsyncIterator[OpenProxy]:
    """Run a proxy for a sandbox with a network of its own."""
    proxy, path = SandboxProxy(patterns), os.path.join(folder, "proxy")
    with socket.socket(socket.AF_UNIX) as receiver:
        receiver.bind(path)
        receiver.listen(1)
        receiver.setblocking(False)
        async with BackgroundTasks(partial(_receive_and_serve, proxy, receiver)):
            yield OpenProxy(proxy, PROXY_PORT, path)


async def _receive_and_serve(proxy: SandboxProxy, receiver: socket.socket) -> None:
    """Wait for the listening socket of the sandbox, and serve it; nothing is served if none comes."""
    await anyio.wait_readable(receiver)
    connection, _ = receiver.accept()
    with connection:
        await anyio.wait_readable(connection)
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    for descriptor in descriptors:
        with socket.socket(fileno=descriptor) as listener:
            await proxy.serve(listener)


@asynccontextmanager
async def open_loopback_proxy(patterns: Sequence[HostPattern]) -> AsyncIterator[OpenProxy]:
    """Run a proxy for a sandbox that shares the network but can connect to this port only."""
    proxy = SandboxProxy(patterns)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with BackgroundTasks(partial(proxy.serve, listener)):
            yield OpenProxy(proxy, listener.getsockname()[1], None)
