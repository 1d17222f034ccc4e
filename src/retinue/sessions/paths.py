"""The places inside the state folder, and how folders and files are made: 0700 and 0600, never through a link.

sessions/<8 hex>/session.jsonl      the newest part of a session's record; older ones: session.<n>.jsonl
sessions/<8 hex>/session.torn       what was cut off behind its last whole record, if anything was
sessions/<8 hex>                    a file: the claim of a later run's id
leases/<8 hex>                      locked by the process that carries out the session's current run
roots/<root>/events.jsonl           every durable event of one root conversation
serving/<port>                      locked by the process that serves there; says its address
index.sqlite                        derived; may be deleted
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from retinue.support.safe_files import NotRegularFileError

SHORT_ID_LENGTH = 8
"""Hex digits of an id that no other id shares."""

_DIGITS = re.compile(r"[0-9a-f]{8,32}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
# Opening a pipe must not wait for its other end.
_ALWAYS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class StateLayout:
    """The places inside one state folder."""

    def __init__(self, folder: Path) -> None:
        self.sessions = folder / "sessions"
        self.leases = folder / "leases"
        self.roots = folder / "roots"
        self.trash = folder / "trash"
        """What is being deleted: moved here first, so that a half-deleted session is never seen."""
        self.index = folder / "index.sqlite"

    def session(self, session: str) -> Path:
        return self.sessions / short_id(session)

    def lease(self, session: str) -> Path:
        return self.leases / short_id(session)

    def root(self, root: str) -> Path:
        return self.roots / make_safe_name(root)


def parse_id_digits(name: str) -> str | None:
    """The hex digits of an id or prefix in any shown form; None if it cannot be one."""
    found = name.strip().replace("-", "").lower()
    return found if _DIGITS.fullmatch(found) else None


def short_id(name: str) -> str:
    """The digits of an id that its files are named by.

    Raises:
        ValueError: it is no id, so no path may be made of it.
    """
    found = parse_id_digits(name)
    if found is None:
        raise ValueError(f"not an id: {name!r}")
    return found[:SHORT_ID_LENGTH]


def make_safe_name(name: str) -> str:
    """A foreign id as the name of a folder: itself where that is safe, else made so and told apart by a hash."""
    from hashlib import sha256

    if _PLAIN_NAME.fullmatch(name):
        return name
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40].strip("-")
    return f"{readable or 'root'}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def vault_logs_folder(vault: Path) -> Path:
    """Where seed 004 keeps the events of every root conversation, a folder each."""
    return vault / ".orion" / "subagent-events"


def vault_log_folder(vault: Path, root: str) -> Path:
    return vault_logs_folder(vault) / make_safe_name(root)


def make_folder(path: Path) -> None:
    """Makes a folder and what is missing above it, 0700 whatever the umask; an existing one is left as it is."""
    missing, made = [path], None
    while missing:
        try:
            _make_one(missing[-1])
        except FileNotFoundError:
            # What is above it is there, and still it cannot be made: so it is in /proc.
            if missing[-1].parent in {made, missing[-1]}:
                raise
            missing.append(missing[-1].parent)
        else:
            made = missing.pop()


def _make_one(path: Path) -> None:
    try:
        path.mkdir(0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None
    else:
        path.chmod(0o700)


def open_private(path: Path, flags: int) -> int:
    """A descriptor of a file only its owner may read; a link, or no file, in its place is an error.

    With `O_CREAT`, folders that are missing above it are made.
    """
    try:
        descriptor = _open(path, flags | _NO_LINK)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
        make_folder(path.parent)
        descriptor = _open(path, flags | _NO_LINK)
    if flags & os.O_CREAT and hasattr(os, "fchmod"):
        os.fchmod(descriptor, 0o600)
    return descriptor


def open_for_reading(path: Path) -> BinaryIO:
    """A regular file, unbuffered.

    Raises:
        OSError: there is none, something else is in its place, or it cannot be read.
    """
    return os.fdopen(_open(path, os.O_RDONLY), "rb", buffering=0)


def _open(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | _ALWAYS, 0o600)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe nobody reads from
            raise _not_a_file_error(path, stat.S_IFIFO) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise _not_a_file_error(path, mode)


def _not_a_file_error(path: Path, mode: int) -> OSError:
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    error = NotRegularFileError(mode)
    error.filename = str(path)
    return error


def sync_file(descriptor: int) -> None:
    """Makes a file's content durable."""
    # macOS has no fdatasync, and its fsync does not empty the drive's own cache.
    getattr(os, "fdatasync", os.fsync)(descriptor)


def open_folder(path: Path) -> int:
    """A descriptor by which a folder's entries can be made durable, where the system can."""
    # Windows opens no folders; there the entries are as durable as the file.
    return os.open(path if os.name != "nt" else os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
