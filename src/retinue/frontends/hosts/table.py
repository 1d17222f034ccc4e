"""The hosts there are: where each keeps what it starts, and in which words it wants to be told of us."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from retinue.folders import home_folder, pi_folder
from retinue.frontends.hosts.forms import Entry, Form
from retinue.frontends.hosts.json_form import JsonForm
from retinue.frontends.hosts.own_file import OwnFile
from retinue.frontends.hosts.toml_form import TomlForm

NAME = "retinue"
"""What we are called in a host's configuration."""
PATIENCE = 3600
"""Seconds a host may wait for one of our tools: agents take longer than tools usually do."""
EXTENSION = Path(__file__).parents[2] / "extension" / "pi" / "index.js"

Environ = Mapping[str, str]


class Host(Struct, frozen=True, kw_only=True):
    """A program whose model may call our tools."""

    name: str
    title: str
    form: Form
    user: Callable[[Environ], Path] | None
    """The user's own configuration; None: it has only a project's."""
    project: str
    """The configuration of a project, below its folder."""
    entry: Callable[[Sequence[str], str | None], Entry]
    """What is written, for a command that starts us and the surfaces that were asked for."""
    speaks_mcp: bool = True

    def file(self, environ: Environ, project: Path | None) -> Path:
        """The file to change: a project's, or the user's."""
        if project is not None or self.user is None:
            return (project or Path()).absolute() / self.project
        return self.user(environ)


def own_command() -> tuple[str, ...]:
    """What starts this Retinue from anywhere."""
    script = shutil.which(NAME, path=str(Path(sys.executable).parent))
    # Without -P a host's working directory would come first among the places Python imports from.
    return (script,) if script else (sys.executable, "-P", "-m", NAME)


def _home(*parts: str) -> Callable[[Environ], Path]:
    return lambda environ: home_folder(environ).joinpath(*parts)


def _pi_user(environ: Environ) -> Path:
    return pi_folder(environ) / "extensions" / "retinue.js"


def _claude_user(environ: Environ) -> Path:
    own = environ.get("CLAUDE_CONFIG_DIR")
    return (Path(own) if own else home_folder(environ)) / ".claude.json"


def _codex_user(environ: Environ) -> Path:
    own = environ.get("CODEX_HOME")
    return (Path(own) if own else home_folder(environ) / ".codex") / "config.toml"


def _opencode_user(environ: Environ) -> Path:
    base = environ.get("XDG_CONFIG_HOME")
    folder = (Path(base) if base else home_folder(environ) / ".config") / "opencode"
    with_comments = folder / "opencode.jsonc"
    return with_comments if os.path.exists(with_comments) else folder / "opencode.json"  # noqa: PTH110 - never raises


def _in_pi(command: Sequence[str], surface: str | None) -> Entry:
    return {"extension": EXTENSION.as_uri(), "command": list(command), "surface": surface or "fanout"}


def _arguments(command: Sequence[str], surface: str | None) -> list[str]:
    return [*command, "mcp", *(["--surface", surface] if surface else [])]


def _plain(command: Sequence[str], surface: str | None) -> Entry:
    program, *arguments = _arguments(command, surface)
    return {"command": program, "args": arguments}


def _stdio(command: Sequence[str], surface: str | None) -> Entry:
    return {"type": "stdio", **_plain(command, surface)}


def _claude(command: Sequence[str], surface: str | None) -> Entry:
    return {**_stdio(command, surface), "env": {}}


def _codex(command: Sequence[str], surface: str | None) -> Entry:
    return {**_plain(command, surface), "tool_timeout_sec": PATIENCE}


def _gemini(command: Sequence[str], surface: str | None) -> Entry:
    return {**_plain(command, surface), "timeout": PATIENCE * 1000}


def _opencode(command: Sequence[str], surface: str | None) -> Entry:
    return {
        "type": "local",
        "command": _arguments(command, surface),
        "enabled": True,
        "timeout": PATIENCE * 1000,
    }


HOSTS: Mapping[str, Host] = {
    host.name: host
    for host in (
        Host(
            name="pi",
            title="pi",
            form=OwnFile(),
            user=_pi_user,
            project=".pi/extensions/retinue.js",
            entry=_in_pi,
            speaks_mcp=False,
        ),
        Host(
            name="claude",
            title="Claude Code",
            form=JsonForm("mcpServers", NAME),
            user=_claude_user,
            project=".mcp.json",
            entry=_claude,
        ),
        Host(
            name="codex",
            title="Codex",
            form=TomlForm("mcp_servers", NAME),
            user=_codex_user,
            project=".codex/config.toml",
            entry=_codex,
        ),
        Host(
            name="gemini",
            title="Gemini CLI",
            form=JsonForm("mcpServers", NAME),
            user=_home(".gemini", "settings.json"),
            project=".gemini/settings.json",
            entry=_gemini,
        ),
        Host(
            name="opencode",
            title="opencode",
            form=JsonForm("mcp", NAME),
            user=_opencode_user,
            project="opencode.json",
            entry=_opencode,
        ),
        Host(
            name="cursor",
            title="Cursor",
            form=JsonForm("mcpServers", NAME),
            user=_home(".cursor", "mcp.json"),
            project=".cursor/mcp.json",
            entry=_plain,
        ),
        Host(
            name="vscode",
            title="VS Code",
            form=JsonForm("servers", NAME),
            user=None,
            project=".vscode/mcp.json",
            entry=_stdio,
        ),
    )
}
