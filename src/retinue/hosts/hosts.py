"""The supported hosts: the path and form of the configuration file of each, and of our entry in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from retinue.config.directories import home_folder, pi_folder
from retinue.hosts.config_editors import ConfigEditor, ConfigEntry, JsonEditor, TomlEditor, WholeFileEditor
from retinue.hosts.environments import EnvironmentRules, PassesAll, PassesInnocuous, PassesNamed

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


SERVER_NAME = "retinue"
"""Name of our entry in the configuration of a host."""
TOOL_TIMEOUT = 3600
"""Seconds a host may wait for one of our tools: agents take longer than tools usually do."""
EXTENSION_PATH = Path(__file__).parents[1] / "extension" / "pi" / "index.js"


class Host(Struct, frozen=True, kw_only=True):
    """A program whose model may call our tools."""

    name: str
    title: str
    editor: ConfigEditor
    user_path: ConfigLocation
    """The user's own configuration."""
    project_path: str
    """The configuration of a project, below its folder."""
    make_entry: Callable[[Sequence[str], str | None, Sequence[str]], ConfigEntry]
    """Makes the entry from the command that starts Retinue, the toolsets and further arguments."""
    environment: EnvironmentRules = PassesAll()
    """How it makes the environment of a server it starts."""
    speaks_mcp: bool = True

    def config_path(self, machine: HostMachine, project: Path | None) -> Path:
        """Return the configuration file of a project, or of the user."""
        return self.user_path(machine) if project is None else project.absolute() / self.project_path


def _pi_entry(command: Sequence[str], toolset: str | None, more: Sequence[str]) -> ConfigEntry:
    given = {"arguments": list(more)} if more else {}
    return {"extension": EXTENSION_PATH.as_uri(), "command": list(command), "surface": toolset or "fanout", **given}


def _mcp_command(command: Sequence[str], toolset: str | None, more: Sequence[str]) -> list[str]:
    return [*command, "mcp", *(["--toolset", toolset] if toolset else []), *more]


def _plain_entry(command: Sequence[str], toolset: str | None, more: Sequence[str]) -> ConfigEntry:
    program, *arguments = _mcp_command(command, toolset, more)
    return {"command": program, "args": arguments}


def _stdio_entry(command: Sequence[str], toolset: str | None, more: Sequence[str]) -> ConfigEntry:
    return {"type": "stdio", **_plain_entry(command, toolset, more)}


def _claude_entry(command: Sequence[str], toolset: str | None, more: Sequence[str]) -> ConfigEntry:
    return {**_stdio_entry(command, toolset, more), "env": {}}


def _codex_entry(command: Sequence[str], toolset: str | None, more: Sequence[str]) -> ConfigEntry:
    return {**_plain_entry(command, toolset, more), "tool_timeout_sec": TOOL_TIMEOUT}


def _gemini_entry(command: Sequence[str], toolset: str | None, more: Sequence[str]) -> ConfigEntry:
    return {**_plain_entry(command, toolset, more), "timeout": TOOL_TIMEOUT * 1000}


def _opencode_entry(command: Sequence[str], toolset: str | None, more: Sequence[str]) -> ConfigEntry:
    return {
        "type": "local",
        "command": _mcp_command(command, toolset, more),
        "enabled": True,
        "timeout": TOOL_TIMEOUT * 1000,
    }


HOSTS: Mapping[str, Host] = {
    host.name: host
    for host in (
        Host(
            name="pi",
            title="pi",
            editor=WholeFileEditor(),
            user_path=pi_config_path,
            project_path=".pi/extensions/retinue.js",
            make_entry=_pi_entry,
            speaks_mcp=False,
        ),
        Host(
            name="claude",
            title="Claude Code",
            editor=JsonEditor("mcpServers", SERVER_NAME),
            user_path=claude_config_path,
            project_path=".mcp.json",
            make_entry=_claude_entry,
        ),
        Host(
            name="codex",
            title="Codex",
            editor=TomlEditor("mcp_servers", SERVER_NAME),
            user_path=codex_config_path,
            project_path=".codex/config.toml",
            make_entry=_codex_entry,
            environment=PassesNamed(),
        ),
        Host(
            name="gemini",
            title="Gemini CLI",
            editor=JsonEditor("mcpServers", SERVER_NAME),
            user_path=gemini_config_path,
            project_path=".gemini/settings.json",
            make_entry=_gemini_entry,
            environment=PassesInnocuous(),
        ),
        Host(
            name="opencode",
            title="opencode",
            editor=JsonEditor("mcp", SERVER_NAME),
            user_path=opencode_config_path,
            project_path="opencode.json",
            make_entry=_opencode_entry,
            environment=PassesAll("environment"),
        ),
        Host(
            name="cursor",
            title="Cursor",
            editor=JsonEditor("mcpServers", SERVER_NAME),
            user_path=home_path(".cursor", "mcp.json"),
            project_path=".cursor/mcp.json",
            make_entry=_plain_entry,
        ),
        Host(
            name="vscode",
            title="VS Code",
            editor=JsonEditor("servers", SERVER_NAME),
            user_path=vscode_config_path,
            project_path=".vscode/mcp.json",
            make_entry=_stdio_entry,
        ),
    )
}
