"""Our end of the guardian: starts it, tells it of children, sends it away."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import anyio

from retinue.engines.process.exits import wait_exit
from retinue.engines.process.watchdog_main import IGNORED_SIGNALS, KILL_TIMEOUT, RELEASE_BYTE

WATCHDOG_PROGRAM = Path(__file__).with_name("watchdog_main.py")
EXIT_TIMEOUT = KILL_TIMEOUT + 1.0
"""Seconds it has to go when sent away: it may have to end others first."""


class WatchdogProcess:
    """A guardian at work. Its pipe is ours alone: when we die it closes, and the guardian does what it is for."""

    def __init__(self, mark: str, cgroup: Path | None, environ: dict[str, str]) -> None:
        """Starts it.

        Raises:
            OSError: it could not be started.
        """
        arguments = [mark, str(os.getpid()), *([str(cgroup)] if cgroup else [])]
        reading, self._pipe = os.pipe()
        # It inherits what is blocked now, so that no signal ends it before it has begun to ignore them.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name) for name in IGNORED_SIGNALS])
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", str(WATCHDOG_PROGRAM), *arguments],
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
        os.set_blocking(self._pipe, False)

    def is_gone(self) -> bool:
        """Whether somebody ended it."""
        return self._process.poll() is not None

    def send(self, line: bytes) -> None:
        # A guardian that is stopped or gone must not stop us: the marks say the same.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._pipe, line + b"\n")

    def close(self) -> None:
        os.close(self._pipe)

    async def stop(self, children: Collection[int]) -> None:
        """Lets it go and waits for it. While there are children, it ends them first."""
        if not children:
            self.send(RELEASE_BYTE)
        self.close()
        with anyio.move_on_after(EXIT_TIMEOUT):
            await wait_exit(self._process)
        self._process.kill()
        self._process.wait()
