"""Where hosts keep what is the user's own, on every platform: as they themselves look for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from retinue.config.directories import home_folder, pi_folder

WINDOWS, MACOS = "win32", "darwin"


class HostMachine(Struct, frozen=True):
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
        return self.env_path("XDG_CONFIG_HOME") or self.home / ".config"

    @property
    def applications(self) -> Path:
        """Where programs that keep to the habits of the platform have theirs."""
        if self.platform == WINDOWS:
            return self.env_path("APPDATA") or self.home / "AppData" / "Roaming"
        return self.home / "Library" / "Application Support" if self.platform == MACOS else self.config

    def env_path(self, variable: str) -> Path | None:
        """The folder that a variable names; None if it names none."""
        value = self.environ.get(variable)
        return Path(value) if value else None


ConfigLocation = Callable[[HostMachine], Path]


def home_path(*parts: str) -> ConfigLocation:
    return lambda machine: machine.home.joinpath(*parts)


def pi_config_path(machine: HostMachine) -> Path:
    own = pi_folder(machine.environ) if machine.env_path("PI_CODING_AGENT_DIR") else machine.home / ".pi" / "agent"
    return own / "extensions" / "retinue.js"


def claude_config_path(machine: HostMachine) -> Path:
    return (machine.env_path("CLAUDE_CONFIG_DIR") or machine.home) / ".claude.json"


def codex_config_path(machine: HostMachine) -> Path:
    return (machine.env_path("CODEX_HOME") or machine.home / ".codex") / "config.toml"


def gemini_config_path(machine: HostMachine) -> Path:
    return (machine.env_path("GEMINI_CLI_HOME") or machine.home) / ".gemini" / "settings.json"


def opencode_config_path(machine: HostMachine) -> Path:
    folder = machine.config / "opencode"
    with_comments = folder / "opencode.jsonc"
    return with_comments if os.path.exists(with_comments) else folder / "opencode.json"  # noqa: PTH110 - never raises


def vscode_config_path(machine: HostMachine) -> Path:
    return (machine.env_path("VSCODE_APPDATA") or machine.applications) / "Code" / "User" / "mcp.json"
