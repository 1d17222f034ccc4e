"""The pi of this machine: what it can do, where it is, which version, whether it has a provider.

Known without starting it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from retinue.engines.base import Capabilities, engine_error
from retinue.engines.pi.providers import PROVIDERS, PiConfiguration
from retinue.folders import pi_folder
from retinue.regular_files import TooLarge, read_regular
from retinue.types import Code

VARIABLE = "RETINUE_PI"
"""Names the executable, where it is not the `pi` on the path."""

Version = tuple[int, ...]

CONVERSES_SINCE: Version = (0, 87)
"""Older ones are started once per run: their `--mode rpc` cannot be given another prompt and other tools."""
SETTLES_SINCE: Version = (0, 80, 4)
"""Older ones have no `agent_settled`."""

KEYS = tuple(sorted({name for each in PROVIDERS.values() for names in each.sufficient for name in names}))
"""Variables with which a provider of pi's can be used."""

ENVIRONMENT = frozenset(
    {
        "NODE_COMPILE_CACHE",
        "NODE_OPTIONS",
        "PI_CACHE_RETENTION",
        "PI_CODING_AGENT_DIR",
        "PI_OFFLINE",
        "PI_PACKAGE_DIR",
        "PI_SKIP_VERSION_CHECK",
        "PI_TELEMETRY",
        VARIABLE,
    }
)
"""What a pi process needs of our environment, whichever its provider."""

CAPABILITIES = Capabilities(
    tools=frozenset({"read", "write", "edit", "bash", "grep", "find", "ls"}),
    usual_tools=("read", "bash", "edit", "write"),
    more_tools=True,
    enforces=frozenset({"tools", "readonly", "no_tools", "no_extensions", "no_skills", "no_context_files"}),
    knows=frozenset({"provider", "model", "thinking", "extensions", "extra_args"}),
    resumes=True,
    resumes_natively=True,
    finalizes=True,
    nests=True,
    steers=True,
    states_cost=True,
    environment=ENVIRONMENT,
)

MANIFEST_BYTES = 1 << 20
LEVELS = 6
"""Between the program and the package it belongs to."""


class Installation(Struct, frozen=True):
    program: str
    """As it is started."""
    version: Version | None
    """None: not known, as of a single binary; taken for a recent one."""
    stamp: tuple[int, int]
    """Size and time of change: after an update no process of before is used again."""

    @property
    def converses(self) -> bool:
        """Whether one process can serve several runs."""
        return self.version is None or self.version >= CONVERSES_SINCE

    @property
    def settles(self) -> bool:
        """Whether it reports when its agent is done (`agent_settled`)."""
        return self.version is None or self.version >= SETTLES_SINCE


def find(environ: Mapping[str, str]) -> Installation | None:
    import shutil

    program = environ.get(VARIABLE) or shutil.which("pi", path=environ.get("PATH"))
    if not program:
        return None
    try:
        real = Path(program).resolve(strict=True)
        found = real.stat()
    except (OSError, RuntimeError):
        return None
    return Installation(program, _version(real), (found.st_size, found.st_mtime_ns))


def found(environ: Mapping[str, str]) -> Installation:
    """The same.

    Raises:
        EngineError: there is none.
    """
    installation = find(environ)
    if installation is None:
        raise engine_error(f"The pi engine cannot be used: {_absent(environ)}", code=Code.SPAWN_FAILED)
    return installation


def missing(environ: Mapping[str, str]) -> str | None:
    """Why pi cannot be used here, and what to do; None if it can."""
    return _absent(environ) if find(environ) is None else None


def unready(environ: Mapping[str, str]) -> str | None:
    """Why pi is not chosen by itself: no provider is to be seen, though an extension of it may bring one."""
    if _has_provider(environ):
        return None
    return (
        "pi has no provider: no key in the environment, and no auth.json or models.json in "
        f"{pi_folder(environ)}. Start `pi` and use /login, or set a key such as ANTHROPIC_API_KEY."
    )


def _absent(environ: Mapping[str, str]) -> str:
    if named := environ.get(VARIABLE):
        return f"there is no program {named} ({VARIABLE}). Name one that is there, or unset {VARIABLE}."
    return (
        "no `pi` on the PATH. Install it with `npm install -g @earendil-works/pi-coding-agent`, "
        f"or name it in {VARIABLE}."
    )


def _has_provider(environ: Mapping[str, str]) -> bool:
    if any(map(PiConfiguration(environ).is_configured, PROVIDERS)):
        return True
    folder = pi_folder(environ)
    return any(_says_something(folder / name) for name in CONFIGURED)


CONFIGURED = ("auth.json", "models.json")
EMPTY = 4
"""Bytes of a file in which nothing can be said, such as `{}`."""


def _says_something(path: Path) -> bool:
    try:
        return path.stat().st_size > EMPTY
    except OSError:
        return False


def _version(program: Path) -> Version | None:
    for folder in list(program.parents)[:LEVELS]:
        manifest = _manifest(folder / "package.json")
        if manifest and manifest.name.endswith("pi-coding-agent"):
            return _numbers(manifest.version)
    return None


class _Manifest(Struct):
    name: str = ""
    version: str = ""


def _manifest(path: Path) -> _Manifest | None:
    try:
        return msgspec.json.decode(read_regular(path, MANIFEST_BYTES), type=_Manifest)
    except (OSError, TooLarge, msgspec.MsgspecError, ValueError):
        return None


def _numbers(version: str) -> Version | None:
    parts = version.split("-", maxsplit=1)[0].split(".")
    return tuple(map(int, parts)) if all(part.isascii() and part.isdigit() for part in parts) else None
