"""Refuse acting requests of processes that a run started, also with the right token. Linux only.

HTTP has no credentials of the peer's process, so the client's socket is looked up in /proc: first in the table of
connections, then among the descriptors of processes. A connection from another machine is in no table here.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread

from retinue.servers.asgi.request_checks import HttpError, Scope
from retinue.support.processes import RUN_PROCESSES_KNOWN, read_proc_file, split_processes

READ_METHODS = frozenset({"GET", "HEAD"})
MAX_ROUNDS = 20
"""Searches among the processes of runs: one that starts or exits meanwhile may have passed the socket on."""
REFUSED = (
    "An agent started the process that sent this request, or the process cannot be identified. Nothing was changed. "
    "Send the request from your own terminal or browser."
)
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_MAPPED = "0000000000000000FFFF0000"
"""The words before an IPv4 address in an IPv6 socket, as the table prints them."""

Address = tuple[str, int]


async def refuse_run_process(scope: Scope) -> None:
    """Accept a request that only reads, or whose sender no run started.

    Raises:
        HttpError: a run started the sender, or the sender is gone.
    """
    client, server = scope.get("client"), scope.get("server")
    if scope["method"] in READ_METHODS or not (RUN_PROCESSES_KNOWN and client and server):
        return
    if await anyio.to_thread.run_sync(is_sent_by_run, tuple(client), tuple(server)):
        raise HttpError(403, REFUSED)


def is_sent_by_run(client: Address, server: Address) -> bool:
    """Return whether a process of a run holds the client's end of a connection, or nobody does any more."""
    found = _find_socket(client, server)
    if found is None:
        return _is_own_address(client[0])  # else of another machine
    if not found.inode:
        return True
    of_runs, others = split_processes()
    if not of_runs or any(_holds_socket(pid, found.inode) for pid in others):
        return False
    if not any(_is_unreadable(pid, found.user) for pid in others):
        return True
    return _may_be_held(of_runs, found.inode)


def _may_be_held(of_runs: set[int], inode: int) -> bool:
    """Return whether a process of a run holds the socket, may not be read, or could have passed it on meanwhile."""
    for _ in range(MAX_ROUNDS):
        if any(_holds_socket(pid, inode, by_thread=True) is not False for pid in of_runs):
            return True
        before, (of_runs, _) = of_runs, split_processes()
        if of_runs == before:
            return False
    return True


# -- the connection --------------------------------------------------------------------------------


class _OpenSocket(NamedTuple):
    """A socket of this machine."""

    inode: int
    """0: no process has it any more."""
    user: int


def _find_socket(client: Address, server: Address) -> _OpenSocket | None:
    """Return the client's end of a connection; None if it is not on this machine, or fully closed."""
    for table in _TABLES:
        ends = " ".join(_format_end(*end, is_wide=table.endswith("6")) for end in (client, server))
        with suppress(OSError):
            rows = Path(table).read_text(encoding="ascii").splitlines()
            for row in rows:
                if ends in row:
                    fields = row.split()
                    return _OpenSocket(inode=int(fields[9]), user=int(fields[7]))
    return None


def _format_end(host: str, port: int, *, is_wide: bool) -> str:
    """Return an address and a port as a table has them, wide for IPv6 sockets."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    words = "".join(f"{word:08X}" for (word,) in struct.iter_unpack("=I", address.packed))
    return f"{_MAPPED if is_wide and address.version == 4 else ''}{words}:{port:04X}"  # noqa: PLR2004


def _is_own_address(host: str) -> bool:
    """Return whether an address is one of this machine: only those can be bound."""
    address = ip_address(host.partition("%")[0])
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET  # noqa: PLR2004
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


# -- the processes ---------------------------------------------------------------------------------


def _holds_socket(pid: int, inode: int, *, by_thread: bool = False) -> bool | None:
    """Return whether a process holds a socket; None if it may not be read. Threads need not share descriptors."""
    wanted = f"socket:[{inode}]"
    try:
        folders = _list_folder(f"/proc/{pid}/task") if by_thread else [f"/proc/{pid}"]
        return any(wanted in _read_links(f"{folder}/fd") for folder in folders)
    except PermissionError:
        return None
    except (FileNotFoundError, ProcessLookupError):
        return False


def _read_links(folder: str) -> Iterator[str]:
    """Yield what descriptors refer to.

    Raises:
        OSError: the process may not be read, or is gone.
    """
    for path in _list_folder(folder):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield os.readlink(path)  # noqa: PTH115 - a link to no path


def _list_folder(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.path for entry in entries]


def _is_unreadable(pid: int, user: int) -> bool:
    """Return whether a process of this user may not be read, such as the end of an SSH tunnel."""
    return not os.access(f"/proc/{pid}/fd", os.R_OK) and f"\nUid:\t{user}\t".encode() in read_proc_file(
        f"/proc/{pid}/status"
    )
