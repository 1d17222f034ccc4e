"""A process that was started: its streams, its exit, and its release. Here, one that this process started itself.

A child is awaited without being reaped, so that its pid stays its own until its tree is closed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import IO, Protocol

import anyio

from retinue.engines.process.command import StdinMode
from retinue.model.results import ProcessEnd, ProcessUsage

POLL_INTERVALS = (0.001, 0.05)
"""Seconds between two checks where an exit cannot be awaited: the first and the longest."""


class StartedProcess(Protocol):
    """A child from its start until it is released."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes]
    stderr: IO[bytes]
    exceeded: tuple[str, int] | None
    """The limit for which its processes were killed, and what they used."""
    is_lost: bool
    """True if its watchdog died before it."""
    usage: ProcessUsage | None
    """What it used until its exit; None before that, and where the system does not report it."""

    async def wait_exit(self) -> ProcessEnd:
        """Wait until the process itself exits, also while others hold its streams; empty if it is lost."""

    def has_exited(self) -> bool:
        """Return whether the process itself has exited."""

    def release(self) -> None:
        """Reap the process: its pid may be reused from now on."""


class PopenProcess:
    """A child that this process started itself."""

    is_lost = False
    exceeded: tuple[str, int] | None = None
    usage: ProcessUsage | None = None

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        assert popen.stdout
        assert popen.stderr
        self.pid = popen.pid
        self.stdin, self.stdout, self.stderr = popen.stdin, popen.stdout, popen.stderr
        self._popen = popen

    async def wait_exit(self) -> ProcessEnd:
        return await wait_popen(self._popen)

    def has_exited(self) -> bool:
        return read_exit(self._popen) is not None

    def release(self) -> None:
        self._popen.poll()


def start_popen(argv: Sequence[str], cwd: str, environ: dict[str, str], stdin: StdinMode) -> PopenProcess:
    """Start a child of this process, in a session of its own.

    Raises:
        OSError, ValueError: as raised by `subprocess.Popen`.
    """
    popen = subprocess.Popen(  # noqa: S603 - the caller decides what to run
        argv,
        bufsize=0,
        cwd=cwd,
        env=environ,
        stdin=subprocess.PIPE if stdin is StdinMode.PIPE else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
    return PopenProcess(popen)


async def wait_popen(process: subprocess.Popen[bytes]) -> ProcessEnd:
    """Wait until the process itself exits."""
    while (end := read_exit(process)) is None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            return await poll_exit(process)
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    return end


async def poll_exit(process: subprocess.Popen[bytes]) -> ProcessEnd:
    """Wait for the exit where there are no process descriptors, checking less and less often."""
    pause, longest = POLL_INTERVALS
    while (end := read_exit(process)) is None:
        await anyio.sleep(pause)
        pause = min(2 * pause, longest)
    return end


def read_exit(process: subprocess.Popen[bytes]) -> ProcessEnd | None:
    """Return how the process ended; None while it runs, an empty `ProcessEnd` if other code reaped it."""
    if process.returncode is None and hasattr(os, "waitid"):
        return _peek_exit(process.pid)
    code = process.poll()
    if code is None:
        return None
    return ProcessEnd(code=code) if code >= 0 else ProcessEnd(signal=-code)


def _peek_exit(pid: int) -> ProcessEnd | None:
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ProcessEnd()
    if found is None:
        return None
    return ProcessEnd(code=found.si_status) if found.si_code == os.CLD_EXITED else ProcessEnd(signal=found.si_status)
