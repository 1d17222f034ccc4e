"""The watchdog: outlives a killed Retinue just long enough to kill every process that Retinue had started.

A program of its own, run as `python -I -S watchdog_main.py INSTANCE PARENT [CGROUP]`; it imports nothing of Retinue.
It waits until its parent ends or releases it. It kills only processes with the instance's marker in their
environment or in the instance's control group; where /proc is missing, the process groups of the reported children.
"""

from __future__ import annotations

# ruff: noqa: PTH106, PTH110, PTH123, PTH208, SIM105
# pathlib and contextlib would double its start-up time
import os
import select
import signal
import sys
import time

RELEASE_BYTE = b"."
"""The line that ends it without killing anything."""
KILL_TIMEOUT = 2.0
"""Seconds for the killed processes to disappear."""
KILL_INTERVAL = 0.01
"""Seconds between two scans."""
QUIET_ROUNDS = 3
"""Scans in a row that must find nothing: a process in the middle of an exec shows no environment."""
IGNORED_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
"""Ignored, because it ends with its parent and not before."""


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
    """Track the parent's children until the parent is gone; return True if the parent released the watchdog."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    # The pipe alone is not enough: a fork of the parent without an exec keeps its other end open, too.
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


def kill_all(marker: bytes, children: set[int], cgroup: str) -> bool:
    """Send SIGKILL to all remaining processes; return whether there were any."""
    if cgroup:
        kill_cgroup(cgroup)
    if not os.path.exists("/proc/self/environ"):
        return kill_process_groups(children)
    marked = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if has_marker(pid, marker)]
    for pid in marked:
        end = open_pidfd(pid)
        # Checked again: only now is it certain that the pid is the process we signal.
        if end and has_marker(pid, marker):
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
    """Remove the group if it is empty; return whether it is gone."""
    if not cgroup:
        return True
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            pass
    return not os.path.exists(cgroup)


def has_marker(pid: int, marker: bytes) -> bool:
    """Return whether a live process, other than this one, has the marker in its environment."""
    if pid == os.getpid():
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return marker in file.read()
    except OSError:
        return False


def open_pidfd(pid: int) -> int:
    """Return a descriptor bound to this process, even if its pid is reused; 0 if there is none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
