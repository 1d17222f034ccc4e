"""Authentication of MCP clients over HTTP: host, origin and token are checked before a request is read.

An ASGI application around one application per client. The token alone decides which application a client reaches.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from retinue.servers.asgi.request_checks import (
    AllowedHosts,
    AsgiApp,
    HttpError,
    LoginThrottle,
    Receive,
    Scope,
    Send,
    add_default_headers,
    is_json,
    read_body,
    single_header,
    validate_headers,
)
from retinue.servers.asgi.tokens import digest_token

PATH = "/mcp"
METHODS = ("POST", "GET", "DELETE")

_SECURITY_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class TokenGate:
    """The application that passes a request on to the application of the client whose token it carries."""

    def __init__(self, apps: Mapping[bytes, AsgiApp], port: int) -> None:
        """Take the applications by the digests of their clients' tokens."""
        self._apps = apps
        self._allowed_hosts = AllowedHosts(port)
        self._throttle = LoginThrottle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            return  # the server closes connections of any other protocol
        send = add_default_headers(send, _SECURITY_HEADERS)
        try:
            app, body = await self._authorize(scope, receive)
        except HttpError as error:
            await PlainTextResponse(f"{error}\n", error.status, error.headers)(scope, receive, send)
        else:
            await app(scope, _replay_body(body, receive), send)

    async def _authorize(self, scope: Scope, receive: Receive) -> tuple[AsgiApp, bytes]:
        """Return the application of the client and the body of its request.

        Raises:
            HttpError: the request is not acceptable, or its token belongs to no client.
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
        for known, app in self._apps.items():  # all of them: the time taken must not depend on the token
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
    """Return a `receive` that delivers the body again, then the messages that follow it."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return messages.pop() if messages else await receive()

    return replay
