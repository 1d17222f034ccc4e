"""HTTP clients that follow the proxies and certificates in the environment of a run, with shared connections."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from retinue.engines.base import EngineError, engine_error
from retinue.model.errors import ErrorCode

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT = 15.0
READ_TIMEOUT = 300.0
"""Seconds without a byte after which a stream counts as lost; thinking models are silent for minutes."""
MAX_CONNECTIONS = 1000
MAX_IDLE_CONNECTIONS = 64
CA_FILE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables of a file with certificates, the first that is set wins."""
CA_FOLDER_VARIABLE = "SSL_CERT_DIR"


class ConnectionRoute(Struct, frozen=True):
    """How an address is reached. Addresses with equal routes share a client."""

    uses_tls: bool
    proxy_variable: str | None = None
    """The variable of the proxy, for messages: its value may have a password."""
    proxy: str | None = None
    ca_variable: str | None = None
    ca_file: str | None = None
    ca_folder: str | None = None


def find_route(url: str, environ: Mapping[str, str]) -> ConnectionRoute:
    """Return the route to a URL by the variables that curl and Python programs use."""
    parts = urlsplit(url)
    variable = _find_proxy_variable(parts, environ)
    proxy = environ[variable] if variable else None
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    if parts.scheme != "https" and not (proxy or "").startswith("https:"):
        return ConnectionRoute(uses_tls=False, proxy_variable=variable, proxy=proxy)
    ca_file = next((name for name in CA_FILE_VARIABLES if environ.get(name)), None)
    ca_folder = CA_FOLDER_VARIABLE if environ.get(CA_FOLDER_VARIABLE) else None
    return ConnectionRoute(
        uses_tls=True,
        proxy_variable=variable,
        proxy=proxy,
        ca_variable=ca_file or ca_folder,
        ca_file=environ[ca_file] if ca_file else None,
        ca_folder=environ[ca_folder] if ca_folder else None,
    )


def _find_proxy_variable(url: SplitResult, environ: Mapping[str, str]) -> str | None:
    """Return the variable of the proxy for a URL; None if its host is reached directly."""
    names = (f"{url.scheme}_proxy", "all_proxy")
    variable = next((each for name in names for each in (name, name.upper()) if environ.get(each)), None)
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    entries = (entry.strip().casefold() for entry in excluded.split(","))
    return None if variable and any(_matches(url, entry) for entry in entries if entry) else variable


def _matches(url: SplitResult, entry: str) -> bool:
    """Return whether an entry of `NO_PROXY` names the host: `*`, a host with or without port, a domain, a network."""
    host = (url.hostname or "").casefold()
    if entry == "*" or entry in {host, f"{host}:{url.port}", f"[{host}]"}:
        return True
    if host.endswith(f".{entry.removeprefix('*').removeprefix('.')}"):
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:  # the host or the entry is a name
        return False


class HttpClients:
    """The HTTP clients of an engine, one for each route, made on first use."""

    def __init__(self) -> None:
        self._clients: dict[ConnectionRoute, httpx2.AsyncClient] = {}

    def get_client(self, url: str, environ: Mapping[str, str]) -> httpx2.AsyncClient:
        """Return the client for a URL.

        Raises:
            EngineError: the proxy or the certificates in the environment cannot be used.
        """
        route = find_route(url, environ)
        if route not in self._clients:
            self._clients[route] = _make_client(route)
        return self._clients[route]

    async def aclose(self) -> None:
        while self._clients:
            _, client = self._clients.popitem()
            await client.aclose()


def _make_client(route: ConnectionRoute) -> httpx2.AsyncClient:
    import httpx2

    try:
        return httpx2.AsyncClient(
            verify=_make_tls_context(route),
            proxy=route.proxy,
            # The environment is that of the run, not of this process.
            trust_env=False,
            timeout=httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
            limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_IDLE_CONNECTIONS),
        )
    except (ValueError, httpx2.InvalidURL, ImportError) as error:
        reason = "SOCKS needs `pip install 'httpx2[socks]'`" if isinstance(error, ImportError) else "expected a URL"
        raise _unusable(f"The proxy in {route.proxy_variable} cannot be used: {reason}.") from error


def _make_tls_context(route: ConnectionRoute) -> ssl.SSLContext:
    import httpx2

    if not route.uses_tls:
        # Without certificates: nothing is verified by it, and loading them takes longer than a request.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not route.ca_variable:
        return httpx2.create_ssl_context(trust_env=False)
    try:
        return ssl.create_default_context(cafile=route.ca_file, capath=route.ca_folder)
    except OSError as error:  # no such file, or no certificates in it
        path = route.ca_file or route.ca_folder
        message = f"The certificates in {route.ca_variable}={path!r} cannot be loaded: {error.strerror or error}."
        raise _unusable(message) from error


def _unusable(message: str) -> EngineError:
    return engine_error(message, code=ErrorCode.SPAWN_FAILED, reason="connection_settings")
