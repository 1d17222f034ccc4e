"""The addresses of processes: paths of control sockets, and the ports on which they serve HTTP."""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from retinue.sessions.lease import is_held
from retinue.sessions.paths import make_folder, open_for_reading, open_private
from retinue.support.processes import RUN_PROCESSES_KNOWN, is_run_process
from retinue.support.safe_files import try_lock

SUFFIX = ".sock"
UNBOUND_SUFFIX = ".new"
"""Suffix of a socket that does not listen yet: it would be taken for a stale one."""
MAX_PATH_BYTES = 100
"""Length of a path: operating systems allow 104 to 108 bytes."""
BACKLOG = 32
SO_PEERPIDFD = 77
"""`SO_PEERPIDFD` of Linux 6.5 and later."""


def open_listener(environ: Mapping[str, str]) -> tuple[socket.socket, Path]:
    """Return a listening socket that only its owner may connect to, and its path; remove stale sockets.

    Raises:
        OSError: no socket can be created.
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
    """Return true if no process listens on a socket any more, because its process was killed."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def is_same_user(connection: socket.socket) -> bool:
    """Return true if the peer is the same user or root; without peer credentials the directory's mode decides."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, user = _read_peer(connection)
    return user in {os.getuid(), 0}


def belongs_to_run(connection: socket.socket) -> bool:
    """Return true if the process that made a connection belongs to a run, or is gone and cannot be recognized.

    Raises:
        OSError: no descriptor is left to read /proc with.
    """
    if not (RUN_PROCESSES_KNOWN and hasattr(socket, "SO_PEERCRED")):
        return False
    pid, _ = _read_peer(connection)
    if pid in {0, os.getpid()}:  # outside this container, or this process itself
        return False
    try:
        process = _open_peer(connection, pid)
    except ProcessLookupError:
        return True
    try:
        # In this order: while it has not exited, the pid is its own.
        return is_run_process(pid) or _has_exited(process)
    finally:
        os.close(process)


def _has_exited(process: int) -> bool:
    poll = select.poll()  # select() takes no descriptor above 1023
    poll.register(process, select.POLLIN)
    return bool(poll.poll(0))


def _read_peer(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the user of the process that made a connection."""
    form = struct.Struct("3i")
    pid, user, _ = form.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
    return pid, user


def _open_peer(connection: socket.socket, pid: int) -> int:
    """Return a descriptor of the process that made a connection.

    Raises:
        ProcessLookupError: it is gone.
        OSError: no descriptor is left.
    """
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno == errno.ENOPROTOOPT:  # Linux before 6.5: a reused pid is not noticed
            return os.pidfd_open(pid)
        if error.errno in {errno.ESRCH, errno.ENODATA, errno.EINVAL}:
            raise ProcessLookupError(errno.ESRCH, "the peer is gone") from error
        raise


def _socket_folder(environ: Mapping[str, str], name_bytes: int) -> Path:
    """Return the user's runtime directory, or one of our own among the temporary files."""
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
        # Another user's, or open to others, who could read or answer messages.
        raise PermissionError(errno.EPERM, "not a private folder of this user", str(folder))


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _find_stale_sockets(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        # A process that cannot be seen may be of another container, so its socket is tried.
        if path.suffix == SUFFIX and not _process_exists(path) and is_stale(path):
            yield path


def _process_exists(path: Path) -> bool:
    """Return true if a process with the number in the socket's name exists."""
    number = path.name.partition("-")[0]
    try:
        os.kill(int(number), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


MAX_ADDRESS_BYTES = 1024


@contextmanager
def publish_port(state: Path, port: int, address: str) -> Iterator[None]:
    """Publish, for the block, that this process serves on a port; skipped if the file cannot be written."""
    path = _port_file(state, port)
    try:
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    except OSError:
        yield
        return
    is_ours = _write_address(descriptor, address)
    try:
        yield
    finally:
        if is_ours:
            with suppress(OSError):
                path.unlink()
        os.close(descriptor)


def find_server(state: Path, port: int) -> str | None:
    """Return the address of the process of this user that serves on a port; None if there is none."""
    path = _port_file(state, port)
    if not is_held(path):
        return None
    with suppress(OSError, UnicodeDecodeError), open_for_reading(path) as file:
        return file.read(MAX_ADDRESS_BYTES).decode() or None
    return None


def list_ports(state: Path) -> list[int]:
    """Return the ports that processes with this state folder may serve on; `find_server` checks one."""
    try:
        names = [path.name for path in (state / "serving").iterdir()]
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _write_address(descriptor: int, address: str) -> bool:
    """Lock the file and write the address; false if a server on this port at another address holds the lock."""
    with suppress(OSError):
        if try_lock(descriptor):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, address.encode())
            return True
    return False


def _port_file(state: Path, port: int) -> Path:
    return state / "serving" / str(port)
