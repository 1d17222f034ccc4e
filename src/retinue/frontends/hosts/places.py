"""Where hosts keep what is the user's own, on every platform: as they themselves look for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from retinue.folders import home_folder, pi_folder

WINDOWS, MACOS = "win32", "darwin"


class Machine(Struct, frozen=True):
    """What a host looks at to find its files."""

    environ: Mapping[str, str]
    platform: str = sys.platform

    @property
    def home(self) -> Path:
        """The user's home. On Windows hosts look at no HOME, which other shells set to what only they understand."""
        profile = self.environ.get("USERPROFILE") if self.platform == WINDOWS else None
        return Path(profile) if profile else home_folder(self.environ)

    @property
    def config(self) -> Path:
        """Where programs that keep to the habits of Linux have their folders, on every platform."""
        return self.named("XDG_CONFIG_HOME") or self.home / ".config"

    @property
    def applications(self) -> Path:
        """Where programs that keep to the habits of the platform have theirs."""
        if self.platform == WINDOWS:
            return self.named("APPDATA") or self.home / "AppData" / "Roaming"
        return self.home / "Library" / "Application Support" if self.platform == MACOS else self.config

    def named(self, variable: str) -> Path | None:
        """The folder that a variable names; None if it names none."""
        value = self.environ.get(variable)
        return Path(value) if value else None


Place = Callable[[Machine], Path]


def in_home(*parts: str) -> Place:
    return lambda machine: machine.home.joinpath(*parts)


def of_pi(machine: Machine) -> Path:
    own = pi_folder(machine.environ) if machine.named("PI_CODING_AGENT_DIR") else machine.home / ".pi" / "agent"
    return own / "extensions" / "retinue.js"


def of_claude(machine: Machine) -> Path:
    return (machine.named("CLAUDE_CONFIG_DIR") or machine.home) / ".claude.json"


def of_codex(machine: Machine) -> Path:
    return (machine.named("CODEX_HOME") or machine.home / ".codex") / "config.toml"


def of_gemini(machine: Machine) -> Path:
    return (machine.named("GEMINI_CLI_HOME") or machine.home) / ".gemini" / "settings.json"


def of_opencode(machine: Machine) -> Path:
    folder = machine.config / "opencode"
    with_comments = folder / "opencode.jsonc"
    return with_comments if os.path.exists(with_comments) else folder / "opencode.json"  # noqa: PTH110 - never raises


def of_vscode(machine: Machine) -> Path:
    return (machine.named("VSCODE_APPDATA") or machine.applications) / "Code" / "User" / "mcp.json"
