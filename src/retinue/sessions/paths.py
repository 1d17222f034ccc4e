"""Paths and ids inside the state folder, and private files: folders 0700, files 0600, never through a link.

sessions/<8 hex>/session.jsonl      the newest segment of a session's record; older ones: session.<n>.jsonl
sessions/<8 hex>/session.torn       bytes cut off after the last whole record, if any
sessions/<8 hex>                    a file: the claim of a later run's id; see `RunPointer`
leases/<8 hex>                      locked by the process that executes the session's current run
roots/<root>/events.jsonl           every durable event of one root conversation
serving/<port>                      locked by the process that serves there; contains its address
index.sqlite                        derived; may be deleted

The first 8 digits of every id are unique: they are claimed by an exclusive create, of a folder for a session, of a
small file for a later run. So every printed form of an id resolves by reading one file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from retinue.support.safe_files import NotRegularFileError

SHORT_ID_LENGTH = 8
"""Hex digits of an id that no other id shares."""

_DIGITS = re.compile(r"[0-9a-f]{8,32}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
# Opening a pipe must not wait for its other end.
_ALWAYS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class StateLayout:
    """The paths inside one state folder."""

    def __init__(self, folder: Path) -> None:
        self.sessions = folder / "sessions"
        self.leases = folder / "leases"
        self.roots = folder / "roots"
        self.trash = folder / "trash"
        """Folders being deleted: moved here first, so that a half-deleted session is never seen."""
        self.index = folder / "index.sqlite"
        self.changed_folders: list[Path] = []
        """Folders above `sessions` with new entries, to be made durable by the next sync: once for a state folder."""

    def session(self, session: str) -> Path:
        return self.sessions / short_id(session)

    def lease(self, session: str) -> Path:
        return self.leases / short_id(session)

    def root(self, root: str) -> Path:
        return self.roots / make_safe_name(root)


def parse_id_digits(name: str) -> str | None:
    """Return the hex digits of an id or prefix in any printed form; None if the name cannot be an id."""
    found = name.strip().replace("-", "").lower()
    return found if _DIGITS.fullmatch(found) else None


def short_id(name: str) -> str:
    """Return the digits of an id that name its files.

    Raises:
        ValueError: the name is no id, so it must not become a path.
    """
    found = parse_id_digits(name)
    if found is None:
        raise ValueError(f"not an id: {name!r}")
    return found[:SHORT_ID_LENGTH]


def make_safe_name(name: str) -> str:
    """Return a folder name for a foreign id: the id itself if that is safe, else a readable part and a hash."""
    from hashlib import sha256

    if _PLAIN_NAME.fullmatch(name):
        return name
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40].strip("-")
    return f"{readable or 'root'}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def vault_logs_folder(vault: Path) -> Path:
    """Return the folder of a vault that has one event log folder for each root conversation."""
    return vault / ".orion" / "subagent-events"


def vault_log_folder(vault: Path, root: str) -> Path:
    return vault_logs_folder(vault) / make_safe_name(root)


def make_folder(path: Path) -> list[Path]:
    """Create a folder and its missing parents with mode 0700 under any umask, and return those created.

    An existing folder is left as it is.
    """
    missing, made = [path], None
    created: list[Path] = []
    while missing:
        try:
            is_new = _make_one(missing[-1])
        except FileNotFoundError:
            # The parent exists and the folder still cannot be created: a path in /proc.
            if missing[-1].parent in {made, missing[-1]}:
                raise
            missing.append(missing[-1].parent)
        else:
            made = missing.pop()
            created += [made] if is_new else []
    return created


def _make_one(path: Path) -> bool:
    """Create one folder; return False if it exists."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None
        return False
    path.chmod(0o700)
    return True


def open_private(path: Path, flags: int) -> int:
    """Open a file that only its owner may read and return the descriptor; a link or a special file is an error.

    With `O_CREAT`, missing parent folders are created.
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
    """Open a regular file, unbuffered.

    Raises:
        OSError: the file does not exist, is not a regular file, or cannot be read.
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
    """Make a file's content durable."""
    # macOS has no fdatasync, and its fsync does not empty the drive's own cache.
    getattr(os, "fdatasync", os.fsync)(descriptor)


def open_folder(path: Path) -> int:
    """Open a folder to make its entries durable, and return the descriptor."""
    # Windows cannot open folders; there the entries are as durable as the file.
    return os.open(path if os.name != "nt" else os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))


# -- ids -------------------------------------------------------------------------------------------


class RecordPosition(Struct, frozen=True, order=True):
    """A segment number and an offset in that segment."""

    part: int
    offset: int = 0


class RunPointer(Struct, frozen=True):
    """The first line in the claim of a later run."""

    session: str
    run: str


class RunLocation(Struct, frozen=True):
    """The second line, written when the run starts."""

    number: int
    """1 for the session's first run."""
    at: RecordPosition


def make_random_id() -> str:
    """Return a random id, 32 hex digits that are a valid version 4 UUID."""
    data = bytearray(os.urandom(16))
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    return data.hex()


def claim_id(layout: StateLayout, session: str | None, new_id: Callable[[], str]) -> str:
    """Return a new id for a session, or for a later run of the given session.

    The id is returned even if nothing can be written: opening the record reports why.
    """
    while True:
        fresh = new_id()
        try:
            _write_claim(layout, session, fresh)
        except FileExistsError:
            continue
        except OSError:
            pass
        return fresh


def read_run_pointer(path: Path) -> tuple[RunPointer, RunLocation | None] | None:
    """Return the content of a later run's claim; None if the file is not one."""
    try:
        with open_for_reading(path) as file:
            first, _, second = file.read().partition(b"\n")
        claimed = msgspec.json.decode(first, type=RunPointer)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return claimed, msgspec.json.decode(second, type=RunLocation)
    return claimed, None


def write_run_location(layout: StateLayout, claimed: RunPointer, location: RunLocation) -> None:
    """Write where a later run starts; without this line the record has to be searched."""
    path = layout.session(claimed.run)
    with contextlib.suppress(OSError):
        if not path.exists():
            _append(path, claimed, os.O_EXCL)
        _append(path, location, os.O_APPEND)


def _write_claim(layout: StateLayout, session: str | None, fresh: str) -> None:
    path = layout.session(fresh)
    if session is not None:
        _append(path, RunPointer(session, fresh), os.O_EXCL)
        return
    try:
        path.mkdir(0o700)
    except FileNotFoundError:
        layout.changed_folders += [created.parent for created in make_folder(path.parent)]
        path.mkdir(0o700)
    path.chmod(0o700)


def _append(path: Path, content: Struct, flags: int) -> None:
    descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | flags)
    try:
        os.write(descriptor, msgspec.json.encode(content) + b"\n")
    finally:
        os.close(descriptor)
