"""The processes that a Retinue has started: its watchdog, and the children of that."""

from __future__ import annotations

from retinue.support.processes import WATCHDOG_MODULE, list_processes, read_proc_file


def find_watchdog(retinue: int) -> int:
    """Return the pid of the watchdog of a Retinue, which has one."""
    (found,) = [
        each.pid
        for each in list_processes()
        if each.parent == retinue and WATCHDOG_MODULE.encode() in read_proc_file(f"/proc/{each.pid}/cmdline")
    ]
    return found


def find_children(parent: int) -> list[int]:
    """Return the live children of a process."""
    return [each.pid for each in list_processes() if each.parent == parent and not each.is_dead]
