"""Ending a tree of processes: asked first, then killed, then proven gone. No step waits longer than it must."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

import anyio
from msgspec import Struct

from retinue.engines.processes.tree import Member, Tree
from retinue.types import FOREVER

GRACE = 5.0
"""Seconds between asking and killing."""
REMINDER = 1.0
"""Seconds after which descendants are asked again: a signal between a shell's fork and its exec is lost."""
PROOF = 3.0
"""Seconds for killed processes to disappear: one that waits for a broken disk may never."""

# SIGCONT, so that a stopped process can take the SIGTERM. Windows has neither it nor SIGKILL.
_ASK = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGCONT") if hasattr(signal, name))
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


class Ending(Struct, frozen=True):
    """What it took to end a tree."""

    leftovers: int = 0
    """Descendants that had to be ended although the child itself was gone."""
    survivors: tuple[int, ...] = ()
    """Those that nothing could end."""


async def end_tree(tree: Tree, root: int, grace: float, is_root_gone: Callable[[], bool]) -> Ending:
    """Ends everything in the tree. To be called inside a shield; bounded by grace and proof."""
    leftovers: set[int] = set()
    for step, within in ((_Asking(root), grace), (_Killing(tree), PROOF)):
        was_gone = is_root_gone()
        with anyio.move_on_after(within) as scope:
            await _clear(tree, step)
        if was_gone:
            leftovers |= step.told.keys() - {root}
        if not scope.cancelled_caught:
            return Ending(len(leftovers))
    return Ending(len(leftovers), await _living(tree))


class _Asking:
    """SIGTERM: to the child once, because many programs take a second for impatience; to others until they go."""

    def __init__(self, root: int) -> None:
        self.told: dict[int, float] = {}
        """Who was signalled, and when to do so again."""
        self._root = root

    def signal(self, members: Sequence[Member]) -> None:
        now = anyio.current_time()
        for member in members:
            if now >= self.told.get(member.pid, now):
                self.told[member.pid] = FOREVER if member.pid == self._root else now + REMINDER
                for number in _ASK:
                    member.signal(number)


class _Killing:
    """SIGKILL: to all, as often as any are seen."""

    def __init__(self, tree: Tree) -> None:
        self.told: dict[int, float] = {}
        self._tree = tree

    def signal(self, members: Sequence[Member]) -> None:
        self._tree.kill_at_once()
        for member in members:
            self.told[member.pid] = 0.0
            member.signal(_KILL)


async def _clear(tree: Tree, step: _Asking | _Killing) -> None:
    """Signals all members, and those they still start, until there are none."""
    while members := await tree.look():
        try:
            step.signal(members)
            with anyio.move_on_after(REMINDER):
                await tree.until_gone(members)
        finally:
            for member in members:
                member.close()


async def _living(tree: Tree) -> tuple[int, ...]:
    members = await tree.look()
    for member in members:
        member.close()
    return tuple(member.pid for member in members)
