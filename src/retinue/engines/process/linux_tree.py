"""Find, signal and reap a process tree on Linux, through /proc and pidfds."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import anyio
import anyio.to_thread

from retinue.engines.process.cgroups import ControlGroup
from retinue.engines.process.launcher import build_launch_command, is_not_shell_script

MAX_ENVIRON_BYTES = 8 * 2**20
"""Read of one environment at most: the kernel allows less."""
RESOURCE_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that say nothing about the process: not to be able to look is not to see nothing."""
_MAX_PROC_BYTES = 64 * 2**10
"""Enough for nearly every environment."""
_KTHREADD_PID = 2
"""Number of the parent of all kernel threads."""
_DEAD_STATES = frozenset({b"Z", b"X", b"x"})


class ProcInfo(NamedTuple):
    """One process at one moment. Number and start together mean one process only, whenever they are read."""

    pid: int
    parent: int
    session: int
    start: int
    """Clock ticks since the machine started."""
    is_dead: bool
    """A zombie: ended, not yet waited for by its parent."""


def read_process(pid: int) -> ProcInfo | None:
    """What is known of a process; None if there is none of this number."""
    text = _read_proc_file(f"/proc/{pid}/stat", 1024)
    # The name stands in parentheses and may contain spaces and parentheses itself.
    fields = text[text.rfind(b")") + 2 :].split(None, 20)
    if len(fields) < 20:  # noqa: PLR2004 - the start is the 20th after the name
        return None
    return ProcInfo(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in _DEAD_STATES)


def list_processes() -> Iterator[ProcInfo]:
    """All that can be seen, zombies included. A few milliseconds for hundreds."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        if facts := read_process(pid):
            yield facts


def has_marker(pid: int, mark: bytes) -> bool:
    """Whether the environment it was started with contains the mark. Others' environments cannot be read."""
    return mark in read_environ(pid)


def read_environ(pid: int) -> bytes:
    """The environment a process was started with. Empty while it is becoming another program."""
    environ = _read_proc_file(f"/proc/{pid}/environ", _MAX_PROC_BYTES)
    return environ if len(environ) < _MAX_PROC_BYTES else _read_proc_file(f"/proc/{pid}/environ", MAX_ENVIRON_BYTES)


def is_kernel_thread(facts: ProcInfo) -> bool:
    return _KTHREADD_PID in {facts.pid, facts.parent}


def has_no_children(pid: int) -> bool:
    """Whether a process has started no other so far: none that is there, dead or alive, and none it waited for."""
    # In this order: one that is not there by now was waited for.
    if any(facts.parent == pid for facts in list_processes()):
        return False
    text = _read_proc_file(f"/proc/{pid}/stat", 1024)
    fields = text[text.rfind(b")") + 2 :].split(None, 11)
    # The page faults, minor and major, of those it waited for: nobody comes to an end without one.
    return len(fields) > 11 and fields[8] == fields[10] == b"0"  # noqa: PLR2004 - as proc(5) counts them


def is_in_cgroup(pid: int, name: str) -> bool:
    """Whether a process, or a zombie before it ended, is in a control group whose path contains this."""
    return name.encode() in _read_proc_file(f"/proc/{pid}/cgroup", _MAX_PROC_BYTES)


def _read_proc_file(path: str, max_bytes: int) -> bytes:
    """The beginning of a file of /proc; empty if it may not be read or its process is gone.

    Raises:
        OSError: there is no descriptor left to read it with.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in RESOURCE_ERRNOS:
            raise
        return b""
    try:
        return os.read(descriptor, max_bytes)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


MAX_HANDLES = 256
"""Members taken in hand together: each costs a descriptor until it is gone."""
RESCAN_INTERVALS = (0.001, 0.004, 0.01)
"""Seconds in which a process that is becoming another program has become it."""
INIT_PID = 1
"""Parent of all that lost theirs: having it says nothing."""


class ProcessHandle(Protocol):
    """A living process of a tree."""

    pid: int

    def signal(self, number: int) -> None:
        """Signals it, if it is still there and ours to signal."""

    def close(self) -> None: ...


class ProcessTree(Protocol):
    """A child and everything that comes of it. The child itself must not be waited for before `close`."""

    def launch(
        self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], *, late_fork: bool = False
    ) -> Sequence[str]:
        """The command to run in order to start this one in the tree."""

    def set_root(self, process: subprocess.Popen[bytes]) -> None:
        """Names the child, at once after it was started."""

    async def enter_cgroup(self) -> None:
        """Puts the child where what comes of it can be found, if it is not there yet; to be run beside it."""

    async def list_live(self) -> Sequence[ProcessHandle]:
        """Those alive now, some of them if they are very many; each is to be closed."""

    async def wait_until_gone(self, handles: Sequence[ProcessHandle]) -> None:
        """Returns when they are gone, or when it is time to look again."""

    def kill_all(self) -> None:
        """SIGKILL to all in one stroke, where that exists."""

    async def close(self) -> None:
        """Gives back what was made for it."""


class PidfdHandle:
    """A process held by a descriptor that means no other, whatever becomes of its number."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._descriptor, number)

    async def wait_gone(self) -> None:
        """Returns when it has ended."""
        await anyio.wait_readable(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def open_handles(pids: Iterable[int], is_recognised: Callable[[], Container[int]]) -> list[PidfdHandle]:
    """Takes processes in hand, save those that are gone or whose number by now is another's.

    Fewer where descriptors are short.

    Raises:
        OSError: not even one could be opened.
    """
    opened: list[PidfdHandle] = []
    spare = os.open("/proc", os.O_RDONLY | os.O_CLOEXEC)  # kept back, because to recognise takes one, too
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
    # Only from here on does a number stand for the process we would signal: recognised now, recognised for good.
    ours = is_recognised()
    for handles in opened:
        if handles.pid not in ours:
            handles.close()
    return [held for held in opened if held.pid in ours]


class OrphanTracker:
    """Processes that came to this one because their parents ended: those it did not start itself."""

    def __init__(self, children: Collection[int], started: Collection[int]) -> None:
        """Both are kept up to date by their owner: the children at work, and all that this process started."""
        self._children = children
        self._started = started

    def unclaimed(self, table: Iterable[ProcInfo]) -> set[int]:
        """Those who are to end with the last child: whose they were can no longer be known."""
        if len(self._children) > 1:
            return set()
        return {facts.pid for facts in table if self._is_orphan(facts)}

    def reap_exited(self) -> None:
        """Waits for those that have ended, each by its number, so that none stays as a zombie."""
        for facts in list_processes():
            if facts.is_dead and self._is_orphan(facts):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(facts.pid, os.WNOHANG)

    def _is_orphan(self, facts: ProcInfo) -> bool:
        # What other code in this program starts is in our own session; what came from a child never is.
        return facts.parent == os.getpid() and facts.pid not in self._started and facts.session != os.getsid(0)


class LinuxProcessTree:
    """Finds members by control group, mark, session and parents. Linux."""

    def __init__(self, mark: str, cgroup: ControlGroup | None = None, orphans: OrphanTracker | None = None) -> None:
        self._marker = mark.encode()
        self._cgroup = cgroup
        self._orphans = orphans
        self._root = ProcInfo(0, 0, 0, 0, is_dead=True)
        self._started_inside = False
        """Whether the child was in its control group before it started anything."""
        self._enters_late = False

    def launch(
        self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], *, late_fork: bool = False
    ) -> Sequence[str]:
        if self._cgroup is None:
            return argv
        self._enters_late = late_fork and is_not_shell_script(argv[0], cwd, environ)
        command = None if self._enters_late else build_launch_command(argv, cwd, environ, self._cgroup.folder)
        self._started_inside = command is not None
        return command or argv

    def set_root(self, process: subprocess.Popen[bytes]) -> None:
        pid = process.pid
        if self._cgroup and not (self._started_inside or self._enters_late):
            self._cgroup.add_process(pid)
        # A child of ours that we have not waited for has its number for itself, dead or alive.
        self._root = read_process(pid) or ProcInfo(pid, os.getpid(), pid, 0, is_dead=True)

    async def enter_cgroup(self) -> None:
        if self._cgroup and self._enters_late:
            # In a thread: the kernel takes as long as 25 ms, in which a program is half loaded.
            self._started_inside = await anyio.to_thread.run_sync(self._enter_cgroup_sync, self._cgroup)

    async def list_live(self) -> Sequence[ProcessHandle]:
        # In this order: a child that is inside now has nothing outside, and is itself seen inside while it lives.
        is_sealed = self._is_sealed()
        inside = self._cgroup.list_pids() if self._cgroup else set()
        seen = () if is_sealed else await self._scan()
        found = {facts.pid: facts for facts in seen if facts.pid not in inside}
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
        if self._orphans:
            self._orphans.reap_exited()

    def _is_sealed(self) -> bool:
        """Whether all there ever was of this tree began inside its group."""
        if self._cgroup is None or not self._started_inside:
            return False
        return is_in_cgroup(self._root.pid, self._cgroup.folder.name)

    def _enter_cgroup_sync(self, cgroup: ControlGroup) -> bool:
        """Puts the child in; whether it had started nothing by then."""
        cgroup.add_process(self._root.pid)
        return is_in_cgroup(self._root.pid, cgroup.folder.name) and has_no_children(self._root.pid)

    async def _scan(self) -> list[ProcInfo]:
        """Members seen in /proc. Where some process shows no environment, it looks again before it says none."""
        for pause in RESCAN_INTERVALS:
            table = [facts for facts in list_processes() if facts.start >= self._root.start and not facts.is_dead]
            if (found := self._select_processes(table)) or all(map(_has_environ, table)):
                return found
            await anyio.sleep(pause)
        return []

    def _select_processes(self, table: list[ProcInfo]) -> list[ProcInfo]:
        found = {facts.pid for facts in table if self._belongs_to_tree(facts)}
        if self._orphans:
            found |= self._orphans.unclaimed(table)
        found = add_descendants(found | {self._root.pid}, {facts.pid: facts.parent for facts in table})
        return [facts for facts in table if facts.pid in found]

    def _confirm_pids(self, found: Iterable[ProcInfo]) -> set[int]:
        inside = self._cgroup.list_pids() if self._cgroup else set()
        return inside | {facts.pid for facts in found if self._is_same_process(facts)}

    def _belongs_to_tree(self, facts: ProcInfo) -> bool:
        return facts.session == self._root.pid or has_marker(facts.pid, self._marker)

    def _is_same_process(self, seen: ProcInfo) -> bool:
        now = read_process(seen.pid)
        if now is None or now.is_dead or now.start != seen.start:
            return False
        # Born in the same tick is not the same yet: what it was recognised by must hold still.
        return self._belongs_to_tree(now) or now.parent == seen.parent != INIT_PID


def _has_environ(facts: ProcInfo) -> bool:
    """Whether it can be seen that a process is not ours: those of others never show theirs, and never will."""
    if is_kernel_thread(facts) or not os.access(f"/proc/{facts.pid}/environ", os.R_OK):
        return True
    return bool(read_environ(facts.pid))


def add_descendants(roots: set[int], parents: Mapping[int, int]) -> set[int]:
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
