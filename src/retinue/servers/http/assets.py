"""The files of the dashboard: read and compressed once, and sent only if the browser has another version.

Not starlette's StaticFiles, which has no compressed copies and no ETag by content.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from retinue.servers.asgi.request_checks import Headers, single_header

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
