"""Under which names a server answers, and from which pages: no other site reaches it through a browser."""

from __future__ import annotations

from collections.abc import Collection

import anyio

from retinue.frontends.web.asgi import Denied, Headers, only

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The names a client may call a server on loopback by."""
HTTP = 80
GUESSES = 20
"""Wrong tokens answered at once; further ones have to wait."""
PENALTY = 1.0


class Names:
    """The names of one server."""

    def __init__(self, port: int, names: Collection[str] = LOOPBACK) -> None:
        self._hosts = {f"{name}:{port}".lower() for name in names}
        if port == HTTP:  # browsers leave it out
            self._hosts |= {name.lower() for name in names}
        self._origins = {f"http://{host}" for host in self._hosts}

    def check(self, headers: Headers) -> None:
        """Lets a request pass that was meant for this server and comes from no page but its own.

        Raises:
            Denied: it is none.
        """
        if (only(headers, "host") or "").lower() not in self._hosts:
            raise Denied(421, "This server answers under its own name only.")
        if any(name == "origin" and value not in self._origins for name, value in headers):
            raise Denied(403, "Requests from other web pages are not answered.")


class Guesses:
    """Makes whoever tries one token after the other wait."""

    def __init__(self) -> None:
        self._wrong = 0

    async def count(self) -> None:
        """Counts a wrong one; returns late when there have been many."""
        self._wrong += 1
        if self._wrong > GUESSES:
            await anyio.sleep(PENALTY)
