"""Find out whether a process belongs to a run: what an agent starts must not act as the user. Linux only.

A process of a run is below the watchdog of a Retinue, which adopts orphans; or in the control group of a run; or it
or one above it was started with the marker of a child. It can clear its environment, start its own session and lose
its parents, and is still recognized. A process that only looks like a watchdog takes rights from those below it.
"""

from __future__ import annotations

import re
import sys

from retinue.support.linux_processes import (
    ProcInfo,
    add_descendants,
    list_processes,
    read_environ,
    read_proc_file,
    read_process,
)

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
