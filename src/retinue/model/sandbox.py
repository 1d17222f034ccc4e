"""The sandbox of a run: what it may reach, what enforces that, and what is not enforced. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class SandboxMode(StrEnum):
    """How far the processes and tools of a run are confined, the least strict first."""

    OFF = "off"
    WORKSPACE = "workspace"
    """They read the system and the working directory, and write the working directory and temporary files."""
    STRICT = "strict"
    """Also: the network is closed except for the provider's host, and `.git` is read-only."""


SANDBOX_MODES = tuple(SandboxMode)


def strictest_mode(modes: Iterable[SandboxMode | None]) -> SandboxMode:
    """Return the strictest of the modes that are given; `off` if none is."""
    return max((mode for mode in modes if mode is not None), key=SANDBOX_MODES.index, default=SandboxMode.OFF)


PROTECTED_GIT_NAMES = frozenset({"hooks", "config", "config.worktree", "info", "commondir", "gitdir"})
"""Entries of a git folder that make git execute programs, themselves or in a folder they name: never writable."""


AGENT_CONFIGURATION = (
    ".agents", ".claude", ".codex", ".cursor", ".gemini", ".github/agents", ".mcp.json", ".opencode", ".pi",
    ".retinue", ".vscode/mcp.json", "opencode.json", "opencode.jsonc",
)  # fmt: skip
"""What agents and their programs load code from in a project: extensions, hooks, settings, MCP servers, agents."""


class SandboxMechanism(StrEnum):
    """What enforces a sandbox."""

    NONE = "none"
    IN_PROCESS = "in-process"
    """The tools run in this process, which checks each path and each address itself."""
    LANDLOCK = "landlock"
    BUBBLEWRAP = "bubblewrap"
    BUBBLEWRAP_LANDLOCK = "bubblewrap+landlock"
    SEATBELT = "seatbelt"


class SandboxReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The sandbox that a run had."""

    mode: SandboxMode = SandboxMode.OFF
    mechanism: SandboxMechanism = SandboxMechanism.NONE
    gaps: tuple[str, ...] = ()
    """What of the mode is not enforced here."""


def describe_enforcement(report: SandboxReport) -> str:
    """Return what enforces a sandbox, and what of its mode is not enforced."""
    return f"{report.mechanism}; not enforced: {'; '.join(report.gaps)}" if report.gaps else str(report.mechanism)


def describe_sandbox(report: SandboxReport) -> str:
    """Return the sandbox of a run in one line; empty without one."""
    return "" if report.mode is SandboxMode.OFF else f"{report.mode} ({describe_enforcement(report)})"


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """The sandbox of a run as it was planned: everything an engine needs to build it."""

    report: SandboxReport = SandboxReport()
    bubblewrap: str | None = None
    """The program, where it is used."""
    read: tuple[str, ...] = ()
    """Further paths that can be read: the user's `sandbox_read`."""
    write: tuple[str, ...] = ()
    """Further paths that can be changed: the user's `sandbox_write`."""
    hosts: tuple[str, ...] = ()
    """Further hosts that can be reached in `strict`: the user's `sandbox_hosts`."""
    hidden: tuple[str, ...] = ()
    """Paths without links that stay out of reach in a folder that can be read, unless they are named themselves."""
    repository_only: bool = False
    """Whether nothing of the user's but the repository can be read: for an agent that nobody accepted."""
    writes_cwd: bool = True
    folder: str = ""
    """The working directory without links when the run was planned: a link in its place is not followed later."""

    @property
    def mode(self) -> SandboxMode:
        return self.report.mode

    @property
    def is_on(self) -> bool:
        return self.report.mode is not SandboxMode.OFF

    @property
    def is_strict(self) -> bool:
        return self.report.mode is SandboxMode.STRICT


NO_SANDBOX = SandboxPolicy()


# -- hosts --------------------------------------------------------------------------------------------


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
    from urllib.parse import urlsplit

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
