"""The codes of links: whoever can read the token can make one, so no process need ask another for it."""

from __future__ import annotations

import hmac
import math
import secrets
from hashlib import sha256

from retinue.frontends.web.tokens import Token, digest

SECONDS = 600.0
"""A code is good for."""
_RANDOM_BYTES = 12
_SEAL_DIGITS = 40


def new_code(token: Token, port: int, now: float) -> str:
    """A code for the server on this port: random, the time it was made, and a seal over both."""
    plain = f"{secrets.token_hex(_RANDOM_BYTES)}.{math.floor(now * 1000):x}"
    return f"{plain}.{_seal(token, port, plain)}"


class Codes:
    """Which codes were used. It knows none that was made before itself: what was used then is forgotten."""

    def __init__(self, now: float) -> None:
        self._since = math.floor(now * 1000)
        self._used: dict[bytes, float] = {}

    def spend(self, code: str, token: Token, port: int, now: float) -> bool:
        """Whether a code is good now; from then on it is not."""
        plain, _, seal = code.rpartition(".")
        if not hmac.compare_digest(seal.encode("utf-8", "replace"), _seal(token, port, plain).encode()):
            return False
        made = int(plain.partition(".")[2], 16)
        self._used = {known: until for known, until in self._used.items() if until >= now}
        if made < self._since or not made <= now * 1000 <= made + SECONDS * 1000 or digest(code) in self._used:
            return False
        self._used[digest(code)] = made / 1000 + SECONDS
        return True


def _seal(token: Token, port: int, plain: str) -> str:
    said = f"retinue link {port} {plain}".encode("utf-8", "replace")
    return hmac.new(token.digest, said, sha256).hexdigest()[:_SEAL_DIGITS]
