"""Start child processes in trees of their own, with a watchdog, in the best containment of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from retinue.engines.process.cgroups import ControlGroup, find_own_cgroup
from retinue.engines.process.linux_tree import LinuxProcessTree, OrphanTracker, ProcessTree
from retinue.engines.process.other_tree import GroupTree, WindowsTree
from retinue.engines.process.termination import wait_exit
from retinue.engines.process.watchdog_main import IGNORED_SIGNALS, KILL_TIMEOUT, RELEASE_BYTE

INSTANCE_VARIABLE = "RETINUE_INSTANCE"
"""Environment variable with the markers of all Retinue instances a process runs under, the outermost first."""
CHILD_VARIABLE = "RETINUE_CHILD"
"""Environment variable with the markers of the children a process descends from, the outermost first."""
WATCHDOG_PROGRAM = Path(__file__).with_name("watchdog_main.py")
WATCHDOG_EXIT_TIMEOUT = KILL_TIMEOUT + 1.0
"""Seconds the watchdog has to exit when it is stopped: it may have to kill others first."""
PR_SET_CHILD_SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER` of prctl."""

Popen = subprocess.Popen[bytes]
StartProcess = Callable[[Sequence[str], str, dict[str, str]], Popen]
"""Starts argv in a folder with an environment."""


class ContainmentKind(StrEnum):
    """Ways to find all processes of a child, the most reliable first."""

    CGROUP = "cgroup"
    SUBREAPER = "subreaper"
    MARKER = "marker"
    GROUP = "group"
    TASKKILL = "taskkill"


def detect_containment(*, owns_process: bool = False) -> tuple[ContainmentKind, str]:
    """Return the containment of this machine and a sentence for users about it. Starts no process."""
    if os.name == "nt":
        return (
            ContainmentKind.TASKKILL,
            "Processes are ended with taskkill: a process whose parent ended earlier may keep running.",
        )
    if not _has_pidfds():
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
    if owns_process:
        return ContainmentKind.SUBREAPER, (
            "Processes are found by a mark in their environment and by their parents, and orphans come to this "
            f"process. There is no control group because {folder}."
        )
    return ContainmentKind.MARKER, (
        "Processes are found by a mark in their environment and by their parents: a process that clears its "
        "environment, starts its own session and loses its parents may keep running. There is no control group "
        f"because {folder}."
    )


def _has_pidfds() -> bool:
    """Return whether processes can be listed in /proc and signalled by descriptor."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return Path("/proc/self/environ").exists()


class WatchdogProcess:
    """The running `watchdog_main.py`. Its pipe closes when this process dies, and it then kills the children."""

    def __init__(self, marker: str, cgroup: Path | None, environ: dict[str, str]) -> None:
        """Start the watchdog.

        Raises:
            OSError: it could not be started.
        """
        arguments = [marker, str(os.getpid()), *([str(cgroup)] if cgroup else [])]
        reading, self._pipe = os.pipe()
        # It inherits the blocked signals, so that none ends it before it ignores them.
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
        """Return whether the watchdog was killed."""
        return self._process.poll() is not None

    def send(self, line: bytes) -> None:
        # A watchdog that is stopped or gone must not block this process: the markers have the same information.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._pipe, line + b"\n")

    def close(self) -> None:
        os.close(self._pipe)

    async def stop(self, children: Collection[int]) -> None:
        """Stop the watchdog and wait for it. If there are children, it kills them first."""
        if not children:
            self.send(RELEASE_BYTE)
        self.close()
        with anyio.move_on_after(WATCHDOG_EXIT_TIMEOUT):
            await wait_exit(self._process)
        self._process.kill()
        self._process.wait()


class SharedProcessTable:
    """The processes started by all supervisors of one program, so that none treats another's as orphans."""

    def __init__(self) -> None:
        self.children: set[int] = set()
        self.started: set[int] = set()
        """The children and the watchdogs."""
        self.adopting = 0
        """Supervisors that adopt orphans."""


class ProcessSupervisor:
    """Starts the children of one engine inside `async with ProcessSupervisor() as supervisor`.

    `owns_process` declares that no other code in this process starts processes in sessions of their own: orphans of
    children are then adopted by this process instead of by init, terminated and reaped. Several supervisors in one
    program share one `SharedProcessTable`. `max_containment` excludes more reliable containments.
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
        """The containment of the children."""
        self.marker = os.urandom(16).hex()
        """Value in the environment of every process started here."""
        self.no_watchdog_reason: str | None = None
        """Why the children would outlive this process if it were killed; None while the watchdog runs."""
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
        """Start a child in a tree of its own, with its markers in its environment.

        The caller then runs `tree.enter_cgroup` beside it.

        Raises:
            OSError, ValueError: as raised by `popen`.
        """
        self._make_cgroup()
        self._ensure_watchdog()
        marker = os.urandom(16).hex()
        tree = self._make_tree(marker)
        try:
            process = popen(
                tree.launch(argv, cwd, environ, late_fork=late_fork),
                cwd,
                {
                    **environ,
                    INSTANCE_VARIABLE: _append_marker(INSTANCE_VARIABLE, self.marker),
                    CHILD_VARIABLE: _append_marker(CHILD_VARIABLE, marker),
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
        """Remove a reaped child: its pid may be reused from now on."""
        self._children.discard(pid)
        self._shared.children.discard(pid)
        self._shared.started.discard(pid)
        self._send_to_watchdog(b"-", pid)

    def _make_tree(self, marker: str) -> ProcessTree:
        if self.containment is ContainmentKind.TASKKILL:
            return WindowsTree()
        if self.containment is ContainmentKind.GROUP:
            return GroupTree()
        cgroup = None
        if self._cgroup:
            # Without one, marker and parents are used.
            with contextlib.suppress(OSError):
                cgroup = ControlGroup(self._cgroup.folder / marker)
        orphans = OrphanTracker(self._shared.children, self._shared.started) if self._adopts_orphans else None
        return LinuxProcessTree(marker, cgroup, orphans)

    def _make_cgroup(self) -> None:
        if self.containment is ContainmentKind.CGROUP and self._cgroup is None:
            folder = find_own_cgroup()
            with contextlib.suppress(OSError):
                self._cgroup = ControlGroup(folder / f"retinue-{self.marker}") if isinstance(folder, Path) else None

    def _ensure_watchdog(self) -> None:
        """Start the watchdog, or restart one that was killed."""
        if self._watchdog:
            if not self._watchdog.is_gone():
                return
            self._watchdog.close()
            self._shared.started.discard(self._watchdog.pid)
            self._watchdog = None
        if os.name == "nt" or not sys.executable:
            self.no_watchdog_reason = (
                "If this process is killed, its children keep running: this system has no guardian process."
            )
            return
        # It has the markers of outer instances, which may kill it, and not our own, because it kills those that do.
        environ = {name: os.environ[name] for name in (INSTANCE_VARIABLE, CHILD_VARIABLE) if name in os.environ}
        try:
            self._watchdog = WatchdogProcess(self.marker, self._cgroup.folder if self._cgroup else None, environ)
        except OSError as error:
            self.no_watchdog_reason = (
                f"If this process is killed, its children keep running: the guardian process could not be started "
                f"({error})."
            )
            return
        self.no_watchdog_reason = None
        self._shared.started.add(self._watchdog.pid)
        for pid in self._children:
            self._send_to_watchdog(b"+", pid)

    def _send_to_watchdog(self, sign: bytes, pid: int) -> None:
        if self._watchdog:
            self._watchdog.send(sign + str(pid).encode())


def _append_marker(name: str, marker: str) -> str:
    """Append a marker to those of this process: a Retinue inside a Retinue belongs to both."""
    inherited = os.environ.get(name)
    return f"{inherited}:{marker}" if inherited else marker


def _adopt_orphans(*, adopt: bool) -> None:
    """Set whether this process adopts the orphans among its descendants."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)
