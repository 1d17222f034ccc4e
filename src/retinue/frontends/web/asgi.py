"""A request in the words of ASGI: what is read of it within bounds, and how it is answered or turned away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import anyio

MAX_BODY_BYTES = 4 * 2**20
BODY_SECONDS = 30.0
"""A client has for its request."""

Scope = Mapping[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]
Headers = list[tuple[str, str]]


class Denied(Exception):  # noqa: N818 - it says what happened to the request
    """The request goes no further."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers


def headers_of(scope: Scope) -> Headers:
    """The headers of a request, their names in small letters."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]


def only(headers: Iterable[tuple[str, str]], wanted: str) -> str | None:
    """The value of a header that is there once."""
    found = [value for name, value in headers if name == wanted]
    return found[0] if len(found) == 1 else None


def is_json(content_type: str | None) -> bool:
    return (content_type or "").partition(";")[0].strip().lower() == "application/json"


async def read_body(receive: Receive) -> bytes:
    """The whole body, within bounds of size and time.

    Raises:
        Denied: it is over one of them, or its sender left.
    """
    body = bytearray()
    with anyio.move_on_after(BODY_SECONDS):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Denied(400, "The request was not finished.")
            body += message.get("body", b"")
            if len(body) > MAX_BODY_BYTES:
                raise Denied(413, f"A request may have {MAX_BODY_BYTES // 2**20} MiB.", connection="close")
            if not message.get("more_body", False):
                return bytes(body)
    raise Denied(408, f"A request must be sent within {BODY_SECONDS:g} seconds.", connection="close")


async def begin(send: Send, status: int, headers: Mapping[str, str]) -> None:
    """Begins an answer whose body follows."""
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def respond(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    """Answers a request whole."""
    await begin(send, status, {**headers, "content-length": str(len(body))})
    await send({"type": "http.response.body", "body": body})
