"""Who gets in over HTTP: Host, Origin and token are checked before anything of a request is looked at.

A plain ASGI application around one application per client. What a client may reach is decided by its token alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from retinue.frontends.web.asgi import (
    App,
    Denied,
    Message,
    Receive,
    Scope,
    Send,
    checked_headers,
    is_json,
    only,
    read_body,
    respond,
)
from retinue.frontends.web.names import Guesses, Names
from retinue.frontends.web.tokens import digest

PATH = "/mcp"
METHODS = ("POST", "GET", "DELETE")

_ALWAYS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Gate:
    """Lets a request through to the application of the client whose token it carries."""

    def __init__(self, apps: Mapping[bytes, App], port: int) -> None:
        """Takes the applications by the digests of their clients' tokens."""
        self._apps = apps
        self._names = Names(port)
        self._guesses = Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # nothing else is spoken here; the server closes it
        try:
            app, body = await self._admitted(scope, receive)
        except Denied as denied:
            kind = {"content-type": "text/plain; charset=utf-8"}
            await respond(send, denied.status, f"{denied}\n".encode(), {**kind, **_ALWAYS, **denied.headers})
            return
        await app(scope, _replaying(body, receive), _with_headers(send))

    async def _admitted(self, scope: Scope, receive: Receive) -> tuple[App, bytes]:
        """The application that may answer, and the request's body.

        Raises:
            Denied: none may.
        """
        headers = checked_headers(scope)
        self._names.check(headers)
        app = await self._app_of(only(headers, "authorization"))
        if scope["path"] != PATH:
            raise Denied(404, f"There is nothing here but {PATH}.")
        if scope["method"] not in METHODS:
            raise Denied(405, f"Use {', '.join(METHODS)}.", allow=", ".join(METHODS))
        if scope["method"] == "POST" and not is_json(only(headers, "content-type")):
            raise Denied(415, "Send application/json.")
        return app, await read_body(receive)

    async def _app_of(self, authorization: str | None) -> App:
        kind, _, token = (authorization or "").partition(" ")
        given, found = digest(token), None
        for known, app in self._apps.items():  # all of them: how long it takes tells nothing
            if hmac.compare_digest(given, known):
                found = app
        if found and kind.lower() == "bearer":
            return found
        if authorization is not None:
            await self._guesses.count()
        raise Denied(
            401,
            "Send the token: `Authorization: Bearer …`. The server said at its start in which file it is.",
            **{"www-authenticate": "Bearer"},
        )


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
            more = [(name.encode(), value.encode()) for name, value in _ALWAYS.items() if name.encode() not in own]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sending
