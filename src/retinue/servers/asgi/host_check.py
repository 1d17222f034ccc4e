"""Under which names a server answers, and from which pages: no other site reaches it through a browser."""

from __future__ import annotations

from collections.abc import Collection

import anyio

from retinue.servers.asgi.asgi import Headers, HttpError, single_header

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The names a client may call a server on loopback by."""
HTTP_PORT = 80
FREE_ATTEMPTS = 20
"""Wrong tokens answered at once; further ones have to wait."""
WRONG_TOKEN_DELAY = 1.0


class AllowedHosts:
    """The names of one server."""

    def __init__(self, port: int, names: Collection[str] = LOOPBACK) -> None:
        self._hosts = {f"{name}:{port}".lower() for name in names}
        if port == HTTP_PORT:  # browsers leave it out
            self._hosts |= {name.lower() for name in names}
        self._origins = {f"http://{host}" for host in self._hosts}

    def check(self, headers: Headers) -> None:
        """Lets a request pass that was meant for this server and comes from no page but its own.

        Raises:
            Denied: it is none.
        """
        if (single_header(headers, "host") or "").lower() not in self._hosts:
            raise HttpError(421, "This server answers under its own name only.")
        if any(name == "origin" and value not in self._origins for name, value in headers):
            raise HttpError(403, "Requests from other web pages are not answered.")


class LoginThrottle:
    """Makes whoever tries one token after the other wait."""

    def __init__(self) -> None:
        self._wrong = 0

    async def count_failure(self) -> None:
        """Counts a wrong one; returns late when there have been many."""
        self._wrong += 1
        if self._wrong > FREE_ATTEMPTS:
            await anyio.sleep(WRONG_TOKEN_DELAY)
