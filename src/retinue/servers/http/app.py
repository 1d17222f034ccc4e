"""The ASGI application: checks every request, then serves the API, the event stream or a file of the dashboard."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from inspect import isawaitable
from pathlib import Path

from msgspec import Struct
from starlette.responses import Response
from starlette.routing import Route, Router

from retinue.servers.asgi.client_process import refuse_run_process
from retinue.servers.asgi.request_checks import (
    AllowedHosts,
    AsgiApp,
    Headers,
    HttpError,
    Receive,
    Scope,
    Send,
    add_default_headers,
    is_json,
    read_body,
    read_headers,
    single_header,
    validate_headers,
)
from retinue.servers.http.auth import Authenticator
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.idempotency import IDEMPOTENCY_HEADER, parse_key
from retinue.servers.http.inputs import EmptyBody, EmptyQuery, LoginBody, parse_body, parse_query
from retinue.servers.http.installation import LoginResponse
from retinue.servers.http.openapi import build_document
from retinue.servers.http.responses import SECURITY_HEADERS, JsonResponse, make_error_response
from retinue.servers.http.routes import API_BASE, ApiRoute
from retinue.servers.http.sse import MAX_WATCHERS, EventStream, send_events

DASHBOARD_FOLDER = Path(__file__).parent / "dashboard"
INDEX_FILE, LOGIN_FILE = "index.html", "login.html"
PUBLIC_FILES = frozenset({"login.js", "login.css", "theme.js", "favicon.svg"})
"""Files the login page needs; they are the same everywhere and contain no data."""
CONTENT_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
    ".json": "application/json",
}
_ZERO_WEIGHT = re.compile(r"q=0(\.0*)?")
_COMPRESSED_SUFFIXES = (".html", ".js", ".css", ".svg", ".json", ".webmanifest")


class StaticFile(Struct, frozen=True):
    """A file and its compressed copy."""

    content_type: str
    etag: str
    body: bytes
    gzipped: bytes | None

    def respond(self, headers: Headers) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers: the file, or 304 if the browser has it."""
        own = {"etag": self.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if self.etag in (single_header(headers, "if-none-match") or "").replace(" ", "").split(","):
            return 304, b"", own
        own["content-type"] = self.content_type
        if self.gzipped and _accepts_gzip(single_header(headers, "accept-encoding") or ""):
            return 200, self.gzipped, {**own, "content-encoding": "gzip"}
        return 200, self.body, own


class AssetFolder:
    """The files below a folder. Only listed paths are served."""

    def __init__(self, folder: Path = DASHBOARD_FOLDER) -> None:
        self._folder = folder
        self._listed: frozenset[str] = frozenset()
        self._read: dict[str, tuple[int, StaticFile]] = {}

    def list_names(self) -> frozenset[str]:
        """List the files and return their paths."""
        paths = (path for path in self._folder.rglob("*") if path.suffix in CONTENT_TYPES and path.is_file())
        self._listed = frozenset(path.relative_to(self._folder).as_posix() for path in paths)
        return self._listed

    def find(self, name: str) -> StaticFile | None:
        """Return the current file at this path; None if there is none."""
        if name not in self._listed and name not in self.list_names():
            return None
        path = self._folder / name
        try:
            changed = path.stat().st_mtime_ns
            if (known := self._read.get(name)) and known[0] == changed:
                return known[1]
            body = path.read_bytes()
        except OSError:
            return None  # deleted meanwhile
        asset = _make_file(path.suffix, body)
        self._read[name] = (changed, asset)
        return asset


def _accepts_gzip(accepted: str) -> bool:
    codings = (coding.partition(";") for coding in accepted.replace(" ", "").lower().split(","))
    return any(name == "gzip" and not _ZERO_WEIGHT.fullmatch(weight) for name, _, weight in codings)


def _make_file(suffix: str, body: bytes) -> StaticFile:
    packed = gzip.compress(body, 9, mtime=0) if suffix in _COMPRESSED_SUFFIXES else body
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    return StaticFile(CONTENT_TYPES[suffix], tag, body, packed if len(packed) < len(body) else None)


READ_METHODS = frozenset({"GET", "HEAD"})
ALLOWED_FETCH_SITES = frozenset({None, "same-origin", "none"})
"""Values of Sec-Fetch-Site for requests from our own pages, or typed by hand."""
MAX_NAME_CHARS = 256
"""Of the variable part of a path."""


class HttpApp:
    """The application. It reads nothing of a request before the request has passed the checks."""

    def __init__(
        self,
        routes: Iterable[ApiRoute],
        feed: EventFeed,
        authenticator: Authenticator,
        allowed_hosts: AllowedHosts,
        assets: AssetFolder,
    ) -> None:
        self._routes = list(routes)
        self._authenticator = authenticator
        self._allowed_hosts = allowed_hosts
        self._assets = assets
        paths: dict[str, dict[str, ApiRoute]] = {}
        for route in self._routes:
            paths.setdefault(route.path, {})[route.method] = route
        self._router = Router(
            [Route(f"{API_BASE}{path}", _Endpoint(methods, feed)) for path, methods in paths.items()],
            redirect_slashes=False,
            default=_refuse_unknown_route,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # the server closes connections of any other protocol
        has_started = False

        async def track_start(message: Mapping[str, object]) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        respond = add_default_headers(track_start, SECURITY_HEADERS)
        try:
            answer = await self._check(scope, receive)
            await answer(scope, receive, respond)
        except Exception as error:
            # A response that has started can only be cut off: its reader sees that it is incomplete.
            if has_started:
                raise
            response = make_error_response(error)
            await response(scope, receive, respond)
            if response.status_code == 500:  # noqa: PLR2004 - the server logs it
                raise

    async def _check(self, scope: Scope, receive: Receive) -> AsgiApp:
        """Return the application that answers a request, once the request has passed every check.

        Raises:
            HttpError: the request has not.
        """
        headers, method, path = validate_headers(scope), scope["method"], scope["path"]
        self._allowed_hosts.check(headers)
        if not path.startswith(f"{API_BASE}/") and path != API_BASE:
            return await self._find_asset(method, path, headers)
        if (method, path) == ("POST", f"{API_BASE}/login"):
            await refuse_run_process(scope)
            _require_json(headers)
            cookie = await self._authenticator.log_in(parse_body(await read_body(receive), LoginBody))
            return JsonResponse(LoginResponse(), headers={"set-cookie": cookie})
        await self._authenticator.authenticate(headers)
        if single_header(headers, "sec-fetch-site") not in ALLOWED_FETCH_SITES:
            raise HttpError(403, "Requests from other origins are refused.")
        await refuse_run_process(scope)
        if (method, path) == ("GET", f"{API_BASE}/openapi.json"):
            return Response(self._openapi_document, media_type="application/json")
        return self._router

    @cached_property
    def _openapi_document(self) -> bytes:
        return build_document(self._routes)

    async def _find_asset(self, method: str, path: str, headers: Headers) -> Response:
        if method not in READ_METHODS:
            raise HttpError(405, "Use GET.", allow="GET, HEAD")
        name, is_login_required = path.removeprefix("/"), False
        if name == "login":
            name = LOGIN_FILE
        elif name not in PUBLIC_FILES:
            # A path without a suffix is a page of the dashboard.
            is_page = "." not in name.rpartition("/")[2]
            try:
                await self._authenticator.authenticate(headers)
            except HttpError:
                if not is_page:
                    raise
                name, is_login_required = LOGIN_FILE, True
            else:
                name = INDEX_FILE if is_page else name
        asset = self._assets.find(name)
        if asset is None:
            raise HttpError(404, "File not found.")
        status, body, own = asset.respond(headers)
        if is_login_required:  # a browser must not cache the login page under the address of another page
            status, body, own = 401, body or asset.body, {**own, "cache-control": "no-store"}
        return Response(b"" if method == "HEAD" else body, status, own)


class _Endpoint:
    """One path of the API, as an ASGI application."""

    def __init__(self, methods: Mapping[str, ApiRoute], feed: EventFeed) -> None:
        self._methods = methods
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = next(iter(scope["path_params"].values()), "")
        if len(name) > MAX_NAME_CHARS:
            await _refuse_unknown_route()
        route = self._methods.get(scope["method"])
        if route is None:
            allowed = ", ".join(sorted(self._methods))
            raise HttpError(405, f"Use {allowed}.", allow=allowed)
        arguments: list[object] = [name] if name else []
        query = parse_query(scope["query_string"], route.query)
        if route.query is not EmptyQuery:
            arguments.append(query)
        if route.body:
            _require_json(read_headers(scope))
            body = parse_body(await read_body(receive), route.body)
            arguments += [] if route.body is EmptyBody else [body]
        if route.takes_idempotency_key:
            header = IDEMPOTENCY_HEADER.lower()
            arguments.append(parse_key([value for name, value in read_headers(scope) if name == header]))
        value = route.handle(*arguments)
        value = await value if isawaitable(value) else value
        if isinstance(value, EventStream):
            await self._send_stream(value, scope, receive, send)
        else:
            response = value if isinstance(value, Response) else JsonResponse(value, route.status)
            await response(scope, receive, send)

    async def _send_stream(self, stream: EventStream, scope: Scope, receive: Receive, send: Send) -> None:
        if self._feed.watchers >= MAX_WATCHERS:
            raise HttpError(
                503, f"{MAX_WATCHERS} clients are watching, which is the limit. Try again when one has disconnected."
            )
        if last := single_header(read_headers(scope), "last-event-id"):
            stream.resume_after(last)
        await read_body(receive)
        await send_events(self._feed, stream, receive, send)


def _require_json(headers: Headers) -> None:
    # A form of another site cannot have this type.
    if not is_json(single_header(headers, "content-type")):
        raise HttpError(415, "Send application/json.")


async def _refuse_unknown_route(*_: object) -> None:
    raise HttpError(404, f"Unknown route. `GET {API_BASE}/openapi.json` lists the routes.")
