"""Find the agents of Claude Code's plugins: those that are installed, enabled and meant for a directory.

`plugins/installed_plugins.json` in Claude Code's folder names the folder of each plugin. One that is installed for
the user is used if the user's own settings enable it; one that is installed for a project is used there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from retinue.agents.agent import Diagnostic
from retinue.agents.parse import AgentFileError, read_bytes
from retinue.support.safe_files import resolve_path

INSTALLED_VERSION = 2
MANIFEST = Path(".claude-plugin", "plugin.json")
MAX_MANIFEST_BYTES = 2**20
MAX_PLUGINS = 1000
MAX_NAMED_FILES = 1000
"""Files and folders of agents that one manifest names."""
_PROJECT_SETTINGS = (".claude/settings.json", ".claude/settings.local.json")

_Parsed = TypeVar("_Parsed")


class PluginAgents(Struct, frozen=True):
    """A folder or a file with agents of a plugin, or why its agents cannot be used."""

    plugin: str
    root: Path
    """The folder of the plugin; nothing outside belongs to it."""
    path: Path
    problem: Diagnostic | None = None


class _Installation(Struct, frozen=True, rename="camel"):
    install_path: str
    project_path: str = ""
    """The project it was installed for; empty for all of them."""


class _InstalledPlugins(Struct, frozen=True):
    version: int
    plugins: dict[str, list[_Installation]] = field(default_factory=dict)


class _ClaudeSettings(Struct, frozen=True, rename="camel"):
    enabled_plugins: dict[str, Any] = field(default_factory=dict)


class _Manifest(Struct, frozen=True):
    name: str = ""
    agents: str | list[str] | None = None


class PluginFinder:
    """The plugins of one user; each file is read again only after it changed."""

    def __init__(self, claude_folder: Path) -> None:
        self._user_settings = claude_folder / "settings.json"
        self._installed = claude_folder / "plugins" / "installed_plugins.json"
        self._parsed: dict[Path, tuple[tuple[int, ...], object]] = {}

    def list_agents(self, levels: Sequence[Path]) -> list[PluginAgents]:
        """Return the folders and files with agents for a directory, given the levels of its project."""
        try:
            installed = self._read(self._installed, _InstalledPlugins)
            if installed is None:
                return []
            if installed.version != INSTALLED_VERSION:
                raise _file_error(self._installed, f"has version {installed.version}, which is not supported")
            user = self._read(self._user_settings, _ClaudeSettings) or _ClaudeSettings()
        except AgentFileError as error:
            file = error.file or self._installed
            reason = f"{error.reason}; no agents of Claude Code's plugins are used"
            return [PluginAgents("", file, file, Diagnostic(str(file), reason))]
        found: list[PluginAgents] = []
        for identity, installations in [*installed.plugins.items()][:MAX_PLUGINS]:
            if installation := self._choose_installation(identity, installations, levels, user):
                found += self._list_plugin(identity, Path(installation.install_path))
        return found

    def _choose_installation(
        self, identity: str, installations: Sequence[_Installation], levels: Sequence[Path], user: _ClaudeSettings
    ) -> _Installation | None:
        """Return the installation that is enabled here; a project enables only what was installed for it."""
        of_project = [
            each
            for each in installations
            if each.project_path and Path(os.path.realpath(each.project_path)) in levels
        ]
        for installation in of_project:
            if self._is_enabled_in_project(identity, Path(installation.project_path), user):
                return installation
        is_enabled = user.enabled_plugins.get(identity) is True
        return next((each for each in installations if is_enabled and not each.project_path), None)

    def _is_enabled_in_project(self, identity: str, project: Path, user: _ClaudeSettings) -> bool:
        is_enabled = user.enabled_plugins.get(identity)
        for name in _PROJECT_SETTINGS:
            try:
                settings = self._read(project / name, _ClaudeSettings)
            except AgentFileError:
                continue  # Claude Code ignores broken settings, too
            is_enabled = settings.enabled_plugins.get(identity, is_enabled) if settings else is_enabled
        return is_enabled is True

    def _list_plugin(self, identity: str, installed: Path) -> Iterator[PluginAgents]:
        plugin = identity.rpartition("@")[0] or identity
        try:
            root = _resolve_root(installed)
            manifest = self._read(root / MANIFEST, _Manifest, within=root) or _Manifest()
            plugin = manifest.name or plugin
            if manifest.agents is None:
                yield PluginAgents(plugin, root, root / "agents")
                return
            names = [manifest.agents] if isinstance(manifest.agents, str) else manifest.agents
            for name in names[:MAX_NAMED_FILES]:
                yield PluginAgents(plugin, root, _resolve_named(root, name))
        except AgentFileError as error:
            file = error.file or installed
            reason = f"{error.reason}; agents of the plugin {identity} are left out"
            yield PluginAgents(plugin, installed, file, Diagnostic(str(file), reason))

    def _read(self, path: Path, kind: type[_Parsed], *, within: Path | None = None) -> _Parsed | None:
        """Return the parsed file; None if there is none.

        Raises:
            AgentFileError: it cannot be read, or has another form.
        """
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise _file_error(path, f"cannot be read ({getattr(error, 'strerror', error)})") from error
        # Claude Code replaces these files, so that a change has another inode.
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        cached = self._parsed.get(path)
        if cached and cached[0] == stamp and isinstance(cached[1], kind):
            return cached[1]
        try:
            parsed = msgspec.json.decode(read_bytes(path, within=within, limit=MAX_MANIFEST_BYTES), type=kind)
        except AgentFileError as error:
            raise _file_error(path, error.reason) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _file_error(path, f"is not what Claude Code writes ({error})") from error
        self._parsed[path] = (stamp, parsed)
        return parsed


def _resolve_root(installed: Path) -> Path:
    if not installed.is_absolute() or not os.path.isdir(installed):  # noqa: PTH112 - Path.is_dir raises for odd names
        raise _file_error(installed, "is not a folder, although Claude Code's plugins are listed with it")
    return resolve_path(installed)


def _resolve_named(root: Path, name: str) -> Path:
    """Return a file or folder that a manifest names.

    Raises:
        AgentFileError: it is outside of the plugin.
    """
    path = Path(os.path.normpath(root / name))
    try:
        is_inside = path.is_relative_to(root) and resolve_path(path).is_relative_to(root)
    except (OSError, ValueError) as error:
        raise _file_error(root / MANIFEST, f"names agents that cannot be read: {name[:200]!a}") from error
    if not is_inside:
        raise _file_error(root / MANIFEST, f"names agents outside of the plugin: {name[:200]!a}")
    return path


def _file_error(path: Path, reason: str) -> AgentFileError:
    error = AgentFileError(reason)
    error.file = path
    return error
