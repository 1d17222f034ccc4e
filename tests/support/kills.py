"""Kill a busy Retinue at a random moment, and find what it leaves behind."""

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from msgspec import Struct

from retinue.support.processes import list_processes

END_TIMEOUT = 10.0
"""Seconds for everything to end."""
MAX_DELAY = 0.8
"""Seconds from the start of the first child to the latest kill."""


class KillOutcome(Struct, frozen=True):
    left: tuple[int, ...]
    """Processes that are still running."""
    started: int
    """Processes with its mark that were running when it was killed."""
    seconds: float
    """From the kill until nothing was left."""


def kill_busy_parent(kind: str, seed: int) -> KillOutcome:
    """Start a Retinue, kill it with SIGKILL at a moment that depends on the seed, and wait for its processes."""
    chance = random.Random(seed)
    duration = f"{chance.randrange(10**5, 10**6)}.{os.getpid()}{seed}"
    command = [sys.executable, "-m", "tests.support.killed_parent", kind, str(seed), duration]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as parent:
        assert parent.stdout
        watchdog = os.pidfd_open(int(parent.stdout.readline()))
        time.sleep(chance.uniform(0, MAX_DELAY))
        started = find_processes(duration)
        parent.kill()
        killed = time.monotonic()
        wait_readable(watchdog, END_TIMEOUT)
        os.close(watchdog)
        parent.wait()
    left = find_processes(duration)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return KillOutcome(tuple(sorted(left)), len(started), time.monotonic() - killed)


def wait_readable(descriptor: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def find_processes(argument: str) -> set[int]:
    """Return the live processes that have this text in their arguments."""
    found = set()
    for process in list_processes():
        try:
            arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if argument.encode() in arguments and b"killed_parent" not in arguments and not process.is_dead:
            found.add(process.pid)
    return found
