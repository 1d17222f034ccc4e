"""Start child processes in trees of their own, with a watchdog, in the best containment of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from retinue.engines.base import RESOURCE_ADVICE
from retinue.engines.process.cgroups import ControlGroup, find_base_cgroup, find_own_cgroup
from retinue.engines.process.command import ChildCommand
from retinue.engines.process.group_watchdog import GroupWatchdog
from retinue.engines.process.linux_tree import LinuxProcessTree, ProcessTree
from retinue.engines.process.other_tree import GroupTree, WindowsTree
from retinue.engines.process.pipes import ChildStreams
from retinue.engines.process.started_process import StartedProcess, start_popen
from retinue.engines.process.watchdog import SpawnRequest, SpawnStageError, Watchdog
from retinue.support.processes import CGROUP_PREFIX, CHILD_VARIABLE, INSTANCE_VARIABLE

SHORTAGE_TIMEOUT = 60.0
"""Seconds for which a start that lacks descriptors, processes or memory is tried again while other children run."""
SHORTAGE_INTERVAL = 1.0
"""Seconds between two tries if no other child ends."""


class ContainmentKind(StrEnum):
    """Ways to find all processes of a child, the most reliable first."""

    CGROUP = "cgroup"
    SUBREAPER = "subreaper"
    GROUP = "group"
    TASKKILL = "taskkill"


def detect_containment() -> tuple[ContainmentKind, str]:
    """Return the containment of this machine and a sentence for users about it. Starts no process."""
    if os.name == "nt":
        return (
            ContainmentKind.TASKKILL,
            "Processes are ended with taskkill: a process whose parent ended earlier may keep running.",
        )
    if not (_has_pidfds() and sys.executable):
        return ContainmentKind.GROUP, (
            "Processes are found by their group and their parents, because this system has no process descriptors: "
            "a process that starts its own session and loses its parents may keep running."
        )
    folder = find_own_cgroup()
    if isinstance(folder, Path):
        return (
            ContainmentKind.CGROUP,
            f"Each child has a control group below {folder}, which contains all processes that the child starts.",
        )
    return ContainmentKind.SUBREAPER, (
        "All processes descend from a watchdog process: they are found by a mark in their environment, by their "
        f"parents, and as orphans of the watchdog. There is no control group because {folder}."
    )


def _has_pidfds() -> bool:
    """Return whether processes can be listed in /proc and signalled by descriptor."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return hasattr(os, "memfd_create") and Path("/proc/self/environ").exists()


class ProcessSupervisor:
    """Starts the children of one engine inside `async with ProcessSupervisor() as supervisor`.

    `max_containment` excludes more reliable containments.
    """

    def __init__(self, *, max_containment: ContainmentKind = ContainmentKind.CGROUP) -> None:
        best, _ = detect_containment()
        self.containment = max(best, max_containment, key=list(ContainmentKind).index)
        """The containment of the children."""
        self.marker = os.urandom(16).hex()
        """Value in the environment of every process started here."""
        self.no_watchdog_reason: str | None = None
        """Why the children would outlive this process if it were killed; None while the watchdog runs."""
        self._watchdog: Watchdog | None = None
        self._group_watchdog: GroupWatchdog | None = None
        self._cgroup: ControlGroup | None = None
        self._children = 0
        """Children, including those about to start."""
        self._child_released = anyio.Event()

    async def __aenter__(self) -> Self:
        self.start_watchdog()
        return self

    def start_watchdog(self) -> None:
        """Start the watchdog before the first child, so that it loads meanwhile."""
        if self.containment in {ContainmentKind.CGROUP, ContainmentKind.SUBREAPER}:
            # If it cannot be started, the first child reports why.
            with contextlib.suppress(OSError):
                self._ensure_watchdog()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            for watchdog in (self._watchdog, self._group_watchdog):
                if watchdog:
                    await watchdog.stop()
            self._watchdog = self._group_watchdog = None
            if self._cgroup:
                await self._cgroup.remove()

    @property
    def watchdog_pid(self) -> int | None:
        """The pid of the running watchdog."""
        watchdog = self._watchdog or self._group_watchdog
        return watchdog.pid if watchdog else None

    async def start(self, command: ChildCommand) -> tuple[StartedProcess, ProcessTree]:
        """Start a child in a tree of its own, with its markers in its environment.

        Raises:
            OSError: it could not be started.
            ValueError: an argument or a variable is not possible.
        """
        marker = os.urandom(16).hex()
        environ = {
            **command.environ,
            INSTANCE_VARIABLE: _append_marker(INSTANCE_VARIABLE, self.marker),
            CHILD_VARIABLE: _append_marker(CHILD_VARIABLE, marker),
        }
        deadline = anyio.current_time() + SHORTAGE_TIMEOUT
        while True:
            try:
                return await self._start_once(command, environ, marker)
            except OSError as error:
                is_shortage = error.errno in RESOURCE_ADVICE
                if not (is_shortage and self._children and anyio.current_time() < deadline):
                    raise
            # What is missing is used by other children, which give it back when they end.
            with anyio.move_on_after(SHORTAGE_INTERVAL):
                await self._child_released.wait()

    async def _start_once(
        self, command: ChildCommand, environ: dict[str, str], marker: str
    ) -> tuple[StartedProcess, ProcessTree]:
        self._children += 1
        try:
            if self.containment in {ContainmentKind.CGROUP, ContainmentKind.SUBREAPER}:
                return await self._start_in_watchdog(command, environ, marker)
            return self._start_directly(command, environ)
        except BaseException:
            self._children -= 1
            raise

    def release(self, process: StartedProcess) -> None:
        """Reap an exited child: its pid may be reused from now on."""
        process.release()
        self._children -= 1
        self._child_released.set()
        self._child_released = anyio.Event()
        if self._group_watchdog:
            self._group_watchdog.remove_child(process.pid)

    async def _start_in_watchdog(
        self, command: ChildCommand, environ: Mapping[str, str], marker: str
    ) -> tuple[StartedProcess, ProcessTree]:
        watchdog = self._ensure_watchdog()
        cgroup = None
        if self._cgroup:
            # Without one, marker and parents are used.
            with contextlib.suppress(OSError):
                cgroup = ControlGroup(self._cgroup.folder / marker)
        tree = LinuxProcessTree(marker, cgroup, lambda: watchdog.pid if self._children == 1 else None)
        request = SpawnRequest(
            argv=command.argv,
            cwd=command.cwd,
            environ=environ,
            cgroup=cgroup.folder if cgroup else None,
            sandbox=command.sandbox,
            limits=command.limits,
            run=command.run,
            pass_fds=command.pass_fds,
        )
        streams = None
        try:
            streams = ChildStreams(command.stdin, private=command.private_streams)
            process = await watchdog.spawn(request, streams)
        except BaseException:
            if streams:
                streams.close()
            with anyio.CancelScope(shield=True):
                tree.kill_all()
                await tree.close()
            raise
        tree.set_root(process.pid)
        return process, tree

    def _start_directly(self, command: ChildCommand, environ: dict[str, str]) -> tuple[StartedProcess, ProcessTree]:
        if command.limits:
            raise SpawnStageError("limits", errno.ENOTSUP, command.argv[0])
        if command.sandbox is not None or command.pass_fds:
            raise SpawnStageError("sandbox", errno.ENOTSUP, command.argv[0])
        self._ensure_group_watchdog()
        tree: ProcessTree = WindowsTree() if self.containment is ContainmentKind.TASKKILL else GroupTree()
        process = start_popen(command.argv, command.cwd, environ, command.stdin)
        tree.set_root(process.pid)
        if self._group_watchdog:
            self._group_watchdog.add_child(process.pid)
        return process, tree

    def _ensure_watchdog(self) -> Watchdog:
        """Start the watchdog, or replace one that was killed.

        Raises:
            OSError: it could not be started.
        """
        if self._watchdog and self._watchdog.is_gone():
            self._watchdog.close()
            self._watchdog = None
        if self._watchdog is None:
            self._make_cgroup()
            self._watchdog = Watchdog(self._cgroup.folder if self._cgroup else None, _inherited_markers())
        return self._watchdog

    def _make_cgroup(self) -> None:
        if self.containment is ContainmentKind.CGROUP and self._cgroup is None:
            folder = find_own_cgroup()
            if isinstance(folder, Path):
                with contextlib.suppress(OSError):
                    self._cgroup = ControlGroup(find_base_cgroup(folder) / f"{CGROUP_PREFIX}{self.marker}")
                    self._cgroup.enable_controllers()

    def _ensure_group_watchdog(self) -> None:
        gone = self._group_watchdog
        if gone and not gone.is_gone():
            return
        if os.name == "nt" or not sys.executable:
            self.no_watchdog_reason = (
                "If this process is killed, its children keep running: this system has no guardian process."
            )
            return
        try:
            self._group_watchdog = GroupWatchdog(_inherited_markers())
        except OSError as error:
            self.no_watchdog_reason = (
                f"If this process is killed, its children keep running: the guardian process could not be started "
                f"({error})."
            )
            return
        if gone:
            gone.close()
            self._group_watchdog.take_over(gone)
        self.no_watchdog_reason = None


def _inherited_markers() -> dict[str, str]:
    """Return the markers of outer instances: these may end the watchdog."""
    return {name: os.environ[name] for name in (INSTANCE_VARIABLE, CHILD_VARIABLE) if name in os.environ}


def _append_marker(name: str, marker: str) -> str:
    """Append a marker to those of this process: a Retinue inside a Retinue belongs to both."""
    inherited = os.environ.get(name)
    return f"{inherited}:{marker}" if inherited else marker
