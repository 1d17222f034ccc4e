"""The end of a child of ours: awaited without reaping it, so that its number stays its own until we let go."""

from __future__ import annotations

import os
import subprocess

import anyio

from retinue.model.results import ProcessEnd

POLL_INTERVALS = (0.001, 0.05)
"""Seconds between two looks where an end cannot be waited for: the first and the longest."""


async def wait_exit(process: subprocess.Popen[bytes]) -> ProcessEnd:
    """How the process itself ended, whoever holds its pipes."""
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
    """The same where there are no process descriptors: looks again and again, less and less often."""
    pause, longest = POLL_INTERVALS
    while (end := read_exit(process)) is None:
        await anyio.sleep(pause)
        pause = min(2 * pause, longest)
    return end


def read_exit(process: subprocess.Popen[bytes]) -> ProcessEnd | None:
    """How it ended, None while it runs; nothing known if somebody else waited for it."""
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
