"""Keep a run from changing what makes git execute programs, where the mechanism of its sandbox cannot.

Landlock alone cannot take a folder out of a writable one, and bubblewrap cannot protect what does not exist yet.
So what git would execute is compared after the run, and what the run changed is restored and reported.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct

from retinue.config.directories import find_project_levels
from retinue.engines.base import Emit, EngineError
from retinue.engines.sandbox.access import SandboxAccessError, find_git_folders
from retinue.engines.sandbox.mechanisms import unavailable_failure
from retinue.model.events import Notice
from retinue.model.runs import RunSpec
from retinue.model.sandbox import PROTECTED_GIT_NAMES, SandboxMechanism
from retinue.support.safe_files import FileTooLargeError, read_regular_file

MAX_GUARDED_FILES = 1000
MAX_GUARDED_BYTES = 16 << 20
"""Bytes of all guarded files together, which are kept in memory during the run."""
MAX_NAMED = 5
"""Changed paths that a notice names; the others are counted."""


class GuardedFile(Struct, frozen=True):
    """A file, or with `target` a link, as it was before the run."""

    content: bytes = b""
    mode: int = 0o644
    target: str | None = None


UNREAD = GuardedFile(mode=-1)
"""Stands for a file that was not compared: it is restored in any case."""


class TooManyFilesError(Exception):
    """Raised if there is more than can be kept."""


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
                _restore_file(path, self._files.get(path))
        return [str(path) for path in (*replaced, *changed)]

    def _read(self) -> dict[Path, GuardedFile]:
        found: dict[Path, GuardedFile] = {}
        size = 0
        for path in self._list_paths():
            file = _read_file(path, MAX_GUARDED_BYTES - size)
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


def _read_file(path: Path, limit: int) -> GuardedFile | None:
    """Return the file or link at a path; None if there is none.

    Raises:
        TooManyFilesError: it is larger than the limit.
    """
    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            return GuardedFile(target=str(path.readlink()))
        return GuardedFile(read_regular_file(path, limit, follow_link=False), stat.S_IMODE(state.st_mode))
    except FileTooLargeError as error:
        raise TooManyFilesError from error
    except OSError:
        return None


def _restore_file(path: Path, before: GuardedFile | None) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if before is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if before.target is not None:
        path.symlink_to(before.target)
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(before.content)
        os.fchmod(file.fileno(), before.mode)


@asynccontextmanager
async def guard_git(spec: RunSpec, emit: Emit) -> AsyncIterator[None]:
    """Run a block in which a run may write its directory, then restore and report what it must not change.

    Raises:
        EngineError: the repository has more hooks than can be guarded (`unsupported`).
    """
    sandbox = spec.sandbox
    if not sandbox.writes_cwd or sandbox.is_strict or sandbox.report.mechanism is SandboxMechanism.IN_PROCESS:
        yield
        return
    missing_only = sandbox.report.mechanism is not SandboxMechanism.LANDLOCK
    try:
        guard = await anyio.to_thread.run_sync(lambda: GitGuard(spec.cwd, missing_only=missing_only))
    except SandboxAccessError as error:
        raise EngineError(unavailable_failure(sandbox.mode, str(error))) from error
    except TooManyFilesError:
        why = (
            ".git/hooks and .git/info have too many files to be compared after the run, and Landlock "
            "alone cannot protect them. Nothing was started. Install bubblewrap"
        )
        raise EngineError(unavailable_failure(spec.sandbox.mode, why)) from None
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            if changed := await anyio.to_thread.run_sync(guard.restore):
                await emit(Notice("sandbox", _describe_changes(changed)))


def _describe_changes(changed: list[str]) -> str:
    named = ", ".join(changed[:MAX_NAMED])
    more = f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else ""
    return f"The agent changed {named}{more}, by which git executes programs. What was there before was restored."
