"""The server as an ASGI application: who gets in, then the API, the stream, or a file of the dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct

from retinue.frontends.http import answers
from retinue.frontends.http.access import Access
from retinue.frontends.http.answers import ALWAYS, Download
from retinue.frontends.http.assets import INDEX, LOGIN, PUBLIC, Assets
from retinue.frontends.http.hub import Hub
from retinue.frontends.http.inputs import Login, body_of, query_of
from retinue.frontends.http.installation import LoggedIn
from retinue.frontends.http.openapi import document
from retinue.frontends.http.outcomes import Fault, Refusal
from retinue.frontends.http.routes import BASE, Given, Route, find, methods
from retinue.frontends.http.stream import MOST_WATCHERS, Feed, stream
from retinue.frontends.web.asgi import (
    Denied,
    Headers,
    Receive,
    Scope,
    Send,
    checked_headers,
    headers_of,
    is_json,
    only,
    read_body,
    respond,
)
from retinue.frontends.web.names import Names
from retinue.types import Refused

WRITING = frozenset({"POST", "DELETE"})
READING = frozenset({"GET", "HEAD"})
OWN_SITES = frozenset({None, "same-origin", "none"})
"""What a browser says of requests from our own pages, or typed by hand."""
BROKEN = "Something is wrong with the server itself; the runs go on. What it says on its own screen tells more."


class App:
    """Answers requests. Nothing of one is looked at before it is known to be meant for us."""

    def __init__(self, routes: Iterable[Route], hub: Hub, access: Access, names: Names, assets: Assets) -> None:
        self._routes: dict[str, list[Route]] = {}
        for route in routes:
            self._routes.setdefault(route.method, []).append(route)
        self._hub = hub
        self._access = access
        self._names = names
        self._assets = assets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # nothing else is spoken here; the server closes it
        sent = _Sent(send)
        try:
            await self._answer(scope, receive, sent)
        except Exception as error:
            # What has been begun can only be cut off: its reader sees that it is not whole.
            if sent.has_begun or not await _explained(sent, error):
                raise

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, method, path = checked_headers(scope), scope["method"], scope["path"]
        self._names.check(headers)
        if method in WRITING and not is_json(only(headers, "content-type")):
            raise Denied(415, "Send application/json.")
        if not path.startswith(f"{BASE}/") and path != BASE:
            await self._file(method, path, headers, send)
        elif (method, path) == ("POST", f"{BASE}/login"):
            cookie = await self._access.log_in(body_of(await read_body(receive), Login))
            await answers.answer(send, LoggedIn(), headers={"set-cookie": cookie})
        else:
            await self._access.check(headers)
            if only(headers, "sec-fetch-site") not in OWN_SITES:
                raise Denied(403, "Requests from other web pages are not answered.")
            await self._called(method, path[len(BASE) :], scope, receive, send)

    @cached_property
    def _document(self) -> bytes:
        return document([route for table in self._routes.values() for route in table])

    # -- the API -----------------------------------------------------------------------------------

    async def _called(self, method: str, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        if (method, path) == ("GET", "/openapi.json"):
            await respond(send, 200, self._document, {**ALWAYS, "content-type": "application/json"})
            return
        found = find(self._routes, method, path)
        if found is None:
            if known := methods(self._routes, path):
                raise Denied(405, f"Use {', '.join(known)}.", allow=", ".join(known))
            raise Denied(404, f"There is no such route. `GET {BASE}/openapi.json` tells which there are.")
        route, name = found
        query = query_of(scope["query_string"], route.query)
        body = body_of(await read_body(receive), route.body) if route.body else None
        value = await route.handle(Given(name, query, body))
        match value:
            case Feed():
                await self._stream(value, scope, receive, send)
            case Download():
                await answers.download(send, value)
            case Struct():
                await answers.answer(send, value, route.status)

    async def _stream(self, feed: Feed, scope: Scope, receive: Receive, send: Send) -> None:
        if self._hub.watchers >= MOST_WATCHERS:
            raise Denied(503, f"{MOST_WATCHERS} others are watching already. Try again when one of them has left.")
        if last := only(headers_of(scope), "last-event-id"):
            feed.go_on(last)
        await read_body(receive)
        await stream(self._hub, feed, receive, send, ALWAYS)

    # -- the dashboard -----------------------------------------------------------------------------

    async def _file(self, method: str, path: str, headers: Headers, send: Send) -> None:
        if method not in READING:
            raise Denied(405, "Use GET.", allow="GET, HEAD")
        name, status = path.removeprefix("/"), 200
        if name == "login":
            name = LOGIN
        elif name not in PUBLIC:
            try:
                await self._access.check(headers)
            except Denied:
                if "." in name.rpartition("/")[2]:
                    raise
                name, status = LOGIN, 401
            else:
                # What has no ending is a place within the dashboard.
                name = name if "." in name.rpartition("/")[2] else INDEX
        asset = self._assets.find(name)
        if asset is None:
            raise Denied(404, "There is no such file.")
        found, body, own = asset.answer(headers)
        if status != 200:  # noqa: PLR2004 - a page to sign in on is never the answer that a browser keeps
            found, own = status, {**own, "cache-control": "no-store"}
            body = body or asset.body
        await respond(send, found, b"" if method == "HEAD" else body, {**ALWAYS, **own})


class _Sent:
    """Sends, and knows whether it has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def __call__(self, message: dict[str, object]) -> None:
        self.has_begun = True
        await self._send(message)


async def _explained(send: Send, error: Exception) -> bool:
    """Answers that a request was not carried out, and why; whether that is all there is to it."""
    match error:
        case Denied():
            await answers.deny(send, error)
        case Refused():
            await answers.refuse(send, error.failure)
        case _:
            await answers.answer(send, Refusal(error=Fault(code="internal", message=BROKEN)), 500)
            return False
    return True
