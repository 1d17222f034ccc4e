"""The process tree of a child where there are no pidfds: macOS, Windows and old kernels.

Processes are listed in /proc where it exists, else with psutil, which is installed on those systems only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from retinue.engines.process.linux_tree import ProcessHandle
from retinue.support.processes import ProcInfo, add_descendants, list_processes

if TYPE_CHECKING:
    import psutil

POLL_INTERVAL = 0.02
"""Seconds between two scans: the system does not report the exit of a process that is not our child."""


class _PolledTree:
    """The parts of a tree without control groups and without notification of exits."""

    async def wait_until_gone(self, handles: Sequence[ProcessHandle]) -> None:
        await anyio.sleep(POLL_INTERVAL)

    def kill_all(self) -> None:
        """Do nothing: no call reaches more processes than the signals do."""

    def forget_root(self) -> None:
        """Do nothing: the child is our own."""

    async def close(self) -> None:
        """Do nothing: nothing was created."""


class PidHandle:
    """A process known by its pid alone."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)

    def close(self) -> None:
        """Do nothing: no descriptor is open."""


class GroupTree(_PolledTree):
    """Finds processes by process group and by parents."""

    def __init__(self) -> None:
        self._root = 0

    def set_root(self, pid: int) -> None:
        self._root = pid

    async def list_live(self) -> Sequence[ProcessHandle]:
        table = await anyio.to_thread.run_sync(_list_processes)
        return [PidHandle(pid) for pid in sorted(select_group(self._root, table))]


def select_group(root: int, table: Iterable[ProcInfo]) -> set[int]:
    """Return the live processes in the group of the root and all their descendants."""
    processes = {process.pid: process for process in table}
    members = {root, *(pid for pid, process in processes.items() if process.group == root)}
    found = add_descendants(members, {pid: process.parent for pid, process in processes.items()})
    return {pid for pid in found if pid in processes and not processes[pid].is_dead}


def _list_processes() -> list[ProcInfo]:
    if Path("/proc/self/stat").exists():
        return list(list_processes())
    return _list_with_psutil()


def _list_with_psutil() -> list[ProcInfo]:
    import psutil

    found = []
    for process in psutil.process_iter(["ppid", "status"]):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            group = os.getpgid(process.pid)
            is_dead = process.info["status"] == psutil.STATUS_ZOMBIE
            found.append(ProcInfo(process.pid, process.info["ppid"] or 0, group, 0, 0, is_dead))
    return found


class PsutilHandle:
    """A Windows process; psutil checks that its pid was not reused."""

    def __init__(self, process: psutil.Process) -> None:
        self.pid = process.pid
        self._process = process

    def signal(self, number: int) -> None:
        import psutil

        with contextlib.suppress(psutil.Error):
            self._process.kill()

    def close(self) -> None:
        """Do nothing: psutil closes its handles."""


class WindowsTree(_PolledTree):
    """Finds processes by parents; a process stays in the tree after its parent exited, if it was found before."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}

    def set_root(self, pid: int) -> None:
        import psutil

        with contextlib.suppress(psutil.Error):
            self._processes[pid] = psutil.Process(pid)

    async def list_live(self) -> Sequence[ProcessHandle]:
        return await anyio.to_thread.run_sync(self._list_live_sync)

    def _list_live_sync(self) -> list[ProcessHandle]:
        import psutil

        for process in list(self._processes.values()):
            with contextlib.suppress(psutil.Error):
                self._processes |= {child.pid: child for child in process.children(recursive=True)}
        return [PsutilHandle(process) for process in self._processes.values() if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
