"""A request in the words of ASGI: what is read of it within bounds, and how it is answered or turned away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import anyio

MAX_BODY_BYTES = 4 * 2**20
BODY_TOO_LARGE = f"A request may have {MAX_BODY_BYTES // 2**20} MiB."
BODY_TIMEOUT = 30.0
"""A client has for its request."""

Scope = Mapping[str, Any]
AsgiMessage = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
AsgiApp = Callable[[Any, Receive, Send], Awaitable[None]]
Headers = list[tuple[str, str]]


class HttpError(Exception):
    """The request goes no further."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers


def read_headers(scope: Scope) -> Headers:
    """The headers of a request, their names in small letters."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]


def validate_headers(scope: Scope) -> Headers:
    """The headers of a request that can be understood in one way only, and is not too large for us.

    Raises:
        Denied: it cannot, or is.
    """
    headers = read_headers(scope)
    names = {name for name, _ in headers}
    if not scope["path"].startswith("/"):
        raise HttpError(421, "This server answers for itself only: ask for a path.", connection="close")
    if {"content-length", "transfer-encoding"} <= names:
        raise HttpError(400, "The request says in two ways how long it is.", connection="close")
    if "content-encoding" in names and single_header(headers, "content-encoding") != "identity":
        raise HttpError(415, "Send the body as it is, not compressed.", connection="close")
    if int(single_header(headers, "content-length") or 0) > MAX_BODY_BYTES:
        raise HttpError(413, BODY_TOO_LARGE, connection="close")
    return headers


def single_header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """The value of a header that is there once."""
    found = [value for key, value in headers if key == name]
    return found[0] if len(found) == 1 else None


def is_json(content_type: str | None) -> bool:
    return (content_type or "").partition(";")[0].strip().lower() == "application/json"


async def read_body(receive: Receive) -> bytes:
    """The whole body, within bounds of size and time.

    Raises:
        Denied: it is over one of them, or its sender left.
    """
    body = bytearray()
    with anyio.move_on_after(BODY_TIMEOUT):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise HttpError(400, "The request was not finished.")
            body += message.get("body", b"")
            if len(body) > MAX_BODY_BYTES:
                raise HttpError(413, BODY_TOO_LARGE, connection="close")
            if not message.get("more_body", False):
                return bytes(body)
    raise HttpError(408, f"A request must be sent within {BODY_TIMEOUT:g} seconds.", connection="close")


async def start_response(send: Send, status: int, headers: Mapping[str, str]) -> None:
    """Begins an answer whose body follows."""
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def respond(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    """Answers a request whole."""
    await start_response(send, status, {**headers, "content-length": str(len(body))})
    await send({"type": "http.response.body", "body": body})
