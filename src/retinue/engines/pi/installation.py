"""The installed pi: capabilities, path, version and configured providers, all read without starting it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from retinue.config.directories import pi_folder
from retinue.engines.base import EngineCapabilities, engine_error
from retinue.engines.pi.providers import PROVIDERS, PiConfiguration
from retinue.model.errors import ErrorCode
from retinue.support.programs import find_program
from retinue.support.safe_files import FileTooLargeError, read_regular_file

PI_VARIABLE = "RETINUE_PI"
"""Path of the executable, if it is not the `pi` on PATH."""

Version = tuple[int, ...]

RPC_SINCE: Version = (0, 87)
"""Older versions are started once per run: their `--mode rpc` cannot change prompt and tools."""
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
    enforces=frozenset({"tools", "readonly", "no_tools", "no_extensions", "no_skills", "no_context_files"}),
    preferences=frozenset({"provider", "model", "thinking", "extensions", "extra_args"}),
    resumes=True,
    resumes_natively=True,
    finalizes=True,
    delegates=True,
    delegates_by_socket=True,
    steers=True,
    reports_cost=True,
    confines=True,
    runs_program=True,
    environment=ENVIRONMENT,
)

MAX_MANIFEST_BYTES = 1 << 20
MAX_PARENT_FOLDERS = 6
"""Folders searched upwards from the program for the package it belongs to."""


class PiInstallation(Struct, frozen=True):
    program: str
    """The path it is started by."""
    version: Version | None
    """None if unknown, as for a single binary; treated as a recent version."""
    stamp: tuple[int, int]
    """Size and modification time: after an update, processes of the old program are not reused."""

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
    return PiInstallation(program, _read_version(real), (found.st_size, found.st_mtime_ns))


def require_pi(environ: Mapping[str, str]) -> PiInstallation:
    """Return the installed pi.

    Raises:
        EngineError: pi is not installed.
    """
    installation = find_pi(environ)
    if installation is None:
        raise engine_error(f"The pi engine cannot be used: {_describe_missing(environ)}", code=ErrorCode.SPAWN_FAILED)
    return installation


def not_installed_reason(environ: Mapping[str, str]) -> str | None:
    """Return why pi cannot be used and what to do, or None if it can."""
    return _describe_missing(environ) if find_pi(environ) is None else None


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


def _read_version(program: Path) -> Version | None:
    for folder in list(program.parents)[:MAX_PARENT_FOLDERS]:
        manifest = _read_manifest(folder / "package.json")
        if manifest and manifest.name.endswith("pi-coding-agent"):
            return _parse_version(manifest.version)
    return None


class _PackageManifest(Struct):
    name: str = ""
    version: str = ""


def _read_manifest(path: Path) -> _PackageManifest | None:
    try:
        return msgspec.json.decode(read_regular_file(path, MAX_MANIFEST_BYTES), type=_PackageManifest)
    except (OSError, FileTooLargeError, msgspec.MsgspecError, ValueError):
        return None


def _parse_version(version: str) -> Version | None:
    parts = version.split("-", maxsplit=1)[0].split(".")
    return tuple(map(int, parts)) if all(part.isascii() and part.isdigit() for part in parts) else None
