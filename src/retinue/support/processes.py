"""Read processes on Linux, and find out whether one belongs to a run: what an agent starts must not act as the user.

A process of a run is below the watchdog of a Retinue, which adopts orphans; or in the control group of a run; or it
or one above it was started with the marker of a child. It can clear its environment, start its own session and lose
its parents, and is still recognized. A process that only looks like a watchdog takes rights from those below it.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
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


# -- the processes of runs ----------------------------------------------------------------------------


INSTANCE_VARIABLE = "RETINUE_INSTANCE"
"""Environment variable with the markers of all Retinue instances a process runs under, the outermost first."""
CHILD_VARIABLE = "RETINUE_CHILD"
"""Environment variable with the markers of the children a process descends from, the outermost first."""
WATCHDOG_OPTIONS = ("-I", "-S", "-c")
"""The options of the interpreter that runs a watchdog; its program follows."""
WATCHDOG_MODULE = "watchdog_main"
"""A name in the program of every watchdog."""
CGROUP_PREFIX = "retinue-"
"""Start of the name of an instance's control group; the instance's marker follows."""
RUN_PROCESSES_KNOWN = sys.platform == "linux"
"""False on systems where no process of a run can be recognized."""

MAX_WALKS = 16
"""Attempts to read the processes above one: they may exit meanwhile, and those below them are adopted."""
MAX_ANCESTORS = 4096
_in_run_group = re.compile(rb"/%s[0-9a-f]{32}(?:/|$)" % CGROUP_PREFIX.encode(), re.MULTILINE).search


def is_run_process(pid: int) -> bool:
    """Return whether a process, this one included, belongs to a run of any Retinue; one that is gone counts as such.

    Raises:
        OSError: no descriptor is left to read /proc with.
    """
    if not RUN_PROCESSES_KNOWN:
        return False
    for _ in range(MAX_WALKS):
        if (found := _walk_up(pid)) is not None:
            return found
    return True


def split_processes() -> tuple[set[int], set[int]]:
    """Return the live processes that belong to a run of any Retinue, and all others.

    Raises:
        OSError: no descriptor is left to read /proc with.
    """
    table = [process for process in list_processes() if not process.is_dead]
    parents = {process.pid: process.parent for process in table}
    watchdogs = {pid for pid in parents if _is_watchdog(pid)}
    roots = {pid for pid, parent in parents.items() if parent in watchdogs or _has_mark(pid)}
    of_runs = add_descendants(roots, parents)
    return of_runs, parents.keys() - of_runs


def _walk_up(pid: int) -> bool | None:
    """Return whether a process or one above it belongs to a run; None if one of them exited meanwhile."""
    process = read_process(pid)
    if process is None or _has_mark(pid):
        return True
    for _ in range(MAX_ANCESTORS):
        if process.parent == 0:
            return False  # init, or the first process of a container
        parent = read_process(process.parent)
        found = parent is not None and (_is_watchdog(parent.pid) or _has_mark(parent.pid))
        # Only now is it certain that what was read is of this parent, and not of another process with its pid.
        if not _has_same_parent(process):
            return None
        if found:
            return True
        if parent is None:
            return False  # hidden: /proc may show a user's own processes only
        process = parent
    return True


def _has_same_parent(seen: ProcInfo) -> bool:
    now = read_process(seen.pid)
    return now is not None and (now.start, now.parent) == (seen.start, seen.parent)


def _has_mark(pid: int) -> bool:
    """Return whether a process is in the control group of a run, or was started with the marker of a child."""
    if _in_run_group(read_proc_file(f"/proc/{pid}/cgroup")):
        return True
    environ = b"\0" + read_environ(pid)
    return b"\0%s=" % CHILD_VARIABLE.encode() in environ


def _is_watchdog(pid: int) -> bool:
    """Return whether a process was started as a watchdog: what it was started with, it cannot be made to change."""
    arguments = read_proc_file(f"/proc/{pid}/cmdline").split(b"\0")[1 : len(WATCHDOG_OPTIONS) + 2]
    options = [option.encode() for option in WATCHDOG_OPTIONS]
    return arguments[:-1] == options and WATCHDOG_MODULE.encode() in arguments[-1]


def find_program(name: str, search_path: str | None) -> str | None:
    """Return the path of a program; None if no absolute folder of the search path has it.

    Empty and relative folders of a search path mean the working directory.
    """
    import shutil

    folders = (os.defpath if search_path is None else search_path).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(folder for folder in folders if Path(folder).is_absolute()))
