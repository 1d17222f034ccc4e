"""Everything a child has started, wherever it went: found, signalled and proven gone.

A process group is not enough: tools start their own sessions. So each child has a mark in its environment, which its
descendants inherit, and a control group where one can be made. A process is signalled through a descriptor that was
opened before it was recognised, so a number that the system gave to another process meanwhile is never hit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Protocol

import anyio
import anyio.to_thread

from retinue.engines.processes.cgroups import Cgroup
from retinue.engines.processes.launcher import becomes_no_shell, launch
from retinue.engines.processes.table import (
    Facts,
    carries,
    has_started_nothing,
    is_in_cgroup,
    is_kernel_thread,
    processes,
    read_environ,
    read_facts,
)

MOST_AT_ONCE = 256
"""Members taken in hand together: each costs a descriptor until it is gone."""
PAUSES = (0.001, 0.004, 0.01)
"""Seconds in which a process that is becoming another program has become it."""
INIT = 1
"""Parent of all that lost theirs: having it says nothing."""


class Member(Protocol):
    """A living process of a tree."""

    pid: int

    def signal(self, number: int) -> None:
        """Signals it, if it is still there and ours to signal."""

    def close(self) -> None: ...


class Tree(Protocol):
    """A child and everything that comes of it. The child itself must not be waited for before `close`."""

    def launch(
        self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], *, forks_late: bool = False
    ) -> Sequence[str]:
        """The command to run in order to start this one in the tree."""

    def take_root(self, process: subprocess.Popen[bytes]) -> None:
        """Names the child, at once after it was started."""

    async def enclose(self) -> None:
        """Puts the child where what comes of it can be found, if it is not there yet; to be run beside it."""

    async def look(self) -> Sequence[Member]:
        """Those alive now, some of them if they are very many; each is to be closed."""

    async def until_gone(self, members: Sequence[Member]) -> None:
        """Returns when they are gone, or when it is time to look again."""

    def kill_at_once(self) -> None:
        """SIGKILL to all in one stroke, where that exists."""

    async def close(self) -> None:
        """Gives back what was made for it."""


class Held:
    """A process held by a descriptor that means no other, whatever becomes of its number."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._descriptor, number)

    async def gone(self) -> None:
        """Returns when it has ended."""
        await anyio.wait_readable(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def hold(pids: Iterable[int], recognised: Callable[[], Container[int]]) -> list[Held]:
    """Takes processes in hand, save those that are gone or whose number by now is another's.

    Fewer where descriptors are short.

    Raises:
        OSError: not even one could be opened.
    """
    opened: list[Held] = []
    spare = os.open("/proc", os.O_RDONLY | os.O_CLOEXEC)  # kept back, because to recognise takes one, too
    try:
        for pid in pids:
            try:
                opened.append(Held(pid, os.pidfd_open(pid)))
            except ProcessLookupError:
                continue
            except OSError:
                if not opened:
                    raise
                break
    finally:
        os.close(spare)
    # Only from here on does a number stand for the process we would signal: recognised now, recognised for good.
    ours = recognised()
    for held in opened:
        if held.pid not in ours:
            held.close()
    return [held for held in opened if held.pid in ours]


class Orphans:
    """Processes that came to this one because their parents ended: those it did not start itself."""

    def __init__(self, children: Collection[int], started: Collection[int]) -> None:
        """Both are kept up to date by their owner: the children at work, and all that this process started."""
        self._children = children
        self._started = started

    def strays(self, table: Iterable[Facts]) -> set[int]:
        """Those who are to end with the last child: whose they were can no longer be known."""
        if len(self._children) > 1:
            return set()
        return {facts.pid for facts in table if self._is_orphan(facts)}

    def reap(self) -> None:
        """Waits for those that have ended, each by its number, so that none stays as a zombie."""
        for facts in processes():
            if facts.is_dead and self._is_orphan(facts):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(facts.pid, os.WNOHANG)

    def _is_orphan(self, facts: Facts) -> bool:
        # What other code in this program starts is in our own session; what came from a child never is.
        return facts.parent == os.getpid() and facts.pid not in self._started and facts.session != os.getsid(0)


class MarkedTree:
    """Finds members by control group, mark, session and parents. Linux."""

    def __init__(self, mark: str, cgroup: Cgroup | None = None, orphans: Orphans | None = None) -> None:
        self._mark = mark.encode()
        self._cgroup = cgroup
        self._orphans = orphans
        self._root = Facts(0, 0, 0, 0, is_dead=True)
        self._has_begun_inside = False
        """Whether the child was in its control group before it started anything."""
        self._enters_late = False

    def launch(
        self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], *, forks_late: bool = False
    ) -> Sequence[str]:
        if self._cgroup is None:
            return argv
        self._enters_late = forks_late and becomes_no_shell(argv[0], cwd, environ)
        command = None if self._enters_late else launch(argv, cwd, environ, self._cgroup.folder)
        self._has_begun_inside = command is not None
        return command or argv

    def take_root(self, process: subprocess.Popen[bytes]) -> None:
        pid = process.pid
        if self._cgroup and not (self._has_begun_inside or self._enters_late):
            self._cgroup.enter(pid)
        # A child of ours that we have not waited for has its number for itself, dead or alive.
        self._root = read_facts(pid) or Facts(pid, os.getpid(), pid, 0, is_dead=True)

    async def enclose(self) -> None:
        if self._cgroup and self._enters_late:
            # In a thread: the kernel takes as long as 25 ms, in which a program is half loaded.
            self._has_begun_inside = await anyio.to_thread.run_sync(self._entered, self._cgroup)

    async def look(self) -> Sequence[Member]:
        # In this order: a child that is inside now has nothing outside, and is itself seen inside while it lives.
        is_sealed = self._is_sealed()
        inside = self._cgroup.pids() if self._cgroup else set()
        seen = () if is_sealed else await self._find()
        found = {facts.pid: facts for facts in seen if facts.pid not in inside}
        pids = [*sorted(inside), *sorted(found)][:MOST_AT_ONCE]
        return hold(pids, lambda: self._recognised(found.values())) if pids else []

    async def until_gone(self, members: Sequence[Member]) -> None:
        for member in members:
            if isinstance(member, Held):
                await member.gone()

    def kill_at_once(self) -> None:
        if self._cgroup:
            self._cgroup.kill()

    async def close(self) -> None:
        if self._cgroup:
            await self._cgroup.remove()
        if self._orphans:
            self._orphans.reap()

    def _is_sealed(self) -> bool:
        """Whether all there ever was of this tree began inside its group."""
        if self._cgroup is None or not self._has_begun_inside:
            return False
        return is_in_cgroup(self._root.pid, self._cgroup.folder.name)

    def _entered(self, cgroup: Cgroup) -> bool:
        """Puts the child in; whether it had started nothing by then."""
        cgroup.enter(self._root.pid)
        return is_in_cgroup(self._root.pid, cgroup.folder.name) and has_started_nothing(self._root.pid)

    async def _find(self) -> list[Facts]:
        """Members seen in /proc. Where some process shows no environment, it looks again before it says none."""
        for pause in PAUSES:
            table = [facts for facts in processes() if facts.start >= self._root.start and not facts.is_dead]
            if (found := self._members(table)) or all(map(_has_environ, table)):
                return found
            await anyio.sleep(pause)
        return []

    def _members(self, table: list[Facts]) -> list[Facts]:
        found = {facts.pid for facts in table if self._belongs(facts)}
        if self._orphans:
            found |= self._orphans.strays(table)
        found = with_descendants(found | {self._root.pid}, {facts.pid: facts.parent for facts in table})
        return [facts for facts in table if facts.pid in found]

    def _recognised(self, found: Iterable[Facts]) -> set[int]:
        inside = self._cgroup.pids() if self._cgroup else set()
        return inside | {facts.pid for facts in found if self._is_same(facts)}

    def _belongs(self, facts: Facts) -> bool:
        return facts.session == self._root.pid or carries(facts.pid, self._mark)

    def _is_same(self, seen: Facts) -> bool:
        now = read_facts(seen.pid)
        if now is None or now.is_dead or now.start != seen.start:
            return False
        # Born in the same tick is not the same yet: what it was recognised by must hold still.
        return self._belongs(now) or now.parent == seen.parent != INIT


def _has_environ(facts: Facts) -> bool:
    """Whether it can be seen that a process is not ours: those of others never show theirs, and never will."""
    if is_kernel_thread(facts) or not os.access(f"/proc/{facts.pid}/environ", os.R_OK):
        return True
    return bool(read_environ(facts.pid))


def with_descendants(roots: set[int], parents: Mapping[int, int]) -> set[int]:
    """The roots, their children, and so on."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, unseen = set(roots), list(roots)
    while unseen:
        new = [pid for pid in children.get(unseen.pop(), ()) if pid not in found]
        found.update(new)
        unseen += new
    return found
