"""The process tree of a child on Linux: found in /proc and control groups, signalled through pidfds."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Protocol

import anyio

from retinue.engines.process.cgroups import ControlGroup
from retinue.support.processes import (
    ProcInfo,
    add_descendants,
    list_processes,
    read_environ,
    read_proc_file,
    read_process,
)

MAX_HANDLES = 256
"""Processes opened together: each costs a descriptor until it is gone."""
RESCAN_INTERVALS = (0.001, 0.004, 0.01)
"""Seconds in which an exec is complete."""
INIT_PID = 1
"""Parent of all orphans: being its child proves nothing."""
NO_PID = -1
"""Pid of no process."""
_KTHREADD_PID = 2
"""Pid of the parent of all kernel threads."""


class ProcessHandle(Protocol):
    """A live process of a tree."""

    pid: int

    def signal(self, number: int) -> None:
        """Signal the process, if it still exists and may be signalled."""

    def close(self) -> None: ...


class ProcessTree(Protocol):
    """A child and all its descendants. The child itself must not be reaped before `close`."""

    def set_root(self, pid: int) -> None:
        """Set the child, immediately after it was started."""

    def forget_root(self) -> None:
        """Stop relying on the child's pid: it may be reaped by others, and reused."""

    async def list_live(self) -> Sequence[ProcessHandle]:
        """Return handles of the live processes, of some if there are very many; the caller closes each."""

    async def wait_until_gone(self, handles: Sequence[ProcessHandle]) -> None:
        """Return when they are gone, or when it is time to list them again."""

    def kill_all(self) -> None:
        """Send SIGKILL to all at once, where the system can do that."""

    async def close(self) -> None:
        """Release what was created for the tree."""


def has_marker(pid: int, marker: bytes) -> bool:
    """Return whether the environment it was started with has the marker; False for processes of other users."""
    return marker in read_environ(pid)


def is_kernel_thread(process: ProcInfo) -> bool:
    return _KTHREADD_PID in {process.pid, process.parent}


def is_in_cgroup(pid: int, name: str) -> bool:
    """Return whether a process, or a zombie before it exited, is in a control group whose path contains the name."""
    return name.encode() in read_proc_file(f"/proc/{pid}/cgroup")


class PidfdHandle:
    """A process opened by a descriptor that stays bound to it even if its pid is reused."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._descriptor, number)

    async def wait_gone(self) -> None:
        """Return when the process has exited."""
        await anyio.wait_readable(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def open_handles(pids: Iterable[int], confirm_pids: Callable[[], Container[int]]) -> list[PidfdHandle]:
    """Open processes, except those that are gone or whose pid was reused meanwhile.

    Fewer if descriptors are short.

    Raises:
        OSError: not even one could be opened.
    """
    opened: list[PidfdHandle] = []
    spare = os.open("/proc", os.O_RDONLY | os.O_CLOEXEC)  # reserved, because `confirm_pids` needs one, too
    try:
        for pid in pids:
            try:
                opened.append(PidfdHandle(pid, os.pidfd_open(pid)))
            except ProcessLookupError:
                continue
            except OSError:
                if not opened:
                    raise
                break
    finally:
        os.close(spare)
    # Only from here on is each pid bound to the process we would signal: confirmed now, confirmed for good.
    confirmed = confirm_pids()
    for handle in opened:
        if handle.pid not in confirmed:
            handle.close()
    return [handle for handle in opened if handle.pid in confirmed]


class LinuxProcessTree:
    """Finds processes by control group, marker, session and parents, and orphans by their new parent."""

    def __init__(
        self, marker: str, cgroup: ControlGroup | None = None, find_adopter: Callable[[], int | None] = lambda: None
    ) -> None:
        """`find_adopter` returns the process whose children are all of this tree, as long as there is one."""
        self._marker = marker.encode()
        self._cgroup = cgroup
        self._find_adopter = find_adopter
        self._root = ProcInfo(0, 0, 0, 0, 0, is_dead=True)

    def set_root(self, pid: int) -> None:
        # A child that was not reaped keeps its pid, dead or alive.
        self._root = read_process(pid) or ProcInfo(pid, 0, pid, pid, 0, is_dead=True)

    def forget_root(self) -> None:
        self._root = self._root._replace(pid=NO_PID)
        self._find_adopter = lambda: None

    async def list_live(self) -> Sequence[ProcessHandle]:
        # In this order: a child that is inside now has nothing outside, and is itself listed inside while it lives.
        is_sealed = self._is_sealed()
        inside = self._cgroup.list_pids() if self._cgroup else set()
        seen = () if is_sealed else await self._scan()
        found = {process.pid: process for process in seen if process.pid not in inside}
        pids = [*sorted(inside), *sorted(found)][:MAX_HANDLES]
        return open_handles(pids, lambda: self._confirm_pids(found.values())) if pids else []

    async def wait_until_gone(self, handles: Sequence[ProcessHandle]) -> None:
        for member in handles:
            if isinstance(member, PidfdHandle):
                await member.wait_gone()

    def kill_all(self) -> None:
        if self._cgroup:
            self._cgroup.kill()

    async def close(self) -> None:
        if self._cgroup:
            await self._cgroup.remove()

    def _is_sealed(self) -> bool:
        """Return whether no process of the tree is outside its control group: the child was started inside."""
        return self._cgroup is not None and is_in_cgroup(self._root.pid, self._cgroup.folder.name)

    async def _scan(self) -> list[ProcInfo]:
        """Return the processes found in /proc; scan again if none is found and some show no environment yet."""
        for pause in RESCAN_INTERVALS:
            table = [each for each in list_processes() if each.start >= self._root.start and not each.is_dead]
            if (found := self._select_processes(table)) or all(map(_has_environ, table)):
                return found
            await anyio.sleep(pause)
        return []

    def _select_processes(self, table: list[ProcInfo]) -> list[ProcInfo]:
        found = {process.pid for process in table if self._belongs_to_tree(process)}
        if adopter := self._find_adopter():
            found |= {process.pid for process in table if process.parent == adopter}
        found = add_descendants(found | {self._root.pid}, {process.pid: process.parent for process in table})
        return [process for process in table if process.pid in found]

    def _confirm_pids(self, found: Iterable[ProcInfo]) -> set[int]:
        inside = self._cgroup.list_pids() if self._cgroup else set()
        return inside | {process.pid for process in found if self._is_same_process(process)}

    def _belongs_to_tree(self, process: ProcInfo) -> bool:
        return process.session == self._root.pid or has_marker(process.pid, self._marker)

    def _is_same_process(self, seen: ProcInfo) -> bool:
        now = read_process(seen.pid)
        if now is None or now.is_dead or now.start != seen.start:
            return False
        # Started in the same tick is no proof yet: the evidence it was found by must still hold.
        return self._belongs_to_tree(now) or now.parent == seen.parent != INIT_PID


def _has_environ(process: ProcInfo) -> bool:
    """Return whether a process shows its environment, or never will: kernel threads and processes of other users."""
    if is_kernel_thread(process) or not os.access(f"/proc/{process.pid}/environ", os.R_OK):
        return True
    return bool(read_environ(process.pid))
