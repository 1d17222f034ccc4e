"""What agents and their programs load code from in a project: no sandboxed run changes it unasked.

Bubblewrap makes it read-only. What does not exist yet, or is a link, it cannot protect, and Landlock alone protects
nothing below a writable folder. So that is compared after the run: what the run put there is set aside under a name
that nothing loads, and what was there before is restored.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from retinue.engines.sandbox.guarded_files import GuardedFile, TooManyFilesError, read_file, restore_file
from retinue.model.sandbox import AGENT_CONFIGURATION, SandboxMechanism, SandboxPolicy

MAX_COMPARED_FILES = 20_000
MAX_KEPT_BYTES = 16 << 20
"""Bytes of all files together that are kept in memory, to be restored. Of others a change is only set aside."""
Stamp = tuple[int, ...]


def list_configuration(policy: SandboxPolicy, cwd: str) -> tuple[str, ...]:
    """Return the paths, existing or not, at each level of the project that the run may write.

    Those that the user names in `sandbox_write` are left out.
    """
    granted = list_granted(policy, cwd)
    paths = (os.path.join(level, name) for level in _list_levels(policy, cwd) for name in AGENT_CONFIGURATION)
    return tuple(path for path in paths if not any(is_below(path, folder) for folder in granted))


def list_granted(policy: SandboxPolicy, cwd: str) -> tuple[str, ...]:
    """Return the folders and files of `sandbox_write` that do not contain the working directory."""
    return tuple(path for path in map(os.path.realpath, policy.write) if not is_below(cwd, path))


def list_read_only(policy: SandboxPolicy, cwd: str) -> Iterator[str]:
    """Yield the existing paths that a mount can make read-only; those behind a link where they are."""
    for path in list_configuration(policy, cwd):
        real = os.path.realpath(path)
        if os.path.exists(real) and not is_below(cwd, real):
            yield real


def _list_levels(policy: SandboxPolicy, cwd: str) -> list[str]:
    """Return the working directory and the folders above it that the run may write, too."""
    if not policy.writes_cwd:
        return []
    tops = [path for path in map(os.path.realpath, policy.write) if is_below(cwd, path)]
    levels = [cwd, *map(str, Path(cwd).parents)]
    return [level for level in levels if level == cwd or any(is_below(level, top) for top in tops)]


def is_below(path: str, folder: str) -> bool:
    """Return whether the path is the folder or inside it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class ComparedFile(Struct, frozen=True):
    """A file, link or special file as it was before a run."""

    stamp: Stamp
    kept: GuardedFile | None
    """None: too large to be kept."""


class ConfigurationGuard:
    """The configuration that a run could change, as it was before."""

    def __init__(self, policy: SandboxPolicy, cwd: str, suffix: str) -> None:
        """Read it. `suffix` marks what is set aside.

        Raises:
            TooManyFilesError: there is more than can be compared.
        """
        folder = os.path.realpath(cwd)
        compares_all = policy.report.mechanism is SandboxMechanism.LANDLOCK
        self._granted = list_granted(policy, folder)
        self._suffix = suffix
        paths = list_configuration(policy, folder)
        if compares_all:
            # Of a link, what it leads to as well.
            self._roots = [Path(path) for path in dict.fromkeys((*paths, *list_read_only(policy, folder)))]
        else:
            self._roots = [Path(path) for path in paths if os.path.islink(path) or not os.path.lexists(path)]
        # A folder in between that becomes a link would lead the comparison elsewhere.
        between = {root.parent for root in self._roots if str(root.parent) != folder}
        self._links = {path: _read_link(path) for path in sorted(between)}
        self._absent = {root for root in self._roots if not os.path.lexists(root)}
        self._files = self._read_files()

    def restore(self) -> list[str]:
        """Set aside what was added or changed, restore what was there before, and return the paths that differ."""
        changed = [path for path in self._links if self._restore_link(path)]
        for root in self._roots:
            changed += self._set_aside_changes(root)
        for path, before in self._files.items():
            if path.is_dir() and not path.is_symlink():  # in the place of a file or link
                self._set_aside(path)
            if before.kept is not None and not os.path.lexists(path):
                changed += [] if path in changed else [path]
                with suppress(OSError):
                    restore_file(path, before.kept)
        return [str(path) for path in changed]

    def _read_files(self) -> dict[Path, ComparedFile]:
        found: dict[Path, ComparedFile] = {}
        size = 0
        for path in (path for root in self._roots for path in self._list_files(root)):
            if len(found) >= MAX_COMPARED_FILES:
                raise TooManyFilesError
            try:
                kept = read_file(path, MAX_KEPT_BYTES - size)
            except TooManyFilesError:
                kept = None
            size += len(kept.content) if kept else 0
            found[path] = ComparedFile(_read_stamp(path), kept)
        return found

    def _restore_link(self, path: Path) -> bool:
        before, now = self._links[path], _read_link(path)
        if now is None or now == before:
            return False
        self._set_aside(path)
        if before is not None:
            path.symlink_to(before)
        return True

    def _set_aside_changes(self, root: Path) -> list[Path]:
        if root in self._absent:
            return [root] if self._set_aside(root) else []
        changed: list[Path] = []
        for number, path in enumerate(self._list_files(root)):
            if number > MAX_COMPARED_FILES:
                return [root] if self._set_aside(root) else []
            if self._is_changed(path) and self._set_aside(path):
                changed.append(path)
        return changed

    def _is_changed(self, path: Path) -> bool:
        before = self._files.get(path)
        if before is None:
            return True
        if _read_stamp(path) == before.stamp:
            return False
        try:
            return before.kept is None or read_file(path, MAX_KEPT_BYTES) != before.kept
        except TooManyFilesError:
            return True

    def _set_aside(self, path: Path) -> bool:
        """Rename a path to one that nothing loads; return whether there was anything."""
        if not os.path.lexists(path):
            return False
        aside = path.with_name(path.name + self._suffix)
        while os.path.lexists(aside):
            aside = path.with_name(f"{path.name}{self._suffix}-{os.urandom(4).hex()}")
        with suppress(OSError):
            try:
                path.rename(aside)
            except PermissionError:  # the run closed the folder
                path.parent.chmod(0o700)
                path.rename(aside)
        return True

    def _list_files(self, path: Path) -> Iterator[Path]:
        """Yield everything but folders at and below a path, without what the user granted; links are not followed."""
        if str(path) in self._granted:
            return
        try:
            is_folder = stat.S_ISDIR(path.lstat().st_mode)
        except OSError:
            return
        if not is_folder:
            yield path
            return
        for name in _list_names(path):
            yield from self._list_files(path / name)


def _list_names(folder: Path) -> list[str]:
    """Return the names in a folder, which the run may have closed."""
    for _ in range(2):
        try:
            return sorted(os.listdir(folder))
        except PermissionError:
            with suppress(OSError):
                folder.chmod(0o700)
        except OSError:
            break
    return []


def _read_stamp(path: Path) -> Stamp:
    """Return what changes with every change of a file: its time of change cannot be set by a program."""
    try:
        state = path.lstat()
    except OSError:
        return ()
    return (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode)


def _read_link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None
