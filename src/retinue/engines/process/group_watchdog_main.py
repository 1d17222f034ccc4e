"""The watchdog where processes have no descriptors: kills the process groups of a killed Retinue's children.

A program of its own, run as `python -I -S group_watchdog_main.py PARENT`; it imports nothing of Retinue. It waits
until its parent ends or releases it. Its standard input has the children, as `+PID` and `-PID`.
"""

from __future__ import annotations

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
"""Seconds between two signals."""
PARENT_INTERVAL_MS = 1000
"""Milliseconds between two checks that the parent lives: a fork of it may keep the pipe open."""
IGNORED_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
"""Ignored, because it ends with its parent and not before."""


def main(parent: str) -> None:
    for name in IGNORED_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    children: set[int] = set()
    if watch_parent(int(parent), children):
        return
    deadline = time.monotonic() + KILL_TIMEOUT
    while kill_process_groups(children) and time.monotonic() < deadline:
        time.sleep(KILL_INTERVAL)


def watch_parent(parent: int, children: set[int]) -> bool:
    """Track the parent's children until the parent is gone; return True if the parent released the watchdog."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    rest = b""
    while os.getppid() == parent:
        if not poll.poll(PARENT_INTERVAL_MS):
            continue
        if not (chunk := os.read(0, 65536)):
            return False
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line == RELEASE_BYTE:
                return True
            (children.add if line[:1] == b"+" else children.discard)(int(line[1:]))
    return False


def kill_process_groups(children: set[int]) -> bool:
    """Send SIGKILL to the groups of all children; return whether there were any."""
    for pid in list(children):
        try:
            os.killpg(pid, signal.SIGKILL)
        except OSError:
            children.discard(pid)
    return bool(children)


if __name__ == "__main__":
    main(*sys.argv[1:])
