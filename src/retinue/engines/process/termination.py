"""Wait for a child to exit, and terminate a process tree: SIGTERM, then SIGKILL, then proof that all are gone.

A child is awaited without being reaped, so that its pid stays its own until the tree is closed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence

import anyio
from msgspec import Struct

from retinue.engines.process.linux_tree import ProcessHandle, ProcessTree
from retinue.model.results import ProcessEnd
from retinue.model.runs import NO_DEADLINE

TERMINATE_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
SIGTERM_REPEAT_INTERVAL = 1.0
"""Seconds after which descendants get SIGTERM again: a signal between a shell's fork and its exec is lost."""
EXIT_CONFIRM_TIMEOUT = 3.0
"""Seconds for killed processes to disappear: one that waits for a broken disk may never."""
POLL_INTERVALS = (0.001, 0.05)
"""Seconds between two checks where an exit cannot be awaited: the first and the longest."""

# SIGCONT, so that a stopped process receives the SIGTERM. Windows has neither SIGCONT nor SIGKILL.
_TERMINATE_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGCONT") if hasattr(signal, name))
_KILL_SIGNAL = getattr(signal, "SIGKILL", signal.SIGTERM)


class TerminationResult(Struct, frozen=True):
    """The outcome of terminating a tree."""

    killed_descendants: int = 0
    """Descendants that had to be terminated although the child itself was gone."""
    survivors: tuple[int, ...] = ()
    """Processes that did not end."""


async def terminate_tree(
    tree: ProcessTree, root: int, grace: float, is_root_gone: Callable[[], bool]
) -> TerminationResult:
    """Terminate all processes of the tree. Called inside a shield; bounded by `grace` and EXIT_CONFIRM_TIMEOUT."""
    killed_descendants: set[int] = set()
    for step, within in ((_SigtermPhase(root), grace), (_SigkillPhase(tree), EXIT_CONFIRM_TIMEOUT)):
        was_gone = is_root_gone()
        with anyio.move_on_after(within) as scope:
            await _signal_until_gone(tree, step)
        if was_gone:
            killed_descendants |= step.signalled.keys() - {root}
        if not scope.cancelled_caught:
            return TerminationResult(len(killed_descendants))
    return TerminationResult(len(killed_descendants), await _list_survivors(tree))


class _SigtermPhase:
    """SIGTERM: to the child once, because many programs treat a second one as force; to others until they exit."""

    def __init__(self, root: int) -> None:
        self.signalled: dict[int, float] = {}
        """Signalled pids, each with the time of the next signal."""
        self._root = root

    def signal(self, members: Sequence[ProcessHandle]) -> None:
        now = anyio.current_time()
        for member in members:
            if now >= self.signalled.get(member.pid, now):
                self.signalled[member.pid] = (
                    NO_DEADLINE if member.pid == self._root else now + SIGTERM_REPEAT_INTERVAL
                )
                for number in _TERMINATE_SIGNALS:
                    member.signal(number)


class _SigkillPhase:
    """SIGKILL: to all, as often as any are found."""

    def __init__(self, tree: ProcessTree) -> None:
        self.signalled: dict[int, float] = {}
        self._tree = tree

    def signal(self, members: Sequence[ProcessHandle]) -> None:
        self._tree.kill_all()
        for member in members:
            self.signalled[member.pid] = 0.0
            member.signal(_KILL_SIGNAL)


async def _signal_until_gone(tree: ProcessTree, step: _SigtermPhase | _SigkillPhase) -> None:
    """Signal all members, and those they still start, until there are none."""
    while members := await tree.list_live():
        try:
            step.signal(members)
            with anyio.move_on_after(SIGTERM_REPEAT_INTERVAL):
                await tree.wait_until_gone(members)
        finally:
            for member in members:
                member.close()


async def _list_survivors(tree: ProcessTree) -> tuple[int, ...]:
    members = await tree.list_live()
    for member in members:
        member.close()
    return tuple(member.pid for member in members)


async def wait_exit(process: subprocess.Popen[bytes]) -> ProcessEnd:
    """Wait until the process itself exits, also while others hold its pipes."""
    while (end := read_exit(process)) is None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            return await poll_exit(process)
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    return end


async def poll_exit(process: subprocess.Popen[bytes]) -> ProcessEnd:
    """Wait for the exit where there are no process descriptors, checking less and less often."""
    pause, longest = POLL_INTERVALS
    while (end := read_exit(process)) is None:
        await anyio.sleep(pause)
        pause = min(2 * pause, longest)
    return end


def read_exit(process: subprocess.Popen[bytes]) -> ProcessEnd | None:
    """Return how the process ended; None while it runs, an empty `ProcessEnd` if other code reaped it."""
    if process.returncode is None and hasattr(os, "waitid"):
        return _peek_exit(process.pid)
    code = process.poll()
    if code is None:
        return None
    return ProcessEnd(code=code) if code >= 0 else ProcessEnd(signal=-code)


def _peek_exit(pid: int) -> ProcessEnd | None:
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ProcessEnd()
    if found is None:
        return None
    return ProcessEnd(code=found.si_status) if found.si_code == os.CLD_EXITED else ProcessEnd(signal=found.si_status)
