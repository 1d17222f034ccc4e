"""The watchdog process where processes have no descriptors, as seen by Retinue."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio

from retinue.engines.process.group_watchdog_main import IGNORED_SIGNALS, KILL_TIMEOUT, RELEASE_BYTE
from retinue.engines.process.started_process import wait_popen

PROGRAM = Path(__file__).with_name("group_watchdog_main.py")
EXIT_TIMEOUT = KILL_TIMEOUT + 1.0
"""Seconds the watchdog has to exit when it is stopped: it may have to kill others first."""


class GroupWatchdog:
    """The running `group_watchdog_main.py`. Its pipe closes when this process dies; it then kills the children."""

    def __init__(self, environ: dict[str, str]) -> None:
        """Start the watchdog.

        Raises:
            OSError: it could not be started.
        """
        reading, self._pipe = os.pipe()
        # It inherits the blocked signals, so that none ends it before it ignores them.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name) for name in IGNORED_SIGNALS])
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", str(PROGRAM), str(os.getpid())],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environ,
                start_new_session=True,
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            os.close(reading)
        self.pid = self._process.pid
        self._children: set[int] = set()
        os.set_blocking(self._pipe, False)

    def is_gone(self) -> bool:
        """Return whether the watchdog was killed."""
        return self._process.poll() is not None

    def add_child(self, pid: int) -> None:
        self._children.add(pid)
        self._send(b"+%d" % pid)

    def remove_child(self, pid: int) -> None:
        """Remove a reaped child: its pid may be reused from now on."""
        self._children.discard(pid)
        self._send(b"-%d" % pid)

    def take_over(self, other: GroupWatchdog) -> None:
        """Watch the children of another, which was killed."""
        for pid in other._children:
            self.add_child(pid)

    def _send(self, line: bytes) -> None:
        # A watchdog that is stopped or gone must not block this process.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._pipe, line + b"\n")

    def close(self) -> None:
        """Release a watchdog that is gone."""
        os.close(self._pipe)

    async def stop(self) -> None:
        """Stop the watchdog and wait for it. If there are children, it kills them first."""
        if not self._children:
            self._send(RELEASE_BYTE)
        os.close(self._pipe)
        with anyio.move_on_after(EXIT_TIMEOUT):
            await wait_popen(self._process)
        self._process.kill()
        self._process.wait()
