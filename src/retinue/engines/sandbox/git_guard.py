"""Keep a run from changing what makes git execute programs, where the mechanism of its sandbox cannot.

Landlock alone cannot take a folder out of a writable one, and bubblewrap cannot protect what does not exist yet.
So what git would execute is compared after the run, and what the run changed is restored and reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from retinue.config.directories import find_project_levels
from retinue.engines.sandbox.access import find_git_folders
from retinue.engines.sandbox.guarded_files import GuardedFile, TooManyFilesError, read_file, restore_file
from retinue.model.sandbox import PROTECTED_GIT_NAMES

MAX_GUARDED_FILES = 1000
MAX_GUARDED_BYTES = 16 << 20
"""Bytes of all guarded files together, which are kept in memory during the run."""


UNREAD = GuardedFile(mode=-1)
"""Stands for a file that was not compared: it is restored in any case."""


class GitGuard:
    """The guarded entries of a repository's git folders as they were before a run."""

    def __init__(self, cwd: str, *, missing_only: bool = False) -> None:
        """Read them; with `missing_only` those that do not exist: the others cannot be changed.

        Raises:
            TooManyFilesError: there is more than can be kept.
            SandboxAccessError: there are too many git folders.
        """
        git = find_git_folders(os.path.realpath(find_project_levels(Path(cwd))[-1]))
        folders = [Path(folder) for folder in git.list_all()]
        roots = [folder / name for folder in folders for name in sorted(PROTECTED_GIT_NAMES)]
        if os.path.islink(git.entry) or os.path.isfile(git.entry):
            roots.append(Path(git.entry))
        self._roots = tuple(root for root in roots if not (missing_only and os.path.lexists(root)))
        own = {Path(folder) for folder in git.folders}
        self._parents = sorted(own.union(*(_list_between(folder, own) for folder in folders)))
        self._files = self._read()

    def restore(self) -> list[str]:
        """Restore what differs, and return the paths that did."""
        # First: nothing may be compared or restored through a link, which can lead anywhere.
        replaced = [path for path in self._parents if _remove_replaced(path)]
        try:
            now: Mapping[Path, GuardedFile] = self._read()
        except TooManyFilesError:
            now = dict.fromkeys(self._list_paths(), UNREAD)
        changed = sorted(path for path in {*self._files, *now} if self._files.get(path) != now.get(path))
        for path in changed:
            with suppress(OSError):
                restore_file(path, self._files.get(path))
        return [str(path) for path in (*replaced, *changed)]

    def _read(self) -> dict[Path, GuardedFile]:
        found: dict[Path, GuardedFile] = {}
        size = 0
        for path in self._list_paths():
            file = read_file(path, MAX_GUARDED_BYTES - size)
            if file is None:
                continue
            found[path] = file
            size += len(file.content)
            if len(found) > MAX_GUARDED_FILES:
                raise TooManyFilesError
        return found

    def _list_paths(self) -> Iterator[Path]:
        for root in self._roots:
            if root.is_dir() and not root.is_symlink():
                for folder, _, names in os.walk(root):
                    yield from (Path(folder, name) for name in names)
            elif os.path.lexists(root):
                yield root


def _list_between(folder: Path, tops: set[Path]) -> list[Path]:
    """Return a folder and those around it up to the first of the others."""
    parents = [folder, *folder.parents]
    return parents[: next((number for number, path in enumerate(parents) if path in tops), 0)]


def _remove_replaced(path: Path) -> bool:
    """Remove what a run put in the place of a folder, and return whether it did."""
    if not path.is_symlink() and (path.is_dir() or not path.exists()):
        return False
    with suppress(OSError):
        path.unlink()
    return True
