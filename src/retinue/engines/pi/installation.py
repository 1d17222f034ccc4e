"""The installed pi: capabilities, path, version and configured providers, all read without starting it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from retinue.config.directories import pi_folder
from retinue.engines.base import EngineCapabilities, engine_error
from retinue.engines.pi.providers import PROVIDERS, PiConfiguration
from retinue.model.errors import ErrorCode
from retinue.support.processes import find_program
from retinue.support.safe_files import FileTooLargeError, read_regular_file

PI_VARIABLE = "RETINUE_PI"
"""Path of the executable, if it is not the `pi` on PATH."""

Version = tuple[int, ...]

RPC_SINCE: Version = (0, 87)
"""Older versions are started once per run: their `--mode rpc` cannot change prompt and tools."""
NODE_SINCE: Version = (22, 19, 0)
"""Every version of pi since 0.87 needs this Node."""
SETTLES_SINCE: Version = (0, 80, 4)
"""Older versions have no `agent_settled` event."""

API_KEY_VARIABLES = tuple(
    sorted({name for each in PROVIDERS.values() for names in each.sufficient for name in names})
)
"""Variables that make one of pi's providers usable."""

ENVIRONMENT = frozenset({
    "NODE_COMPILE_CACHE", "NODE_OPTIONS", "PI_CACHE_RETENTION", "PI_CODING_AGENT_DIR", "PI_OFFLINE", "PI_PACKAGE_DIR",
    "PI_SKIP_VERSION_CHECK", "PI_TELEMETRY", PI_VARIABLE,
})  # fmt: skip
"""Variables that a pi process needs, whichever its provider."""

CAPABILITIES = EngineCapabilities(
    tools=frozenset({"read", "write", "edit", "bash", "grep", "find", "ls"}),
    default_tools=("read", "bash", "edit", "write"),
    allows_other_tools=True,
    enforces=frozenset({"tools", "readonly", "no_tools", "no_extensions", "no_skills", "no_context_files", "gate"}),
    preferences=frozenset({"provider", "model", "thinking", "extensions", "extra_args"}),
    resumes=True,
    resumes_natively=True,
    finalizes=True,
    delegates=True,
    calls_servers=True,
    delegates_by_socket=True,
    steers=True,
    reports_cost=True,
    confines=True,
    runs_program=True,
    environment=ENVIRONMENT,
)

MAX_MANIFEST_BYTES = 1 << 20
MAX_NODE_HEADER_BYTES = 64 * 1024
MAX_PARENT_FOLDERS = 6
"""Folders searched upwards from the program for the package it belongs to."""


class PiInstallation(Struct, frozen=True):
    program: str
    """The path it is started by."""
    version: Version | None
    """None if unknown, as for a single binary; treated as a recent version."""
    stamp: tuple[int, int]
    """Size and modification time: after an update, processes of the old program are not reused."""
    needed_node: Version | None = None
    """The oldest Node it runs on, as its package states; None if unknown."""

    @property
    def supports_rpc(self) -> bool:
        """Return whether one process can serve several runs."""
        return self.version is None or self.version >= RPC_SINCE

    @property
    def settles(self) -> bool:
        """Return whether pi reports when its agent is done (`agent_settled`)."""
        return self.version is None or self.version >= SETTLES_SINCE


def find_pi(environ: Mapping[str, str]) -> PiInstallation | None:
    program = environ.get(PI_VARIABLE) or find_program("pi", environ.get("PATH"))
    if not program:
        return None
    try:
        real = Path(program).resolve(strict=True)
        found = real.stat()
    except (OSError, RuntimeError):
        return None
    manifest = _find_manifest(real)
    return PiInstallation(
        program, _parse_version(manifest.version), (found.st_size, found.st_mtime_ns), manifest.needed_node
    )


def require_pi(environ: Mapping[str, str]) -> PiInstallation:
    """Return the installed pi.

    Raises:
        EngineError: pi is not installed, or its Node is too old.
    """
    installation = find_pi(environ)
    if installation and not (outdated := _describe_outdated_node(installation, environ)):
        return installation
    reason = outdated if installation else _describe_missing(environ)
    raise engine_error(f"The pi engine cannot be used: {reason}", code=ErrorCode.SPAWN_FAILED)


def not_installed_reason(environ: Mapping[str, str]) -> str | None:
    """Return why pi cannot be used and what to do, or None if it can."""
    installation = find_pi(environ)
    return _describe_outdated_node(installation, environ) if installation else _describe_missing(environ)


def not_configured_reason(environ: Mapping[str, str]) -> str | None:
    """Return why `auto` does not choose pi: no provider is configured, though an extension may add one."""
    if _has_provider(environ):
        return None
    return (
        "pi has no provider: no key in the environment, and no auth.json or models.json in "
        f"{pi_folder(environ)}. Start `pi` and use /login, or set a key such as ANTHROPIC_API_KEY."
    )


def _describe_missing(environ: Mapping[str, str]) -> str:
    if named := environ.get(PI_VARIABLE):
        return f"program {named} not found ({PI_VARIABLE}). Set it to an existing program, or unset {PI_VARIABLE}."
    return (
        "no `pi` on the PATH. Install it with `npm install -g @earendil-works/pi-coding-agent`, "
        f"or set {PI_VARIABLE} to its path."
    )


def _describe_outdated_node(installation: PiInstallation, environ: Mapping[str, str]) -> str | None:
    """Return that the Node on the PATH is too old for this pi; None if it is not, or if its version is unknown.

    The version is read from the headers beside the program, because starting it takes as long as a warm run. A Node
    without headers reports its version when pi fails on it: `explain_node_error`.
    """
    node = find_program("node", environ.get("PATH")) if installation.needed_node else None
    version = _read_node_version(node) if node else None
    if version and installation.needed_node and version < installation.needed_node:
        return _outdated_node(f"{node} is version {_join(version)}", installation.needed_node)
    return None


def explain_node_error(output: str) -> str | None:
    """Return that Node is too old if the output is the stack trace of such a Node, which ends with its version."""
    found = _NODE_TRACE_END.search(output)
    if found and (version := _parse_version(found[1])) and version < NODE_SINCE:
        return _outdated_node(f"the one that runs it is version {found[1]}", NODE_SINCE)
    return None


_NODE_TRACE_END = re.compile(r"^Node\.js v(\d{1,4}\.\d{1,4}\.\d{1,4})\s*\Z", re.MULTILINE)


def _outdated_node(found: str, needed: Version) -> str:
    return (
        f"pi needs Node {_join(needed)} or later, but {found}. Install a newer Node, for example with "
        "`npm install -g node@22`, or put it first on the PATH."
    )


def _read_node_version(node: str) -> Version | None:
    header = Path(node).resolve().parents[1] / "include" / "node" / "node_version.h"
    try:
        text = read_regular_file(header, MAX_NODE_HEADER_BYTES).decode(errors="replace")
    except (OSError, FileTooLargeError, IndexError):
        return None
    numbers = dict(_NODE_VERSION_LINE.findall(text))
    return tuple(int(numbers[name]) for name in ("MAJOR", "MINOR", "PATCH")) if len(numbers) == 3 else None  # noqa: PLR2004


_NODE_VERSION_LINE = re.compile(r"^#define NODE_(MAJOR|MINOR|PATCH)_VERSION (\d{1,4})$", re.MULTILINE)


def _join(version: Version) -> str:
    return ".".join(map(str, version))


def _has_provider(environ: Mapping[str, str]) -> bool:
    if any(map(PiConfiguration(environ).is_configured, PROVIDERS)):
        return True
    folder = pi_folder(environ)
    return any(_has_content(folder / name) for name in CONFIG_FILES)


CONFIG_FILES = ("auth.json", "models.json")
EMPTY_JSON_BYTES = 4
"""Size of a JSON file without content, such as `{}`."""


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > EMPTY_JSON_BYTES
    except OSError:
        return False


class _PackageManifest(Struct):
    name: str = ""
    version: str = ""
    engines: dict[str, str] = {}

    @property
    def needed_node(self) -> Version | None:
        needed = self.engines.get("node", "")
        return _parse_version(needed.removeprefix(">=")) if needed.startswith(">=") else None


def _find_manifest(program: Path) -> _PackageManifest:
    """Return the manifest of the package that the program belongs to; an empty one if there is none."""
    for folder in list(program.parents)[:MAX_PARENT_FOLDERS]:
        manifest = _read_manifest(folder / "package.json")
        if manifest and manifest.name.endswith("pi-coding-agent"):
            return manifest
    return _PackageManifest()


def _read_manifest(path: Path) -> _PackageManifest | None:
    try:
        return msgspec.json.decode(read_regular_file(path, MAX_MANIFEST_BYTES), type=_PackageManifest)
    except (OSError, FileTooLargeError, msgspec.MsgspecError, ValueError):
        return None


def _parse_version(version: str) -> Version | None:
    parts = version.split("-", maxsplit=1)[0].strip().split(".")
    return tuple(map(int, parts)) if all(part.isascii() and part.isdigit() for part in parts) else None
