"""Patterns of hosts that a sandboxed run can reach: `example.org`, `*.example.org`, `localhost:8080`."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from msgspec import Struct

DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_PORT = 65535


class HostPattern(Struct, frozen=True):
    """A host, or with a leading `*.` all hosts below it, and its ports."""

    name: str
    ports: tuple[int, ...]

    def covers(self, host: str, port: int) -> bool:
        host = normalize_host(host)
        is_same = host.endswith(self.name[1:]) if self.name.startswith("*.") else host == self.name
        return is_same and port in self.ports


def parse_host_pattern(text: str) -> HostPattern | None:
    """Return the pattern in a text of a user: a host with or without a port; None if it is none.

    Without a port it is reached by http and https.
    """
    host, port = split_host(text.strip())
    if not host or "*" in host.removeprefix("*.") or any(character in host for character in "/@ \t"):
        return None
    return HostPattern(normalize_host(host), tuple(DEFAULT_PORTS.values()) if port is None else (port,))


def parse_host_patterns(texts: Iterable[str]) -> tuple[HostPattern, ...]:
    """Return the patterns of the texts that are some."""
    return tuple(pattern for text in texts if (pattern := parse_host_pattern(text)))


def host_of_url(url: str) -> str | None:
    """Return the host and port of a URL as a pattern; None if it has none."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not parts.hostname or port is None:
        return None
    return f"[{parts.hostname}]:{port}" if ":" in parts.hostname else f"{parts.hostname}:{port}"


def split_host(text: str) -> tuple[str, int | None]:
    """Return host and port of `host`, `host:port` or `[address]:port`; an empty host if it is none of them."""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if rest.startswith(":") else None
        is_valid = bool(closed) and (not rest or port is not None)
    else:
        host, colon, rest = text.partition(":")
        port, is_valid = (rest if colon else None), ":" not in rest
    if not is_valid:
        return "", None
    if port is None:
        return host, None
    is_port = port.isascii() and port.isdigit() and 0 < int(port) <= MAX_PORT
    return (host, int(port)) if is_port else ("", None)


def normalize_host(host: str) -> str:
    return host.lower().rstrip(".")


def is_allowed(host: str, port: int, patterns: Iterable[HostPattern]) -> bool:
    return any(pattern.covers(host, port) for pattern in patterns)
