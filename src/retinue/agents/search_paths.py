"""Find agent files: the folders to search, and the files in each."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.agents.agent import Diagnostic, SourceLayer
from retinue.agents.dialects import DIALECT_RULES, AgentDialect, AgentSource, DialectRules, PluginSource
from retinue.agents.parse import LINK_LOOP
from retinue.config.directories import (
    claude_folder,
    config_folder,
    expand_user_path,
    find_project_levels,
    home_folder,
    pi_folder,
)
from retinue.support.cache import MAX_CACHED
from retinue.support.safe_files import resolve_path

if TYPE_CHECKING:
    from retinue.agents.plugins import PluginAgents, PluginFinder

MAX_ENTRIES = 20_000
"""Entries in one folder and those below it; more is no folder of agents."""
MAX_DEPTH = 8
"""Levels of subfolders, where they are read."""

BUILTIN_FOLDER = Path(__file__).parent / "builtin"

PROJECT_FOLDERS = (
    (".retinue/agents", AgentDialect.MARKDOWN),
    (".pi/agents", AgentDialect.MARKDOWN),
    (".pi/agent-profiles", AgentDialect.MARKDOWN),
    (".pi/prompts", AgentDialect.PROMPT),
    (".agents/agents", AgentDialect.MARKDOWN),
    (".agents", AgentDialect.NAMED),
    (".claude/agents", AgentDialect.CLAUDE),
    (".gemini/agents", AgentDialect.GEMINI),
    (".opencode/agent", AgentDialect.OPENCODE),
    (".opencode/agents", AgentDialect.OPENCODE),
    (".codex/agents", AgentDialect.CODEX),
    (".github/agents", AgentDialect.COPILOT),
    (".cursor/agents", AgentDialect.CURSOR),
)
"""At each level of a project, the strongest first."""

_WORKSPACE = ("config.yaml", "AGENTS.md", "SOUL.md", "MEMORY.md")

ChangeStamp = tuple[int, ...]
"""Identifies one state of a file without reading it."""


class AgentFolder(Struct, frozen=True, cache_hash=True):
    """A folder of definitions, or one of them; it may not exist."""

    path: Path
    origin: AgentSource
    is_fixed: bool = False
    """Whether it is part of the program and does not change while that runs."""
    problem: Diagnostic | None = None
    """Why nothing of it can be used."""

    @property
    def is_file(self) -> bool:
        """Whether it is the file of an agent that a plugin names."""
        return self.origin.plugin is not None and self.path.suffix in DIALECT_RULES[self.origin.dialect].suffixes


class FolderContents(Struct, frozen=True):
    """The files of a folder in order, each with its stamp, and entries that could not be read."""

    files: tuple[tuple[str, ChangeStamp], ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


class SearchPaths:
    """The folders with agents for one user; `bundle` is a folder of further built-in agents."""

    def __init__(self, environ: Mapping[str, str], *, bundle: Path | None = None) -> None:
        self.environ = environ
        self._user = tuple(_user_folders(environ))
        self._user_paths = {place for folder in self._user for place in (folder.path, resolve_links(folder.path))}
        self._builtin = (
            *_workspaces(bundle, SourceLayer.BUILTIN),
            AgentFolder(BUILTIN_FOLDER, AgentSource(SourceLayer.BUILTIN), is_fixed=True),
        )
        self._plugins: PluginFinder | None = None
        self._project: dict[tuple[Path, ...], tuple[AgentFolder, ...]] = {}

    def for_directory(self, cwd: Path, *, vault: Path | None = None) -> tuple[AgentFolder, ...]:
        """Return the folders that apply to a working directory, the strongest first."""
        levels = find_project_levels(resolve_links(cwd))
        project = self._project.get(levels)
        if project is None:
            # In a working directory of ~ the user's folders look like a project's: they stay the user's.
            found = (folder for folder in _project_folders(levels) if folder.path not in self._user_paths)
            if len(self._project) >= MAX_CACHED:
                self._project.clear()
            project = self._project[levels] = tuple(found)
        plugins = self._plugin_folders(levels)
        return (*project, *_workspaces(vault, SourceLayer.VAULT), *self._user, *plugins, *self._builtin)

    def _plugin_folders(self, levels: tuple[Path, ...]) -> list[AgentFolder]:
        claude = claude_folder(self.environ)
        if self._plugins is None and not _may_exist(claude / "plugins"):
            return []
        from retinue.agents.plugins import PluginFinder

        self._plugins = self._plugins or PluginFinder(claude)
        return [_plugin_folder(found) for found in self._plugins.list_agents(levels)]


def scan_folder(folder: AgentFolder, *, limit: int = MAX_ENTRIES) -> FolderContents:
    """Return the current files of the folder, up to the limit, without opening any."""
    origin = folder.origin
    if folder.problem:
        return FolderContents(diagnostics=(folder.problem,))
    if folder.is_file:
        return FolderContents(((str(folder.path), _file_stamp(folder.path)),))
    scan = _DirectoryScan(limit, DIALECT_RULES[origin.dialect], workspaces=origin.dialect is AgentDialect.FOLDER)
    try:
        if not _is_folder(folder.path):
            return FolderContents()
        if origin.within and not resolve_path(folder.path).is_relative_to(origin.within):
            return _only_diagnostic(folder, f"leads out of {origin.within} and is ignored")
        scan.scan(str(folder.path))
    except OSError as error:
        if error.errno == errno.ELOOP:
            return FolderContents(diagnostics=(Diagnostic(str(_find_link_loop(folder.path)), LINK_LOOP),))
        return _only_diagnostic(folder, f"cannot be read: {error.strerror}")
    diagnostics = [Diagnostic(path, "is a folder without read permission") for path in scan.unreadable]
    if scan.is_full:
        diagnostics.append(
            Diagnostic(str(folder.path), f"holds more than {limit} entries; the others are ignored: keep fewer there")
        )
    return FolderContents(tuple(sorted(scan.files)), tuple(diagnostics))


class _DirectoryScan:
    """A scan of a folder and, where the dialect has them, those below it. Linked folders are not entered."""

    def __init__(self, limit: int, rules: DialectRules, *, workspaces: bool) -> None:
        self._limit = limit
        self._rules = rules
        self._workspaces = workspaces
        self._seen = 0
        self.files: list[tuple[str, ChangeStamp]] = []
        self.unreadable: list[str] = []

    @property
    def is_full(self) -> bool:
        return self._seen > self._limit

    def scan(self, path: str, depth: int = 0) -> None:
        with os.scandir(path) as entries:
            for entry in entries:
                self._seen += 1
                if self.is_full:
                    return
                if not entry.name.startswith("."):
                    self._visit(entry, depth)

    def _visit(self, entry: os.DirEntry[str], depth: int) -> None:
        if self._workspaces:
            if entry.is_dir():
                self.files.append((entry.path, _workspace_stamp(entry.path)))
        elif self._rules.has_subfolders and depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False):
            try:
                self.scan(entry.path, depth + 1)
            except OSError:
                self.unreadable.append(entry.path)
        elif entry.name.lower().endswith(self._rules.suffixes):
            self.files.append((entry.path, _file_stamp(entry)))


def _file_stamp(file: os.DirEntry[str] | Path) -> ChangeStamp:
    try:
        status = file.stat()
    except (OSError, ValueError):
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _workspace_stamp(path: str) -> ChangeStamp:
    stamps = [_file_stamp(Path(path, name)) for name in _WORKSPACE]
    return tuple(number for stamp in stamps for number in (len(stamp), *stamp))


def _only_diagnostic(folder: AgentFolder, text: str) -> FolderContents:
    return FolderContents(diagnostics=(Diagnostic(str(folder.path), text),))


def _is_folder(path: Path) -> bool:
    """Return whether the path is a folder; a broken link is none.

    Raises:
        OSError: the path cannot be read.
    """
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _may_exist(path: Path) -> bool:
    """Return whether there is something, also if that cannot be read."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return True


def resolve_links(path: Path) -> Path:
    """Return the path without links as far as they can be followed; reading it reports the rest."""
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return path
    return path if real == str(path) else Path(real)  # on every call: most paths have no links


def _find_link_loop(path: Path) -> Path:
    """Return the first part of a path that cannot be followed."""
    for place in (*reversed(path.parents), path):
        try:
            place.stat()
        except OSError:
            return place
    return path


def _project_folders(levels: tuple[Path, ...]) -> Iterator[AgentFolder]:
    for level in levels:
        for relative, dialect in PROJECT_FOLDERS:
            yield AgentFolder(
                level / relative, AgentSource(SourceLayer.PROJECT, dialect, str(level), within=levels[-1])
            )


def _user_folders(environ: Mapping[str, str]) -> Iterator[AgentFolder]:
    home, pi = home_folder(environ), pi_folder(environ)
    for path in (
        config_folder(environ) / "agents",
        pi / "agents",
        pi / "subagents",
        pi / "agent-profiles",
        home / ".agents" / "agents",
    ):
        yield AgentFolder(path, AgentSource(SourceLayer.USER))
    config = config_folder(environ).parent
    for path, dialect in (
        (claude_folder(environ) / "agents", AgentDialect.CLAUDE),
        (home / ".gemini/agents", AgentDialect.GEMINI),
        (config / "opencode/agent", AgentDialect.OPENCODE),
        (config / "opencode/agents", AgentDialect.OPENCODE),
        (_configured_folder(environ, "CODEX_HOME", home / ".codex") / "agents", AgentDialect.CODEX),
        (_configured_folder(environ, "COPILOT_HOME", home / ".copilot") / "agents", AgentDialect.COPILOT),
        (home / ".cursor/agents", AgentDialect.CURSOR),
    ):
        yield AgentFolder(path, AgentSource(SourceLayer.USER, dialect))


def _plugin_folder(found: PluginAgents) -> AgentFolder:
    plugin = PluginSource(found.plugin, found.path)
    origin = AgentSource(SourceLayer.USER, AgentDialect.CLAUDE, within=found.root, plugin=plugin)
    return AgentFolder(found.path, origin, problem=found.problem)


def _configured_folder(environ: Mapping[str, str], variable: str, default: Path) -> Path:
    configured = environ.get(variable)
    return expand_user_path(configured, environ) if configured else default


def _workspaces(parent: Path | None, layer: SourceLayer) -> tuple[AgentFolder, ...]:
    return (AgentFolder(parent / "agents", AgentSource(layer, AgentDialect.FOLDER)),) if parent else ()
