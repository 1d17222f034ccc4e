"""Where control sockets are: short paths in a folder that only their owner may enter."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from retinue.sessions.paths import make_folder

SUFFIX = ".sock"
UNBOUND_SUFFIX = ".new"
"""Of a socket nobody listens on yet: it would be taken for a dead one."""
MAX_PATH_BYTES = 100
"""Of a path: systems keep them in 104 to 108 bytes."""
BACKLOG = 32
UNIX_SOCKETS_SUPPORTED = sys.platform != "win32" and hasattr(socket, "AF_UNIX")
"""Whether this system has such sockets."""


def open_listener(environ: Mapping[str, str]) -> tuple[socket.socket, Path]:
    """A socket that listens, and where; only its owner may connect. Those of processes that are gone are removed.

    Raises:
        OSError: there can be none.
    """
    name = f"{os.getpid()}-{os.urandom(3).hex()}"
    folder = _socket_folder(environ, len(name) + len(SUFFIX))
    _make_private(folder)
    for stale in _find_stale_sockets(folder):
        stale.unlink(missing_ok=True)
    path, unbound = folder / f"{name}{SUFFIX}", folder / f"{name}{UNBOUND_SUFFIX}"
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(unbound))
        unbound.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        unbound.rename(path)
    except OSError:
        listener.close()
        unbound.unlink(missing_ok=True)
        raise
    return listener, path


def is_stale(path: Path) -> bool:
    """Whether nobody listens on a socket any more: its process was killed and could not remove it."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def remove_socket(address: str) -> None:
    """Removes the socket of a process that is gone."""
    with suppress(OSError):
        Path(address).unlink()


def is_same_user(connection: socket.socket) -> bool:
    """Whether whoever connected is the same user, or root; where a system cannot tell, the folder's mode has."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    form = struct.Struct("3i")
    _, user, _ = form.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
    return user in {os.getuid(), 0}


def _socket_folder(environ: Mapping[str, str], name_bytes: int) -> Path:
    """The user's runtime folder, or one of our own among the temporary files."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    with suppress(OSError):
        if runtime.startswith("/") and _is_private(Path(runtime)):
            found = Path(runtime) / "retinue"
            if _fits(found, name_bytes):
                return found
    for parent in (environ.get("TMPDIR", ""), "/tmp"):  # noqa: S108 - made private and checked
        if parent.startswith("/") and _fits(found := Path(parent) / f"retinue-{os.getuid()}", name_bytes):
            return found
    raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


def _fits(folder: Path, name_bytes: int) -> bool:
    return len(os.fsencode(folder)) + 1 + name_bytes <= MAX_PATH_BYTES


def _make_private(folder: Path) -> None:
    make_folder(folder)
    if not _is_private(folder):
        # Someone else's, or open to others: what is said there could be heard, or answered by anyone.
        raise PermissionError(errno.EPERM, "not a private folder of this user", str(folder))


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _find_stale_sockets(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        # Only where its process cannot be seen is its socket tried: it may be of another container.
        if path.suffix == SUFFIX and not _process_exists(path) and is_stale(path):
            yield path


def _process_exists(path: Path) -> bool:
    """Whether there is a process of the number in a socket's name."""
    number = path.name.partition("-")[0]
    try:
        os.kill(int(number), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True
