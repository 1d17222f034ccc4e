"""Checks of a request before it is routed: headers, body size, host name, origin, repeated wrong tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from typing import Any

import anyio

MAX_BODY_BYTES = 4 * 2**20
BODY_TOO_LARGE = f"A request may have {MAX_BODY_BYTES // 2**20} MiB."
BODY_TIMEOUT = 30.0
"""Seconds a client has to send its request."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Host names of a server on loopback."""
HTTP_PORT = 80
FREE_ATTEMPTS = 20
"""Wrong tokens that are answered at once; each further one is answered late."""
WRONG_TOKEN_DELAY = 1.0

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
AsgiApp = Callable[[Any, Receive, Send], Awaitable[None]]
Headers = list[tuple[str, str]]


class HttpError(Exception):
    """A request that is answered with an error status."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers


def read_headers(scope: Scope) -> Headers:
    """Return the headers of a request with lower-case names."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]


def validate_headers(scope: Scope) -> Headers:
    """Return the headers of a request that is unambiguous and not too large.

    Raises:
        HttpError: the path, the length or the encoding of the request is not acceptable.
    """
    headers = read_headers(scope)
    names = {name for name, _ in headers}
    if not scope["path"].startswith("/"):
        raise HttpError(421, "This server is not a proxy: request a path, not an absolute URL.", connection="close")
    if {"content-length", "transfer-encoding"} <= names:
        raise HttpError(400, "The request has both Content-Length and Transfer-Encoding.", connection="close")
    if "content-encoding" in names and single_header(headers, "content-encoding") != "identity":
        raise HttpError(415, "Send the body uncompressed.", connection="close")
    if int(single_header(headers, "content-length") or 0) > MAX_BODY_BYTES:
        raise HttpError(413, BODY_TOO_LARGE, connection="close")
    return headers


def single_header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the value of a header; None if it is missing or sent more than once."""
    found = [value for key, value in headers if key == name]
    return found[0] if len(found) == 1 else None


def is_json(content_type: str | None) -> bool:
    return (content_type or "").partition(";")[0].strip().lower() == "application/json"


async def read_body(receive: Receive) -> bytes:
    """Return the whole body of a request.

    Raises:
        HttpError: the body is too large, took too long, or its sender disconnected.
    """
    body = bytearray()
    with anyio.move_on_after(BODY_TIMEOUT):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise HttpError(400, "The request is incomplete.")
            body += message.get("body", b"")
            if len(body) > MAX_BODY_BYTES:
                raise HttpError(413, BODY_TOO_LARGE, connection="close")
            if not message.get("more_body", False):
                return bytes(body)
    raise HttpError(408, f"A request must be sent within {BODY_TIMEOUT:g} seconds.", connection="close")


def add_default_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """Return a `send` that adds these headers to a response, except those the response sets itself."""
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

    async def send_with_headers(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", ()))
            names = {name for name, _ in own}
            message = {**message, "headers": [*(pair for pair in encoded if pair[0] not in names), *own]}
        await send(message)

    return send_with_headers


class AllowedHosts:
    """The host names and origins a server answers to, so that no other site reaches it through a browser."""

    def __init__(self, port: int, names: Collection[str] = LOOPBACK) -> None:
        self._hosts = {f"{name}:{port}".lower() for name in names}
        if port == HTTP_PORT:  # browsers leave it out
            self._hosts |= {name.lower() for name in names}
        self._origins = {f"http://{host}" for host in self._hosts}

    def check(self, headers: Headers) -> None:
        """Accept a request for this server that no other site's page has sent.

        Raises:
            HttpError: Host names another server, or Origin another site.
        """
        if (single_header(headers, "host") or "").lower() not in self._hosts:
            raise HttpError(421, "The Host header does not name this server.")
        if any(name == "origin" and value not in self._origins for name, value in headers):
            raise HttpError(403, "Requests from other origins are refused.")


class LoginThrottle:
    """A delay for wrong tokens, once there have been many."""

    def __init__(self) -> None:
        self._wrong = 0

    async def count_failure(self) -> None:
        """Count a wrong token, and return late after many of them."""
        self._wrong += 1
        if self._wrong > FREE_ATTEMPTS:
            await anyio.sleep(WRONG_TOKEN_DELAY)
