"""The server as an ASGI application: who gets in, then the API, the stream, or a file of the dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct

from retinue.model.errors import RefusedError
from retinue.servers.asgi.asgi import (
    Headers,
    HttpError,
    Receive,
    Scope,
    Send,
    is_json,
    read_body,
    read_headers,
    respond,
    single_header,
    validate_headers,
)
from retinue.servers.asgi.host_check import AllowedHosts
from retinue.servers.http import responses as answers
from retinue.servers.http.assets import INDEX_FILE, LOGIN_FILE, PUBLIC_FILES, AssetFolder
from retinue.servers.http.auth import Authenticator
from retinue.servers.http.details import ErrorDetail, ErrorResponse
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.inputs import LoginBody, parse_body, parse_query
from retinue.servers.http.installation import LoginResponse
from retinue.servers.http.openapi import build_document
from retinue.servers.http.responses import SECURITY_HEADERS, FileDownload
from retinue.servers.http.routes import API_BASE, ApiRequest, ApiRoute, find_route, list_methods
from retinue.servers.http.sse import MAX_WATCHERS, EventStream, send_events

WRITE_METHODS = frozenset({"POST", "DELETE"})
READ_METHODS = frozenset({"GET", "HEAD"})
ALLOWED_FETCH_SITES = frozenset({None, "same-origin", "none"})
"""What a browser says of requests from our own pages, or typed by hand."""
INTERNAL_ERROR_MESSAGE = (
    "Something is wrong with the server itself; the runs go on. What it says on its own screen tells more."
)


class HttpApp:
    """Answers requests. Nothing of one is looked at before it is known to be meant for us."""

    def __init__(
        self,
        routes: Iterable[ApiRoute],
        feed: EventFeed,
        authenticator: Authenticator,
        allowed_hosts: AllowedHosts,
        assets: AssetFolder,
    ) -> None:
        self._routes: dict[str, list[ApiRoute]] = {}
        for route in routes:
            self._routes.setdefault(route.method, []).append(route)
        self._feed = feed
        self._authenticator = authenticator
        self._allowed_hosts = allowed_hosts
        self._assets = assets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # nothing else is spoken here; the server closes it
        sent = _TrackedSend(send)
        try:
            await self._handle(scope, receive, sent)
        except Exception as error:
            # What has been begun can only be cut off: its reader sees that it is not whole.
            if sent.has_started or not await _send_error(sent, error):
                raise

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, method, path = validate_headers(scope), scope["method"], scope["path"]
        self._allowed_hosts.check(headers)
        if method in WRITE_METHODS and not is_json(single_header(headers, "content-type")):
            raise HttpError(415, "Send application/json.")
        if not path.startswith(f"{API_BASE}/") and path != API_BASE:
            await self._send_asset(method, path, headers, send)
        elif (method, path) == ("POST", f"{API_BASE}/login"):
            cookie = await self._authenticator.log_in(parse_body(await read_body(receive), LoginBody))
            await answers.send_value(send, LoginResponse(), headers={"set-cookie": cookie})
        else:
            await self._authenticator.authenticate(headers)
            if single_header(headers, "sec-fetch-site") not in ALLOWED_FETCH_SITES:
                raise HttpError(403, "Requests from other web pages are not answered.")
            await self._call_route(method, path[len(API_BASE) :], scope, receive, send)

    @cached_property
    def _openapi_document(self) -> bytes:
        return build_document([route for table in self._routes.values() for route in table])

    # -- the API -----------------------------------------------------------------------------------

    async def _call_route(self, method: str, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        if (method, path) == ("GET", "/openapi.json"):
            await respond(send, 200, self._openapi_document, {**SECURITY_HEADERS, "content-type": "application/json"})
            return
        found = find_route(self._routes, method, path)
        if found is None:
            if known := list_methods(self._routes, path):
                raise HttpError(405, f"Use {', '.join(known)}.", allow=", ".join(known))
            raise HttpError(404, f"There is no such route. `GET {API_BASE}/openapi.json` tells which there are.")
        route, name = found
        query = parse_query(scope["query_string"], route.query)
        body = parse_body(await read_body(receive), route.body) if route.body else None
        value = await route.handle(ApiRequest(name, query, body))
        match value:
            case EventStream():
                await self._send_stream(value, scope, receive, send)
            case FileDownload():
                await answers.send_file(send, value)
            case Struct():
                await answers.send_value(send, value, route.status)

    async def _send_stream(self, stream: EventStream, scope: Scope, receive: Receive, send: Send) -> None:
        if self._feed.watchers >= MAX_WATCHERS:
            raise HttpError(503, f"{MAX_WATCHERS} others are watching already. Try again when one of them has left.")
        if last := single_header(read_headers(scope), "last-event-id"):
            stream.resume_after(last)
        await read_body(receive)
        await send_events(self._feed, stream, receive, send, SECURITY_HEADERS)

    # -- the dashboard -----------------------------------------------------------------------------

    async def _send_asset(self, method: str, path: str, headers: Headers, send: Send) -> None:
        if method not in READ_METHODS:
            raise HttpError(405, "Use GET.", allow="GET, HEAD")
        name, status = path.removeprefix("/"), 200
        if name == "login":
            name = LOGIN_FILE
        elif name not in PUBLIC_FILES:
            try:
                await self._authenticator.authenticate(headers)
            except HttpError:
                if "." in name.rpartition("/")[2]:
                    raise
                name, status = LOGIN_FILE, 401
            else:
                # What has no ending is a place within the dashboard.
                name = name if "." in name.rpartition("/")[2] else INDEX_FILE
        asset = self._assets.find(name)
        if asset is None:
            raise HttpError(404, "There is no such file.")
        found, body, own = asset.respond(headers)
        if status != 200:  # noqa: PLR2004 - a page to sign in on is never the answer that a browser keeps
            found, own = status, {**own, "cache-control": "no-store"}
            body = body or asset.body
        await respond(send, found, b"" if method == "HEAD" else body, {**SECURITY_HEADERS, **own})


class _TrackedSend:
    """Sends, and knows whether it has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started = False

    async def __call__(self, message: dict[str, object]) -> None:
        self.has_started = True
        await self._send(message)


async def _send_error(send: Send, error: Exception) -> bool:
    """Answers that a request was not carried out, and why; whether that is all there is to it."""
    match error:
        case HttpError():
            await answers.send_http_error(send, error)
        case RefusedError():
            await answers.send_failure(send, error.failure)
        case _:
            await answers.send_value(
                send, ErrorResponse(error=ErrorDetail(code="internal", message=INTERNAL_ERROR_MESSAGE)), 500
            )
            return False
    return True
