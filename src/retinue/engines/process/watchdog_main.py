"""Outlives a killed Retinue just long enough to end every process that Retinue had started.

A program of its own, run as `python -I -S guardian.py INSTANCE PARENT [CGROUP]`; it imports nothing of Retinue. It
waits for its parent to end, or to say goodbye. It ends only what carries the instance's mark in its environment or
is in the instance's control group; where /proc is missing, the process groups of the children it was told of.
"""

from __future__ import annotations

# ruff: noqa: PTH106, PTH110, PTH123, PTH208, SIM105
# pathlib and contextlib would double the time it takes to start
import os
import select
import signal
import sys
import time

RELEASE_BYTE = b"."
"""The line that ends it without ending anything else."""
KILL_TIMEOUT = 2.0
"""Given to what it ends."""
KILL_INTERVAL = 0.01
"""Seconds between two looks at what is still there."""
QUIET_ROUNDS = 3
"""Looks in a row that must find nothing: a process that is becoming another program shows no environment."""
IGNORED_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
"""It ends with its parent, not before."""


def main(instance: str, parent: str, cgroup: str = "") -> None:
    for name in IGNORED_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    children: set[int] = set()
    if watch_parent(int(parent), children):
        return
    deadline = time.monotonic() + KILL_TIMEOUT
    quiet = 0
    while quiet < QUIET_ROUNDS and time.monotonic() < deadline:
        is_done = not kill_all(instance.encode(), children, cgroup) and remove_cgroup(cgroup)
        quiet = quiet + 1 if is_done else 0
        time.sleep(KILL_INTERVAL)


def watch_parent(parent: int, children: set[int]) -> bool:
    """Follows which children there are until the parent is gone; True if it said goodbye."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    # The pipe alone is not enough: a fork of the parent without an exec holds its other end, too.
    if end := open_pidfd(parent):
        poll.register(end, select.POLLIN)
    rest = b""
    while os.getppid() == parent:
        ready = [descriptor for descriptor, _ in poll.poll(None if end else 1000)]
        if not ready:
            continue
        chunk = os.read(0, 65536) if 0 in ready else b""
        if not chunk:
            return False
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line == RELEASE_BYTE:
                return True
            (children.add if line[:1] == b"+" else children.discard)(int(line[1:]))
    return False


def kill_all(mark: bytes, children: set[int], cgroup: str) -> bool:
    """SIGKILL to all that is left; whether something was."""
    if cgroup:
        kill_cgroup(cgroup)
    if not os.path.exists("/proc/self/environ"):
        return kill_process_groups(children)
    marked = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if has_marker(pid, mark)]
    for pid in marked:
        end = open_pidfd(pid)
        # Asked again: only now is it sure that the number means the process we signal.
        if end and has_marker(pid, mark):
            try:
                signal.pidfd_send_signal(end, signal.SIGKILL)
            except OSError:
                pass
        if end:
            os.close(end)
    return bool(marked)


def kill_process_groups(children: set[int]) -> bool:
    for pid in list(children):
        try:
            os.killpg(pid, signal.SIGKILL)
        except OSError:
            children.discard(pid)
    return bool(children)


def kill_cgroup(cgroup: str) -> None:
    try:
        with open(cgroup + "/cgroup.kill", "w") as file:
            file.write("1")
    except OSError:
        pass


def remove_cgroup(cgroup: str) -> bool:
    """Removes the group, if it is empty by now; whether it is gone."""
    if not cgroup:
        return True
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            pass
    return not os.path.exists(cgroup)


def has_marker(pid: int, mark: bytes) -> bool:
    """Whether a living process has the mark in its environment; never this one itself."""
    if pid == os.getpid():
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read()
    except OSError:
        return False


def open_pidfd(pid: int) -> int:
    """A descriptor that means this process for ever; 0 where there is none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
