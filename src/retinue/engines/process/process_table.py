"""Reads the processes of this machine and signals them. Part of the watchdog: stdlib only, and light.

Processes are given as the fields of /proc/PID/stat after the name, by pid.
"""

from __future__ import annotations

# ruff: noqa: PTH123, PTH208
# pathlib is slow to import
import os

TYPE_CHECKING = False
"""As in typing, which is slow to import."""
if TYPE_CHECKING:
    import signal

    Table = dict[int, list[bytes]]
else:
    import _signal as signal  # without the enumerations, which take most of the time to import

STATE, PARENT, GROUP, SESSION, START = 0, 1, 2, 3, 19
"""Indexes of fields."""
DEAD_STATES = (b"Z", b"X", b"x")


def read_table() -> Table:
    """Return all processes."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return {pid: fields for pid in pids if (fields := read_stat(pid))}


def list_live(pids: set[int], table: Table) -> Table:
    """Return those of these processes that have not exited."""
    return {pid: table[pid] for pid in pids if table[pid][STATE] not in DEAD_STATES}


def add_descendants(pids: set[int], table: Table) -> set[int]:
    """Return these processes and all that descend from them."""
    found = set(pids)
    while more := {pid for pid, fields in table.items() if int(fields[PARENT]) in found} - found:
        found |= more
    return found


def signal_processes(processes: Table, number: int) -> None:
    """Signal these processes and their process groups, which the kernel does at one moment."""
    groups = {0, os.getpgrp()}  # 0: in no group that this process can see
    for pid, fields in processes.items():
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # Read again: from now on it is certain that the pid is the process that was listed.
            now = read_stat(pid)
            if now[START : START + 1] == fields[START : START + 1]:
                signal.pidfd_send_signal(descriptor, number)
                if (group := int(now[GROUP])) not in groups:
                    groups.add(group)
                    os.killpg(group, number)
        except OSError:
            pass
        finally:
            os.close(descriptor)


def read_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name; none if there is no such process."""
    text = read_file(f"/proc/{pid}/stat")
    return text[text.rfind(b")") + 2 :].split()


def read_file(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""


def write_file(path: str, text: str) -> bool:
    """Write to a file of the kernel that exists; return whether it accepted the text."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, text.encode())
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
