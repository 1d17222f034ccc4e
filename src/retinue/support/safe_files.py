"""Read files that others wrote: regular ones only, bounded, never waiting for the other end of a pipe.

Also write private files as a whole, and lock files.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

# Opening a FIFO must not wait for a writer. Windows has neither O_NONBLOCK nor O_CLOEXEC, others no O_BINARY.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_KIND_NAMES = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
_LOCK_HELD_ERRNOS = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}


class NotRegularFileError(OSError):
    """The path is not a regular file."""

    def __init__(self, mode: int) -> None:
        self.kind = _KIND_NAMES.get(stat.S_IFMT(mode), "a device")
        """`a directory`, `a pipe`, `a socket`, `a link` or `a device`."""
        super().__init__(errno.EINVAL, f"{self.kind}, not a file")


class FileTooLargeError(Exception):
    """The file is larger than the limit."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"{size_bytes} bytes")
        self.size_bytes = size_bytes
        """Size so far: a file may grow while it is read."""


def read_regular_file(path: str | Path, limit_bytes: int, *, follow_link: bool = True) -> bytes:
    """Return the whole content of a regular file of at most `limit_bytes`.

    Raises:
        NotRegular: it is something else; without `follow_link` a link is, too.
        TooLarge: it has more.
        OSError: it is missing, or cannot be read.
        ValueError: the path can be none, as it contains a NUL.
    """
    # Checked before it is opened: opening a device can have side effects.
    _validate_status(Path(path).stat(follow_symlinks=follow_link), limit_bytes)
    descriptor = os.open(path, _FLAGS | (0 if follow_link else _NO_LINK))
    try:
        # Checked again through the handle: the path may name another file by now.
        _validate_status(os.fstat(descriptor), limit_bytes)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # One byte more than allowed: a file that grows while it is read is too large, not cut.
            content = file.read(limit_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > limit_bytes:
        raise FileTooLargeError(len(content))
    return content


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, readable by the user only."""
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def resolve_path(path: Path) -> Path:
    """Return the path without links; it need not exist.

    Raises:
        OSError: its links go round; from Python 3.13 on only opening it says so.
        ValueError: it can be no path, as it contains a NUL.
    """
    try:
        return path.resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def _validate_status(status: os.stat_result, limit_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularFileError(status.st_mode)
    if status.st_size > limit_bytes:
        raise FileTooLargeError(status.st_size)


if sys.platform == "win32":
    import msvcrt

    def try_lock(descriptor: int, *, shared: bool = False) -> bool:  # noqa: ARG001 - Windows has no shared locks
        """Lock a file for this descriptor until it is closed; return False while another descriptor holds it."""
        # Locks are mandatory here: the locked byte is far behind the content, which others read.
        os.lseek(descriptor, 2**30, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in _LOCK_HELD_ERRNOS:
                return False
            raise
        return True

else:
    import fcntl

    def try_lock(descriptor: int, *, shared: bool = False) -> bool:
        """Lock a file for this descriptor until it is closed; return False while another descriptor holds it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
        except OSError as error:
            if error.errno in _LOCK_HELD_ERRNOS:
                return False
            raise
        return True
