"""Who gets in over HTTP: Host, Origin and token are checked before anything of a request is looked at.

A plain ASGI application around one application per client. What a client may reach is decided by its token alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import anyio

from retinue.frontends.mcp.tokens import digest

PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The names a client may call this server by."""
METHODS = ("POST", "GET", "DELETE")
MAX_BODY_BYTES = 4 * 2**20
BODY_SECONDS = 30.0
"""A client has for its request."""
GUESSES = 20
"""Wrong tokens answered at once; further ones have to wait."""
PENALTY = 1.0

Scope = Mapping[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Denied(Exception):  # noqa: N818 - it says what happened to the request
    """The request goes no further."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers


class Gate:
    """Lets a request through to the application of the client whose token it carries."""

    def __init__(self, apps: Mapping[bytes, App], port: int) -> None:
        """Takes the applications by the digests of their clients' tokens."""
        self._apps = apps
        self._hosts = {f"{name}:{port}" for name in LOOPBACK}
        self._origins = {f"http://{host}" for host in self._hosts}
        self._wrong = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # nothing else is spoken here; the server closes it
        try:
            app, body = await self._admitted(scope, receive)
        except Denied as denied:
            await _refuse(send, denied)
            return
        await app(scope, _replaying(body, receive), _with_headers(send))

    async def _admitted(self, scope: Scope, receive: Receive) -> tuple[App, bytes]:
        """The application that may answer, and the request's body.

        Raises:
            Denied: none may.
        """
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        if _only(headers, "host") not in self._hosts:
            raise Denied(421, "This server answers on loopback under its own name only.")
        if any(name == "origin" and value not in self._origins for name, value in headers):
            raise Denied(403, "Requests from web pages are not answered.")
        app = await self._app_of(_only(headers, "authorization"))
        if scope["path"] != PATH:
            raise Denied(404, f"There is nothing here but {PATH}.")
        if scope["method"] not in METHODS:
            raise Denied(405, f"Use {', '.join(METHODS)}.", allow=", ".join(METHODS))
        if scope["method"] == "POST" and not _is_json(_only(headers, "content-type")):
            raise Denied(415, "Send application/json.")
        return app, await _body(receive)

    async def _app_of(self, authorization: str | None) -> App:
        kind, _, token = (authorization or "").partition(" ")
        given, found = digest(token), None
        for known, app in self._apps.items():  # all of them: how long it takes tells nothing
            if hmac.compare_digest(given, known):
                found = app
        if found and kind.lower() == "bearer":
            return found
        if authorization is not None:
            self._wrong += 1
            if self._wrong > GUESSES:
                await anyio.sleep(PENALTY)
        raise Denied(
            401,
            "Send the token: `Authorization: Bearer …`. The server said at its start in which file it is.",
            **{"www-authenticate": "Bearer"},
        )


def _only(headers: Iterable[tuple[str, str]], wanted: str) -> str | None:
    """The value of a header that is there once."""
    found = [value for name, value in headers if name == wanted]
    return found[0] if len(found) == 1 else None


def _is_json(content_type: str | None) -> bool:
    return (content_type or "").partition(";")[0].strip().lower() == "application/json"


async def _body(receive: Receive) -> bytes:
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


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Gives an application the body once more, and then whatever comes: that the client left."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return waiting.pop() if waiting else await receive()

    return replay


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message.get("headers", ())}
            more = [header for header in _ALWAYS if header[0] not in own]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sending


async def _refuse(send: Send, denied: Denied) -> None:
    text = f"{denied}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
        *_ALWAYS,
        *((name.encode(), value.encode()) for name, value in denied.headers.items()),
    ]
    await send({"type": "http.response.start", "status": denied.status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
