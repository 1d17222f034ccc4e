"""Start and supervise child processes, and detect what contains them on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from retinue.engines.process.cgroups import ControlGroup, find_own_cgroup
from retinue.engines.process.linux_tree import LinuxProcessTree, OrphanTracker, ProcessTree
from retinue.engines.process.other_tree import GroupTree, TaskkillTree
from retinue.engines.process.watchdog import WatchdogProcess


class ContainmentKind(StrEnum):
    """What holds the processes of a child together, the surest first."""

    CGROUP = "cgroup"
    SUBREAPER = "subreaper"
    MARKER = "marker"
    GROUP = "group"
    TASKKILL = "taskkill"


def detect_containment(*, owns_process: bool = False) -> tuple[ContainmentKind, str]:
    """What is in force here, and one sentence about it for whoever asks. Starts no process."""
    if os.name == "nt":
        return (
            ContainmentKind.TASKKILL,
            "Processes are ended with taskkill: one whose parent ended before may get away.",
        )
    if not _has_pidfds():
        return ContainmentKind.GROUP, (
            "Processes are found by their group and their parents, because this system has no process descriptors: "
            "one that starts its own session and loses its parents may get away."
        )
    folder = find_own_cgroup()
    if isinstance(folder, Path):
        return (
            ContainmentKind.CGROUP,
            f"Each child has a control group below {folder}: it holds all that the child starts.",
        )
    if owns_process:
        return ContainmentKind.SUBREAPER, (
            "Processes are found by a mark in their environment and by their parents, and orphans come to this "
            f"process. There is no control group because {folder}."
        )
    return ContainmentKind.MARKER, (
        "Processes are found by a mark in their environment and by their parents: one that clears its environment, "
        f"starts its own session and loses its parents may get away. There is no control group because {folder}."
    )


def _has_pidfds() -> bool:
    """Whether processes can be seen and held without naming them by number."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return Path("/proc/self/environ").exists()


INSTANCE_VARIABLE = "RETINUE_INSTANCE"
"""Environment variable with the marks of all the Retinues a process runs under, the outermost first."""
CHILD_VARIABLE = "RETINUE_CHILD"
"""The same for the children it comes from."""
PR_SET_CHILD_SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER` of prctl."""

Popen = subprocess.Popen[bytes]
StartProcess = Callable[[Sequence[str], str, dict[str, str]], Popen]
"""Starts a command in a folder with an environment."""


class SharedProcessTable:
    """What all keepers of one program have started, so that none takes another's for orphans of its own."""

    def __init__(self) -> None:
        self.children: set[int] = set()
        self.started: set[int] = set()
        """The children and the guardians."""
        self.adopting = 0
        """Keepers who take orphans in."""


class ProcessSupervisor:
    """One per engine: `async with Keeper() as keeper`, around everything that starts children.

    With `owns_process` the program says that nobody else in this process starts processes in sessions of their own:
    orphans of children then come to this process instead of to init, and it ends them and waits for them. Several
    keepers in one program are of one `family`. `at_most` keeps it from using a surer containment.
    """

    def __init__(
        self,
        *,
        owns_process: bool = False,
        max_containment: ContainmentKind = ContainmentKind.CGROUP,
        shared: SharedProcessTable | None = None,
    ) -> None:
        best, _ = detect_containment(owns_process=owns_process)
        if max_containment is ContainmentKind.SUBREAPER and not owns_process:
            max_containment = ContainmentKind.MARKER
        self.containment = max(best, max_containment, key=list(ContainmentKind).index)
        """What holds the children together here."""
        self.marker = os.urandom(16).hex()
        """In the environment of everything that is ours."""
        self.no_watchdog_reason: str | None = None
        """Why nobody would end the children if this process were killed; None while somebody would."""
        self._adopts_orphans = owns_process and self.containment in {
            ContainmentKind.CGROUP,
            ContainmentKind.SUBREAPER,
        }
        self._shared = shared or SharedProcessTable()
        self._children: set[int] = set()
        self._watchdog: WatchdogProcess | None = None
        self._cgroup: ControlGroup | None = None

    async def __aenter__(self) -> Self:
        if self._adopts_orphans:
            self._shared.adopting += 1
            _adopt_orphans(adopt=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            if self._watchdog:
                await self._watchdog.stop(self._children)
                self._shared.started.discard(self._watchdog.pid)
                self._watchdog = None
            if self._cgroup:
                await self._cgroup.remove()
        if self._adopts_orphans:
            self._shared.adopting -= 1
            _adopt_orphans(adopt=self._shared.adopting > 0)

    async def start(
        self,
        argv: Sequence[str],
        cwd: str,
        environ: Mapping[str, str],
        popen: StartProcess,
        *,
        late_fork: bool = False,
    ) -> tuple[Popen, ProcessTree]:
        """Starts a child in a tree of its own, its marks added to its environment; the tree is then to `enclose` it.

        Raises:
            OSError, ValueError: as `popen` raised it.
        """
        self._make_cgroup()
        self._ensure_watchdog()
        mark = os.urandom(16).hex()
        tree = self._make_tree(mark)
        try:
            process = popen(
                tree.launch(argv, cwd, environ, late_fork=late_fork),
                cwd,
                {
                    **environ,
                    INSTANCE_VARIABLE: _append_marker(INSTANCE_VARIABLE, self.marker),
                    CHILD_VARIABLE: _append_marker(CHILD_VARIABLE, mark),
                },
            )
        except (OSError, ValueError):
            await tree.close()
            raise
        tree.set_root(process)
        self._children.add(process.pid)
        self._shared.children.add(process.pid)
        self._shared.started.add(process.pid)
        self._send_to_watchdog(b"+", process.pid)
        return process, tree

    def release(self, pid: int) -> None:
        """The child was waited for: its number may mean another process now."""
        self._children.discard(pid)
        self._shared.children.discard(pid)
        self._shared.started.discard(pid)
        self._send_to_watchdog(b"-", pid)

    def _make_tree(self, mark: str) -> ProcessTree:
        if self.containment is ContainmentKind.TASKKILL:
            return TaskkillTree()
        if self.containment is ContainmentKind.GROUP:
            return GroupTree()
        cgroup = None
        if self._cgroup:
            # Without one, mark and parents have to do.
            with contextlib.suppress(OSError):
                cgroup = ControlGroup(self._cgroup.folder / mark)
        orphans = OrphanTracker(self._shared.children, self._shared.started) if self._adopts_orphans else None
        return LinuxProcessTree(mark, cgroup, orphans)

    def _make_cgroup(self) -> None:
        if self.containment is ContainmentKind.CGROUP and self._cgroup is None:
            folder = find_own_cgroup()
            with contextlib.suppress(OSError):
                self._cgroup = ControlGroup(folder / f"retinue-{self.marker}") if isinstance(folder, Path) else None

    def _ensure_watchdog(self) -> None:
        """Starts the guardian; again, if somebody ended it."""
        if self._watchdog:
            if not self._watchdog.is_gone():
                return
            self._watchdog.close()
            self._shared.started.discard(self._watchdog.pid)
            self._watchdog = None
        if os.name == "nt" or not sys.executable:
            self.no_watchdog_reason = "If this process is killed, its children run on: there is no guardian here."
            return
        # It carries the marks of the Retinues above us, who may end it, and not ours, whose bearers it ends.
        environ = {name: os.environ[name] for name in (INSTANCE_VARIABLE, CHILD_VARIABLE) if name in os.environ}
        try:
            self._watchdog = WatchdogProcess(self.marker, self._cgroup.folder if self._cgroup else None, environ)
        except OSError as error:
            self.no_watchdog_reason = (
                f"If this process is killed, its children run on: no guardian could be started ({error})."
            )
            return
        self.no_watchdog_reason = None
        self._shared.started.add(self._watchdog.pid)
        for pid in self._children:
            self._send_to_watchdog(b"+", pid)

    def _send_to_watchdog(self, sign: bytes, pid: int) -> None:
        if self._watchdog:
            self._watchdog.send(sign + str(pid).encode())


def _append_marker(name: str, mark: str) -> str:
    """The mark after those this process carries itself: a Retinue inside a Retinue belongs to both."""
    inherited = os.environ.get(name)
    return f"{inherited}:{mark}" if inherited else mark


def _adopt_orphans(*, adopt: bool) -> None:
    """Says whether orphans among our descendants come to this process."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)
