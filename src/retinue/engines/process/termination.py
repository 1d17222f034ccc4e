"""Terminate a process tree: SIGTERM, then SIGKILL, then proof that all are gone."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

import anyio
from msgspec import Struct

from retinue.engines.process.linux_tree import ProcessHandle, ProcessTree
from retinue.model.runs import NO_DEADLINE

TERMINATE_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
SIGTERM_REPEAT_INTERVAL = 1.0
"""Seconds after which descendants get SIGTERM again: a signal between a shell's fork and its exec is lost."""
EXIT_CONFIRM_TIMEOUT = 3.0
"""Seconds for killed processes to disappear: one that waits for a broken disk may never."""

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
