"""Paths of the user's configuration files of hosts on every platform, found as the hosts themselves find them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from retinue.config.directories import home_folder, pi_folder

WINDOWS, MACOS = "win32", "darwin"


class HostMachine(Struct, frozen=True):
    """The environment and platform that decide where a host keeps its files."""

    environ: Mapping[str, str]
    platform: str = sys.platform

    @property
    def home(self) -> Path:
        """The user's home. Windows hosts ignore HOME, which other shells set to paths only they understand."""
        profile = self.environ.get("USERPROFILE") if self.platform == WINDOWS else None
        return Path(profile) if profile else home_folder(self.environ)

    @property
    def config(self) -> Path:
        """The parent of the configuration folders of programs that follow XDG on every platform."""
        return self.env_path("XDG_CONFIG_HOME") or self.home / ".config"

    @property
    def applications(self) -> Path:
        """The parent of the configuration folders of programs that follow the conventions of the platform."""
        if self.platform == WINDOWS:
            return self.env_path("APPDATA") or self.home / "AppData" / "Roaming"
        return self.home / "Library" / "Application Support" if self.platform == MACOS else self.config

    def env_path(self, variable: str) -> Path | None:
        """Return the folder a variable is set to; None if it is not set."""
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
