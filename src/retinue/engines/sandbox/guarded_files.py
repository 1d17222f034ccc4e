"""Files that are kept in memory during a run, to be restored after it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from msgspec import Struct

from retinue.support.safe_files import FileTooLargeError, read_regular_file


class GuardedFile(Struct, frozen=True):
    """A file, or with `target` a link, as it was before the run."""

    content: bytes = b""
    mode: int = 0o644
    target: str | None = None


class TooManyFilesError(Exception):
    """Raised if there is more than can be kept."""


def read_file(path: Path, limit: int) -> GuardedFile | None:
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


def restore_file(path: Path, before: GuardedFile | None) -> None:
    """Put a file or link back as it was; None removes it."""
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
