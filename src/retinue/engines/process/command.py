"""The description of a program to start."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class StdinMode(StrEnum):
    PIPE = "pipe"
    CLOSED = "closed"
    """/dev/null: some agents wait for the end of an open pipe before they start."""


class ChildCommand(Struct, frozen=True, kw_only=True):
    """A program to start."""

    argv: tuple[str, ...]
    cwd: str
    environ: Mapping[str, str]
    """The complete environment; two markers are added."""
    stdin: StdinMode = StdinMode.CLOSED
    companions: int = 0
    """Descendants that belong to the program as it is started, such as those of a sandbox; they are not counted."""
    private_streams: bool = False
    """True if stdin and stdout carry its protocol: they are then sockets, which nothing can open in /proc/PID/fd.
    A shell script needs pipes, because it cannot open /dev/stdout then. Without a watchdog they are pipes."""
    sandbox: Mapping[str, object] | None = None
    """JSON object for `landlock.apply_sandbox`, called in the child immediately before it becomes the program."""
    limits: Mapping[str, int] = {}
    """Limits on what its processes use together, by name: `max_memory_bytes`, `max_processes`, `max_disk_bytes`."""
    run: str = ""
    """The limits are for all commands of one run together; empty: for this command alone."""
    pass_fds: tuple[int, ...] = ()
    """Descriptors that the child inherits under the same numbers. The caller closes them."""
