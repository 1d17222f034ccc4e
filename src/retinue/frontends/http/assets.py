"""The files of the dashboard: read once, packed once, and sent only if the browser has another."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from retinue.frontends.web.asgi import Headers, only

FOLDER = Path(__file__).parent.parent / "dashboard"
INDEX, LOGIN = "index.html", "login.html"
PUBLIC = frozenset({"login.js", "login.css", "theme.js", "favicon.svg"})
"""What the page to sign in needs: it is the same everywhere and holds nothing."""
KINDS: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
    ".json": "application/json",
}
_REFUSED = re.compile(r"q=0(\.0*)?")
_PACKED = (".html", ".js", ".css", ".svg", ".json", ".webmanifest")


class Asset(Struct, frozen=True):
    """A file as it is sent."""

    kind: str
    tag: str
    body: bytes
    packed: bytes | None

    def answer(self, headers: Headers) -> tuple[int, bytes, dict[str, str]]:
        """What a request gets: the file, or that the browser has it already."""
        own = {"etag": self.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if self.tag in (only(headers, "if-none-match") or "").replace(" ", "").split(","):
            return 304, b"", own
        own["content-type"] = self.kind
        if self.packed and _takes_gzip(only(headers, "accept-encoding") or ""):
            return 200, self.packed, {**own, "content-encoding": "gzip"}
        return 200, self.body, own


class Assets:
    """The files in a folder, by their paths below it. Nothing else can be named."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._listed: frozenset[str] = frozenset()
        self._read: dict[str, tuple[int, Asset]] = {}

    def names(self) -> frozenset[str]:
        """What there is now."""
        paths = (path for path in self._folder.rglob("*") if path.suffix in KINDS and path.is_file())
        self._listed = frozenset(path.relative_to(self._folder).as_posix() for path in paths)
        return self._listed

    def find(self, name: str) -> Asset | None:
        """The file of this name as it is now; None if there is none."""
        if name not in self._listed and name not in self.names():
            return None
        path = self._folder / name
        try:
            changed = path.stat().st_mtime_ns
            if (known := self._read.get(name)) and known[0] == changed:
                return known[1]
            body = path.read_bytes()
        except OSError:
            return None  # it was there
        asset = _asset(path.suffix, body)
        self._read[name] = (changed, asset)
        return asset


def _takes_gzip(accepted: str) -> bool:
    codings = (coding.partition(";") for coding in accepted.replace(" ", "").lower().split(","))
    return any(name == "gzip" and not _REFUSED.fullmatch(weight) for name, _, weight in codings)


def _asset(suffix: str, body: bytes) -> Asset:
    packed = gzip.compress(body, 9, mtime=0) if suffix in _PACKED else body
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    return Asset(KINDS[suffix], tag, body, packed if len(packed) < len(body) else None)
