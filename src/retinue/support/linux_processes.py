"""Read processes from /proc on Linux."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

MAX_ENVIRON_BYTES = 8 * 2**20
"""Bytes read of one environment: the kernel allows less."""
RESOURCE_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of this process, not of the one being read: these must not be mistaken for its absence."""
MAX_PROC_BYTES = 64 * 2**10
"""Enough for nearly every environment."""
CPU_FIELDS = slice(11, 15)
"""Where /proc/PID/stat has the ticks of user and system time, its own and of those it waited for."""
_DEAD_STATES = frozenset({b"Z", b"X", b"x"})


class ProcInfo(NamedTuple):
    """One process at one moment. Pid and start time together identify one process."""

    pid: int
    parent: int
    group: int
    session: int
    start: int
    """Clock ticks since the machine started."""
    is_dead: bool
    """True for a zombie: exited, not yet reaped by its parent."""


def read_process(pid: int) -> ProcInfo | None:
    """Return the entry of a process; None if there is none with this pid."""
    fields = read_stat_fields(pid)
    if len(fields) < 20:  # noqa: PLR2004 - the start is the 20th after the name
        return None
    parent, group, session, start = (int(fields[i]) for i in (1, 2, 3, 19))
    return ProcInfo(pid, parent, group, session, start, fields[0] in _DEAD_STATES)


def list_processes() -> Iterator[ProcInfo]:
    """Yield all visible processes, zombies included. Takes a few milliseconds for hundreds."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        if process := read_process(pid):
            yield process


def add_descendants(roots: set[int], parents: Mapping[int, int]) -> set[int]:
    """Return the roots and all their descendants."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, unseen = set(roots), list(roots)
    while unseen:
        new = [pid for pid in children.get(unseen.pop(), ()) if pid not in found]
        found.update(new)
        unseen += new
    return found


def read_environ(pid: int) -> bytes:
    """Return the environment a process was started with; empty in the middle of an exec."""
    environ = read_proc_file(f"/proc/{pid}/environ", MAX_PROC_BYTES)
    return environ if len(environ) < MAX_PROC_BYTES else read_proc_file(f"/proc/{pid}/environ", MAX_ENVIRON_BYTES)


def read_stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name; empty if there is no such process."""
    text = read_proc_file(f"/proc/{pid}/stat", 1024)
    # The name is in parentheses and may contain spaces and parentheses itself.
    return text[text.rfind(b")") + 2 :].split(None, 20)


def read_usage(pid: int) -> tuple[float, int] | None:
    """Return the CPU seconds of a live process and of the descendants it waited for, and the most bytes it had.

    None if it is gone.
    """
    fields, status = read_stat_fields(pid), read_proc_file(f"/proc/{pid}/status")
    peak = next((line for line in status.splitlines() if line.startswith(b"VmHWM:")), None)
    if not fields or peak is None:
        return None
    ticks = sum(map(int, fields[CPU_FIELDS]))
    return ticks / os.sysconf("SC_CLK_TCK"), 1024 * int(peak.split()[1])


def read_proc_file(path: str, max_bytes: int = MAX_PROC_BYTES) -> bytes:
    """Return the start of a file in /proc; empty if it may not be read or its process is gone.

    Raises:
        OSError: no descriptor is left to read it with.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in RESOURCE_ERRNOS:
            raise
        return b""
    try:
        return os.read(descriptor, max_bytes)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
