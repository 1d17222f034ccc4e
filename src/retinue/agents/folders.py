"""Where definitions are found: the table of folders, and what lies in each."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from retinue.agents.definition import Layer, Remark
from retinue.agents.dialects import Dialect, Origin
from retinue.agents.files import LOOP
from retinue.folders import config_folder, home_folder, pi_folder, project_levels, user_path
from retinue.regular_files import real_path
from retinue.remembered import MOST

MAX_ENTRIES = 20_000
"""In one folder and those below it; more is not a folder of agents."""
MAX_DEPTH = 8
"""Of subfolders, where they are read."""

BUILTIN = Path(__file__).parent / "builtin"

PROJECT_FOLDERS = (
    (".retinue/agents", Dialect.MARKDOWN),
    (".pi/agents", Dialect.MARKDOWN),
    (".pi/agent-profiles", Dialect.MARKDOWN),
    (".pi/prompts", Dialect.PROMPT),
    (".agents/agents", Dialect.MARKDOWN),
    (".agents", Dialect.NAMED),
    (".claude/agents", Dialect.CLAUDE),
)
"""At each level of a project, the strongest first."""

_SUFFIXES = (".md", ".markdown")
_WORKSPACE = ("config.yaml", "AGENTS.md", "SOUL.md", "MEMORY.md")

Stamp = tuple[int, ...]
"""Tells one state of a file from another without reading it."""


class Folder(Struct, frozen=True, cache_hash=True):
    """A folder of definitions, there or not."""

    path: Path
    origin: Origin
    is_fixed: bool = False
    """Whether it comes with the program and stays as it is while that runs."""


class Contents(Struct, frozen=True):
    """What lies in a folder: paths in order, each with its stamp, and what could not be looked at."""

    files: tuple[tuple[str, Stamp], ...] = ()
    remarks: tuple[Remark, ...] = ()


class Folders:
    """The folders that hold agents for one user; `bundle` has those a program brings along as built-in ones."""

    def __init__(self, environ: Mapping[str, str], *, bundle: Path | None = None) -> None:
        self._user = tuple(_user_folders(environ))
        self._mine = {place for folder in self._user for place in (folder.path, _real(folder.path))}
        self._builtin = (*_workspaces(bundle, Layer.BUILTIN), Folder(BUILTIN, Origin(Layer.BUILTIN), is_fixed=True))
        self._project: dict[tuple[Path, ...], tuple[Folder, ...]] = {}

    def around(self, cwd: Path, *, vault: Path | None = None) -> tuple[Folder, ...]:
        """The folders that count in a working directory, the strongest first."""
        levels = project_levels(_real(cwd))
        project = self._project.get(levels)
        if project is None:
            # In a working directory of ~ the user's folders look like a project's: the user's reading wins.
            found = (folder for folder in _project_folders(levels) if folder.path not in self._mine)
            if len(self._project) >= MOST:
                self._project.clear()
            project = self._project[levels] = tuple(found)
        return (*project, *_workspaces(vault, Layer.VAULT), *self._user, *self._builtin)


def contents(folder: Folder, *, limit: int = MAX_ENTRIES) -> Contents:
    """What lies in the folder now: one look at each entry up to the limit, nothing is opened."""
    origin = folder.origin
    look = _Look(limit, deep=origin.dialect is Dialect.CLAUDE, workspaces=origin.dialect is Dialect.FOLDER)
    try:
        if not _is_folder(folder.path):
            return Contents()
        if origin.beneath and not real_path(folder.path).is_relative_to(origin.beneath):
            return _only(folder, "leads out of the repository; it is not read")
        look.into(str(folder.path))
    except OSError as error:
        if error.errno == errno.ELOOP:
            return Contents(remarks=(Remark(str(_loop(folder.path)), LOOP),))
        return _only(folder, f"cannot be read: {error.strerror}")
    remarks = [Remark(path, "is a folder that cannot be read") for path in look.unreadable]
    if look.is_full:
        remarks.append(Remark(str(folder.path), f"holds more than {limit} entries; the rest is not read"))
    return Contents(tuple(sorted(look.found)), tuple(remarks))


class _Look:
    """One look through a folder and, if `deep`, those below it. Linked folders are not entered."""

    def __init__(self, limit: int, *, deep: bool, workspaces: bool) -> None:
        self._limit = limit
        self._deep = deep
        self._workspaces = workspaces
        self._seen = 0
        self.found: list[tuple[str, Stamp]] = []
        self.unreadable: list[str] = []

    @property
    def is_full(self) -> bool:
        return self._seen > self._limit

    def into(self, path: str, depth: int = 0) -> None:
        with os.scandir(path) as entries:
            for entry in entries:
                self._seen += 1
                if self.is_full:
                    return
                if not entry.name.startswith("."):
                    self._entry(entry, depth)

    def _entry(self, entry: os.DirEntry[str], depth: int) -> None:
        if self._workspaces:
            if entry.is_dir():
                self.found.append((entry.path, _workspace_stamp(entry.path)))
        elif self._deep and depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False):
            try:
                self.into(entry.path, depth + 1)
            except OSError:
                self.unreadable.append(entry.path)
        elif entry.name.lower().endswith(_SUFFIXES):
            self.found.append((entry.path, _stamp(entry)))


def _stamp(file: os.DirEntry[str] | Path) -> Stamp:
    try:
        status = file.stat()
    except (OSError, ValueError):
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _workspace_stamp(path: str) -> Stamp:
    stamps = [_stamp(Path(path, name)) for name in _WORKSPACE]
    return tuple(number for stamp in stamps for number in (len(stamp), *stamp))


def _only(folder: Folder, text: str) -> Contents:
    return Contents(remarks=(Remark(str(folder.path), text),))


def _is_folder(path: Path) -> bool:
    """Whether there is a folder; a link to nowhere is none.

    Raises:
        OSError: that cannot be known.
    """
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _real(path: Path) -> Path:
    """The path without links, as far as they can be followed; where they cannot, that is told when it is read."""
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return path
    return path if real == str(path) else Path(real)  # every call asks: most paths are their own


def _loop(path: Path) -> Path:
    """The first link on the way to a path that cannot be followed."""
    for place in (*reversed(path.parents), path):
        try:
            place.stat()
        except OSError:
            return place
    return path


def _project_folders(levels: tuple[Path, ...]) -> Iterator[Folder]:
    for level in levels:
        for relative, dialect in PROJECT_FOLDERS:
            yield Folder(level / relative, Origin(Layer.PROJECT, dialect, str(level), beneath=levels[-1]))


def _user_folders(environ: Mapping[str, str]) -> Iterator[Folder]:
    home, pi = home_folder(environ), pi_folder(environ)
    own = environ.get("CLAUDE_CONFIG_DIR")
    claude = user_path(own, environ) if own else home / ".claude"
    for path in (
        config_folder(environ) / "agents",
        pi / "agents",
        pi / "subagents",
        pi / "agent-profiles",
        home / ".agents" / "agents",
    ):
        yield Folder(path, Origin(Layer.USER))
    yield Folder(claude / "agents", Origin(Layer.USER, Dialect.CLAUDE))


def _workspaces(parent: Path | None, layer: Layer) -> tuple[Folder, ...]:
    return (Folder(parent / "agents", Origin(layer, Dialect.FOLDER)),) if parent else ()
