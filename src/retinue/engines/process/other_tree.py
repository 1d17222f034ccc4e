"""The tree of a child where processes cannot be held (macOS and others): found with `ps`, signalled by number."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence

import anyio
import anyio.to_thread

from retinue.engines.process.linux_tree import ProcessHandle, add_descendants

POLL_INTERVAL = 0.02
"""Seconds between two looks: nothing tells us when a process that is not our child ends."""


class PidHandle:
    """A process known by its number alone."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)

    def close(self) -> None:
        """Nothing is held."""


class GroupTree:
    """Finds members by process group and by parents."""

    def __init__(self) -> None:
        self._root = 0

    def launch(
        self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], *, late_fork: bool = False
    ) -> Sequence[str]:
        return argv

    def set_root(self, process: subprocess.Popen[bytes]) -> None:
        self._root = process.pid

    async def enter_cgroup(self) -> None:
        """There is nothing to put it into."""

    async def list_live(self) -> Sequence[ProcessHandle]:
        output = await anyio.to_thread.run_sync(_list_processes)
        return [PidHandle(pid) for pid in sorted(self._find_pids(output))]

    async def wait_until_gone(self, handles: Sequence[ProcessHandle]) -> None:
        await anyio.sleep(POLL_INTERVAL)

    def kill_all(self) -> None:
        """There is no stroke that reaches more than the signals do."""

    async def close(self) -> None:
        """Nothing was made for it."""

    def _find_pids(self, output: str) -> set[int]:
        parents: dict[int, int] = {}
        found = {self._root}
        dead: set[int] = set()
        for line in output.splitlines():
            pid, parent, group, state = line.split(None, 3)
            parents[int(pid)] = int(parent)
            if int(group) == self._root:
                found.add(int(pid))
            if state.startswith("Z"):
                dead.add(int(pid))
        return (add_descendants(found, parents) & parents.keys()) - dead


class TaskkillHandle:
    """A Windows process that is ended with everything below it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid

    def signal(self, number: int) -> None:
        _run_command("taskkill", "/PID", str(self.pid), "/T", "/F")

    def close(self) -> None:
        """Nothing is held."""


class TaskkillTree:
    """Knows the child alone: below one that ended by itself, nothing can be found."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def launch(
        self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], *, late_fork: bool = False
    ) -> Sequence[str]:
        return argv

    def set_root(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    async def enter_cgroup(self) -> None:
        """There is nothing to put it into."""

    async def list_live(self) -> Sequence[ProcessHandle]:
        return [TaskkillHandle(self._process)] if self._process and self._process.poll() is None else []

    async def wait_until_gone(self, handles: Sequence[ProcessHandle]) -> None:
        await anyio.sleep(POLL_INTERVAL)

    def kill_all(self) -> None:
        """There is no stroke that reaches more than the signals do."""

    async def close(self) -> None:
        """Nothing was made for it."""


def _list_processes() -> str:
    """What `ps` says; empty where it cannot be started."""
    return _run_command("ps", "-axo", "pid=,ppid=,pgid=,stat=")


def _run_command(*argv: str) -> str:
    try:
        # Started here and not as a child: it is over before anyone could want to end it.
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return ""
    return done.stdout
