"""Who gets in: programs by the token, browsers by a cookie that a one-time link, or the token, buys."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from retinue.frontends.http.codes import Codes, new_code
from retinue.frontends.http.inputs import Login
from retinue.frontends.server import Unservable
from retinue.frontends.web.asgi import Denied, Headers, only
from retinue.frontends.web.names import Guesses
from retinue.frontends.web.tokens import Token, digest, users_token

MOST_COOKIES = 8
"""Of one name that are looked at."""
YEAR = 365 * 86400

KNOCK = "Sign in first: run `retinue serve` again and open the link it prints, or send the token as a Bearer."
WRONG_CODE = "This link was used already, or is older than 10 minutes. Run `retinue serve` again for another."
WRONG_TOKEN = "This is not the token of this server."  # noqa: S105 - a sentence about one


class Access:
    """The one user of a server. Deleting the token's file shuts everybody out."""

    def __init__(self, state: Path, port: int, clock: Callable[[], float] = time.time) -> None:
        """Takes the token of the state folder, made if there is none.

        Raises:
            Unservable: its file cannot be trusted, read or made.
        """
        self._state = state
        self._port = port
        self._clock = clock
        self._token = users_token(state)
        self._stamp = _stamp(self._token.file)
        self._codes = Codes(clock())
        self._guesses = Guesses()

    @property
    def cookie_name(self) -> str:
        """Of this port alone: browsers send a cookie to every port of a host."""
        return f"retinue_{self._port}"

    @property
    def token_file(self) -> Path:
        return self._token.file

    def new_code(self) -> str:
        """A code for a link: it works once, for ten minutes."""
        return new_code(self._token, self._port, self._clock())

    async def check(self, headers: Headers) -> None:
        """Lets a request pass that carries the token or the cookie.

        Raises:
            Denied: it carries neither, or a wrong one.
        """
        token = self._current()
        kind, _, given = (only(headers, "authorization") or "").partition(" ")
        if given and kind.lower() == "bearer" and _same(digest(given), token):
            return
        cookies = _cookies(headers, self.cookie_name)
        if any(_same(cookie.encode("latin-1", "replace"), self._cookie(token).encode()) for cookie in cookies):
            return
        if given or cookies:
            await self._guesses.count()
        raise Denied(401, KNOCK, **{"www-authenticate": "Bearer"})

    async def log_in(self, proof: Login) -> str:
        """The header that sets the cookie, for whoever has a code or the token.

        Raises:
            Denied: it is none, or used already.
        """
        token = self._current()
        if proof.code and token:
            if self._codes.spend(proof.code, token, self._port, self._clock()):
                return self._set_cookie(token)
        elif proof.token and _same(digest(proof.token.strip()), token):
            return self._set_cookie(token)
        await self._guesses.count()
        raise Denied(401, WRONG_CODE if proof.code else WRONG_TOKEN)

    def _current(self) -> Token | None:
        """The token as its file says now; None if that is gone or not to be trusted."""
        stamp = _stamp(self._token.file)
        if stamp == self._stamp:
            return self._token
        if stamp is None:
            return None
        try:
            self._token, self._stamp = users_token(self._state), stamp
        except Unservable:
            return None
        return self._token

    def _cookie(self, token: Token | None) -> str:
        # Made from the token: a restart keeps the sign-in, another token ends it.
        key = token.digest if token else secrets.token_bytes()
        return hmac.new(key, f"retinue cookie {self._port}".encode(), sha256).hexdigest()

    def _set_cookie(self, token: Token | None) -> str:
        if token is None:
            raise Denied(401, KNOCK)
        value = f"{self.cookie_name}={self._cookie(token)}"
        return f"{value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={YEAR}"


def _same(given: bytes, wanted: Token | bytes | None) -> bool:
    known = wanted.digest if isinstance(wanted, Token) else wanted
    return known is not None and hmac.compare_digest(given, known)


def _cookies(headers: Headers, name: str) -> list[str]:
    """What a cookie is said to be. Other servers of this host can set one of its name, too, or odd ones beside it."""
    pairs = (pair.partition("=") for pair in (only(headers, "cookie") or "").split(";"))
    return [value.strip() for own, _, value in pairs if own.strip() == name][:MOST_COOKIES]


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        status = file.stat(follow_symlinks=False)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode, status.st_uid
