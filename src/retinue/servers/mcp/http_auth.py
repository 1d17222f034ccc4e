"""Who gets in over HTTP: Host, Origin and token are checked before anything of a request is looked at.

A plain ASGI application around one application per client. What a client may reach is decided by its token alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from retinue.servers.asgi.asgi import (
    AsgiApp,
    AsgiMessage,
    HttpError,
    Receive,
    Scope,
    Send,
    is_json,
    read_body,
    respond,
    single_header,
    validate_headers,
)
from retinue.servers.asgi.host_check import AllowedHosts, LoginThrottle
from retinue.servers.asgi.tokens import digest_token

PATH = "/mcp"
METHODS = ("POST", "GET", "DELETE")

_SECURITY_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class TokenGate:
    """Lets a request through to the application of the client whose token it carries."""

    def __init__(self, apps: Mapping[bytes, AsgiApp], port: int) -> None:
        """Takes the applications by the digests of their clients' tokens."""
        self._apps = apps
        self._allowed_hosts = AllowedHosts(port)
        self._throttle = LoginThrottle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # nothing else is spoken here; the server closes it
        try:
            app, body = await self._authorize(scope, receive)
        except HttpError as denied:
            kind = {"content-type": "text/plain; charset=utf-8"}
            await respond(
                send, denied.status, f"{denied}\n".encode(), {**kind, **_SECURITY_HEADERS, **denied.headers}
            )
            return
        await app(scope, _replay_body(body, receive), _add_headers(send))

    async def _authorize(self, scope: Scope, receive: Receive) -> tuple[AsgiApp, bytes]:
        """The application that may answer, and the request's body.

        Raises:
            Denied: none may.
        """
        headers = validate_headers(scope)
        self._allowed_hosts.check(headers)
        app = await self._find_app(single_header(headers, "authorization"))
        if scope["path"] != PATH:
            raise HttpError(404, f"There is nothing here but {PATH}.")
        if scope["method"] not in METHODS:
            raise HttpError(405, f"Use {', '.join(METHODS)}.", allow=", ".join(METHODS))
        if scope["method"] == "POST" and not is_json(single_header(headers, "content-type")):
            raise HttpError(415, "Send application/json.")
        return app, await read_body(receive)

    async def _find_app(self, authorization: str | None) -> AsgiApp:
        kind, _, token = (authorization or "").partition(" ")
        received, found = digest_token(token), None
        for known, app in self._apps.items():  # all of them: how long it takes tells nothing
            if hmac.compare_digest(received, known):
                found = app
        if found and kind.lower() == "bearer":
            return found
        if authorization is not None:
            await self._throttle.count_failure()
        raise HttpError(
            401,
            "Send the token: `Authorization: Bearer …`. The server said at its start in which file it is.",
            **{"www-authenticate": "Bearer"},
        )


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Gives an application the body once more, and then whatever comes: that the client left."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return waiting.pop() if waiting else await receive()

    return replay


def _add_headers(send: Send) -> Send:
    async def send_with_headers(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message.get("headers", ())}
            more = [
                (name.encode(), value.encode())
                for name, value in _SECURITY_HEADERS.items()
                if name.encode() not in own
            ]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return send_with_headers
