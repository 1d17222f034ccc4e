"""The hosts there are: where each keeps what it starts, and in which words it wants to be told of us."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from retinue.frontends.hosts.forms import Entry, Form
from retinue.frontends.hosts.json_form import JsonForm
from retinue.frontends.hosts.own_file import OwnFile
from retinue.frontends.hosts.places import (
    Machine,
    Place,
    in_home,
    of_claude,
    of_codex,
    of_gemini,
    of_opencode,
    of_pi,
    of_vscode,
)
from retinue.frontends.hosts.toml_form import TomlForm

NAME = "retinue"
"""What we are called in a host's configuration."""
PATIENCE = 3600
"""Seconds a host may wait for one of our tools: agents take longer than tools usually do."""
EXTENSION = Path(__file__).parents[2] / "extension" / "pi" / "index.js"


class Host(Struct, frozen=True, kw_only=True):
    """A program whose model may call our tools."""

    name: str
    title: str
    form: Form
    user: Place
    """The user's own configuration."""
    project: str
    """The configuration of a project, below its folder."""
    entry: Callable[[Sequence[str], str | None, Sequence[str]], Entry]
    """What is written, for a command that starts us, the surfaces that were asked for and what else it is given."""
    speaks_mcp: bool = True

    def file(self, machine: Machine, project: Path | None) -> Path:
        """The file to change: a project's, or the user's."""
        return self.user(machine) if project is None else project.absolute() / self.project


def own_command(python: str = sys.executable) -> tuple[str, ...]:
    """What starts this Retinue from anywhere."""
    folder = Path(python).parent
    # On Windows scripts are beside the Python of a virtual environment, and below any other.
    script = shutil.which(NAME, path=os.pathsep.join([str(folder), str(folder / "Scripts")]))
    # Without -P a host's working directory would come first among the places Python imports from.
    return (script,) if script else (python, "-P", "-m", NAME)


def _in_pi(command: Sequence[str], surface: str | None, more: Sequence[str]) -> Entry:
    given = {"arguments": list(more)} if more else {}
    return {"extension": EXTENSION.as_uri(), "command": list(command), "surface": surface or "fanout", **given}


def _serving(command: Sequence[str], surface: str | None, more: Sequence[str]) -> list[str]:
    return [*command, "mcp", *(["--surface", surface] if surface else []), *more]


def _plain(command: Sequence[str], surface: str | None, more: Sequence[str]) -> Entry:
    program, *arguments = _serving(command, surface, more)
    return {"command": program, "args": arguments}


def _stdio(command: Sequence[str], surface: str | None, more: Sequence[str]) -> Entry:
    return {"type": "stdio", **_plain(command, surface, more)}


def _claude(command: Sequence[str], surface: str | None, more: Sequence[str]) -> Entry:
    return {**_stdio(command, surface, more), "env": {}}


def _codex(command: Sequence[str], surface: str | None, more: Sequence[str]) -> Entry:
    return {**_plain(command, surface, more), "tool_timeout_sec": PATIENCE}


def _gemini(command: Sequence[str], surface: str | None, more: Sequence[str]) -> Entry:
    return {**_plain(command, surface, more), "timeout": PATIENCE * 1000}


def _opencode(command: Sequence[str], surface: str | None, more: Sequence[str]) -> Entry:
    return {
        "type": "local",
        "command": _serving(command, surface, more),
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
            user=of_pi,
            project=".pi/extensions/retinue.js",
            entry=_in_pi,
            speaks_mcp=False,
        ),
        Host(
            name="claude",
            title="Claude Code",
            form=JsonForm("mcpServers", NAME),
            user=of_claude,
            project=".mcp.json",
            entry=_claude,
        ),
        Host(
            name="codex",
            title="Codex",
            form=TomlForm("mcp_servers", NAME),
            user=of_codex,
            project=".codex/config.toml",
            entry=_codex,
        ),
        Host(
            name="gemini",
            title="Gemini CLI",
            form=JsonForm("mcpServers", NAME),
            user=of_gemini,
            project=".gemini/settings.json",
            entry=_gemini,
        ),
        Host(
            name="opencode",
            title="opencode",
            form=JsonForm("mcp", NAME),
            user=of_opencode,
            project="opencode.json",
            entry=_opencode,
        ),
        Host(
            name="cursor",
            title="Cursor",
            form=JsonForm("mcpServers", NAME),
            user=in_home(".cursor", "mcp.json"),
            project=".cursor/mcp.json",
            entry=_plain,
        ),
        Host(
            name="vscode",
            title="VS Code",
            form=JsonForm("servers", NAME),
            user=of_vscode,
            project=".vscode/mcp.json",
            entry=_stdio,
        ),
    )
}
