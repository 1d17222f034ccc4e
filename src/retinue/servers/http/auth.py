"""Authentication: programs send the token, browsers a cookie they get for a one-time link or the token."""

from __future__ import annotations

import hmac
import math
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from retinue.servers.asgi.request_checks import Headers, HttpError, LoginThrottle, single_header
from retinue.servers.asgi.tokens import ClientToken, digest_token, load_user_token
from retinue.servers.http.inputs import LoginBody
from retinue.servers.lifecycle import ServerStartError

CODE_LIFETIME = 600.0
"""Seconds a code is valid."""
_RANDOM_BYTES = 12
_SIGNATURE_DIGITS = 40


def create_code(token: ClientToken, port: int, now: float) -> str:
    """Return a login code for the server on this port: random, a timestamp, and a signature of both."""
    plain = f"{secrets.token_hex(_RANDOM_BYTES)}.{math.floor(now * 1000):x}"
    return f"{plain}.{_sign(token, port, plain)}"


class LoginLinks:
    """The codes that were used. Codes older than this object are invalid, as their use is not known."""

    def __init__(self, now: float) -> None:
        self._since = math.floor(now * 1000)
        self._used: dict[bytes, float] = {}

    def redeem(self, code: str, token: ClientToken, port: int, now: float) -> bool:
        """Return whether a code is valid, and mark it as used."""
        plain, _, signature = code.rpartition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), _sign(token, port, plain).encode()):
            return False
        made = int(plain.partition(".")[2], 16)
        self._used = {known: until for known, until in self._used.items() if until >= now}
        if (
            made < self._since
            or not made <= now * 1000 <= made + CODE_LIFETIME * 1000
            or digest_token(code) in self._used
        ):
            return False
        self._used[digest_token(code)] = made / 1000 + CODE_LIFETIME
        return True


def _sign(token: ClientToken, port: int, plain: str) -> str:
    message = f"retinue link {port} {plain}".encode("utf-8", "replace")
    return hmac.new(token.digest, message, sha256).hexdigest()[:_SIGNATURE_DIGITS]


MAX_COOKIES = 8
"""Cookies of one name that are checked."""
COOKIE_MAX_AGE = 365 * 86400

LOGIN_REQUIRED = (
    "Not signed in. Run `retinue serve` again and open the printed link, or send the header `Authorization: Bearer "
    "TOKEN`."
)
INVALID_CODE = "This link was already used, or is older than 10 minutes. Run `retinue serve` again for a new link."
INVALID_TOKEN = "The token does not belong to this server."  # noqa: S105 - a sentence about one


class Authenticator:
    """The check of the user's token or cookie. Deleting the token file locks everyone out."""

    def __init__(self, state: Path, port: int, clock: Callable[[], float] = time.time) -> None:
        """Load the token of the state folder, or create it.

        Raises:
            ServerStartError: the token file cannot be trusted, read or created.
        """
        self._state = state
        self._port = port
        self._clock = clock
        self._token = load_user_token(state)
        self._stamp = _file_stamp(self._token.file)
        self._login_links = LoginLinks(clock())
        self._throttle = LoginThrottle()

    @property
    def cookie_name(self) -> str:
        """Return the name of the cookie, which has the port in it: browsers send a cookie to every port of a host."""
        return f"retinue_{self._port}"

    @property
    def token_file(self) -> Path:
        return self._token.file

    def create_code(self) -> str:
        """Return a code for a login link, valid once and for ten minutes."""
        return create_code(self._token, self._port, self._clock())

    async def authenticate(self, headers: Headers) -> None:
        """Accept a request with the token or the cookie.

        Raises:
            HttpError: the request has neither, or a wrong one.
        """
        token = self._load_token()
        kind, _, given = (single_header(headers, "authorization") or "").partition(" ")
        if given and kind.lower() == "bearer" and _digests_match(digest_token(given), token):
            return
        cookies = _read_cookies(headers, self.cookie_name)
        if any(
            _digests_match(cookie.encode("latin-1", "replace"), self._cookie_value(token).encode())
            for cookie in cookies
        ):
            return
        if given or cookies:
            await self._throttle.count_failure()
        raise HttpError(401, LOGIN_REQUIRED, **{"www-authenticate": "Bearer"})

    async def log_in(self, proof: LoginBody) -> str:
        """Return the header that sets the cookie, in exchange for a code or the token.

        Raises:
            HttpError: the code or the token is wrong, or the code was used already.
        """
        token = self._load_token()
        if proof.code and token:
            if self._login_links.redeem(proof.code, token, self._port, self._clock()):
                return self._cookie_header(token)
        elif proof.token and _digests_match(digest_token(proof.token.strip()), token):
            return self._cookie_header(token)
        await self._throttle.count_failure()
        raise HttpError(401, INVALID_CODE if proof.code else INVALID_TOKEN)

    def _load_token(self) -> ClientToken | None:
        """Return the current token; None if its file is gone or cannot be trusted."""
        stamp = _file_stamp(self._token.file)
        if stamp == self._stamp:
            return self._token
        if stamp is None:
            return None
        try:
            self._token, self._stamp = load_user_token(self._state), stamp
        except ServerStartError:
            return None
        return self._token

    def _cookie_value(self, token: ClientToken | None) -> str:
        # Derived from the token: a login survives a restart and ends with the token.
        key = token.digest if token else secrets.token_bytes()
        return hmac.new(key, f"retinue cookie {self._port}".encode(), sha256).hexdigest()

    def _cookie_header(self, token: ClientToken | None) -> str:
        if token is None:
            raise HttpError(401, LOGIN_REQUIRED)
        value = f"{self.cookie_name}={self._cookie_value(token)}"
        return f"{value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={COOKIE_MAX_AGE}"


def _digests_match(received: bytes, expected: ClientToken | bytes | None) -> bool:
    known = expected.digest if isinstance(expected, ClientToken) else expected
    return known is not None and hmac.compare_digest(received, known)


def _read_cookies(headers: Headers, name: str) -> list[str]:
    """Return the values of a cookie: other servers of this host can set cookies of its name, or malformed ones."""
    pairs = (pair.partition("=") for pair in (single_header(headers, "cookie") or "").split(";"))
    return [value.strip() for own, _, value in pairs if own.strip() == name][:MAX_COOKIES]


def _file_stamp(file: Path) -> tuple[int, ...] | None:
    try:
        status = file.stat(follow_symlinks=False)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode, status.st_uid
