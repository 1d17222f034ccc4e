"""The processes of this machine as Linux shows them in /proc: whose child, since when, with which environment."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

ENVIRON_BYTES = 8 * 2**20
"""Read of one environment at most: the kernel allows less."""
SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that say nothing about the process: not to be able to look is not to see nothing."""
_PAGE = 64 * 2**10
"""Enough for nearly every environment."""
_KERNEL = 2
"""Number of the parent of all kernel threads."""
_DEAD = frozenset({b"Z", b"X", b"x"})


class Facts(NamedTuple):
    """One process at one moment. Number and start together mean one process only, whenever they are read."""

    pid: int
    parent: int
    session: int
    start: int
    """Clock ticks since the machine started."""
    is_dead: bool
    """A zombie: ended, not yet waited for by its parent."""


def read_facts(pid: int) -> Facts | None:
    """What is known of a process; None if there is none of this number."""
    text = _read(f"/proc/{pid}/stat", 1024)
    # The name stands in parentheses and may contain spaces and parentheses itself.
    fields = text[text.rfind(b")") + 2 :].split(None, 20)
    if len(fields) < 20:  # noqa: PLR2004 - the start is the 20th after the name
        return None
    return Facts(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in _DEAD)


def processes() -> Iterator[Facts]:
    """All that can be seen, zombies included. A few milliseconds for hundreds."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        if facts := read_facts(pid):
            yield facts


def carries(pid: int, mark: bytes) -> bool:
    """Whether the environment it was started with contains the mark. Others' environments cannot be read."""
    return mark in read_environ(pid)


def read_environ(pid: int) -> bytes:
    """The environment a process was started with. Empty while it is becoming another program."""
    environ = _read(f"/proc/{pid}/environ", _PAGE)
    return environ if len(environ) < _PAGE else _read(f"/proc/{pid}/environ", ENVIRON_BYTES)


def is_kernel_thread(facts: Facts) -> bool:
    return _KERNEL in {facts.pid, facts.parent}


def has_started_nothing(pid: int) -> bool:
    """Whether a process has started no other so far: none that is there, dead or alive, and none it waited for."""
    # In this order: one that is not there by now was waited for.
    if any(facts.parent == pid for facts in processes()):
        return False
    text = _read(f"/proc/{pid}/stat", 1024)
    fields = text[text.rfind(b")") + 2 :].split(None, 11)
    # The page faults, minor and major, of those it waited for: nobody comes to an end without one.
    return len(fields) > 11 and fields[8] == fields[10] == b"0"  # noqa: PLR2004 - as proc(5) counts them


def is_in_cgroup(pid: int, name: str) -> bool:
    """Whether a process, or a zombie before it ended, is in a control group whose path contains this."""
    return name.encode() in _read(f"/proc/{pid}/cgroup", _PAGE)


def _read(path: str, most: int) -> bytes:
    """The beginning of a file of /proc; empty if it may not be read or its process is gone.

    Raises:
        OSError: there is no descriptor left to read it with.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in SHORTAGE:
            raise
        return b""
    try:
        return os.read(descriptor, most)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
