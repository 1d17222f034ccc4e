"""Keeps the processes of one Retinue together: marked, contained, and with a guardian in case we are killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from retinue.engines.processes.cgroups import Cgroup, own_folder
from retinue.engines.processes.containment import Containment, containment
from retinue.engines.processes.group import GroupTree, TaskkillTree
from retinue.engines.processes.guarding import Guardian
from retinue.engines.processes.tree import MarkedTree, Orphans, Tree

INSTANCE = "RETINUE_INSTANCE"
"""Environment variable with the marks of all the Retinues a process runs under, the outermost first."""
CHILD = "RETINUE_CHILD"
"""The same for the children it comes from."""
SET_CHILD_SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER` of prctl."""

Popen = subprocess.Popen[bytes]
Start = Callable[[Sequence[str], str, dict[str, str]], Popen]
"""Starts a command in a folder with an environment."""


class Family:
    """What all keepers of one program have started, so that none takes another's for orphans of its own."""

    def __init__(self) -> None:
        self.children: set[int] = set()
        self.started: set[int] = set()
        """The children and the guardians."""
        self.adopting = 0
        """Keepers who take orphans in."""


class Keeper:
    """One per engine: `async with Keeper() as keeper`, around everything that starts children.

    With `owns_process` the program says that nobody else in this process starts processes in sessions of their own:
    orphans of children then come to this process instead of to init, and it ends them and waits for them. Several
    keepers in one program are of one `family`. `at_most` keeps it from using a surer containment.
    """

    def __init__(
        self,
        *,
        owns_process: bool = False,
        at_most: Containment = Containment.CGROUP,
        family: Family | None = None,
    ) -> None:
        best, _ = containment(owns_process=owns_process)
        if at_most is Containment.SUBREAPER and not owns_process:
            at_most = Containment.MARKER
        self.containment = max(best, at_most, key=list(Containment).index)
        """What holds the children together here."""
        self.mark = os.urandom(16).hex()
        """In the environment of everything that is ours."""
        self.unguarded: str | None = None
        """Why nobody would end the children if this process were killed; None while somebody would."""
        self._adopts = owns_process and self.containment in {Containment.CGROUP, Containment.SUBREAPER}
        self._family = family or Family()
        self._children: set[int] = set()
        self._guardian: Guardian | None = None
        self._cgroup: Cgroup | None = None

    async def __aenter__(self) -> Self:
        if self._adopts:
            self._family.adopting += 1
            _adopt_orphans(adopt=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            if self._guardian:
                await self._guardian.send_away(self._children)
                self._family.started.discard(self._guardian.pid)
                self._guardian = None
            if self._cgroup:
                await self._cgroup.remove()
        if self._adopts:
            self._family.adopting -= 1
            _adopt_orphans(adopt=self._family.adopting > 0)

    async def start(
        self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], popen: Start, *, forks_late: bool = False
    ) -> tuple[Popen, Tree]:
        """Starts a child in a tree of its own, its marks added to its environment; the tree is then to `enclose` it.

        Raises:
            OSError, ValueError: as `popen` raised it.
        """
        self._make_cgroup()
        self._call_guardian()
        mark = os.urandom(16).hex()
        tree = self._make_tree(mark)
        try:
            process = popen(
                tree.launch(argv, cwd, environ, forks_late=forks_late),
                cwd,
                {**environ, INSTANCE: _beneath(INSTANCE, self.mark), CHILD: _beneath(CHILD, mark)},
            )
        except (OSError, ValueError):
            await tree.close()
            raise
        tree.take_root(process)
        self._children.add(process.pid)
        self._family.children.add(process.pid)
        self._family.started.add(process.pid)
        self._tell(b"+", process.pid)
        return process, tree

    def forget(self, pid: int) -> None:
        """The child was waited for: its number may mean another process now."""
        self._children.discard(pid)
        self._family.children.discard(pid)
        self._family.started.discard(pid)
        self._tell(b"-", pid)

    def _make_tree(self, mark: str) -> Tree:
        if self.containment is Containment.TASKKILL:
            return TaskkillTree()
        if self.containment is Containment.GROUP:
            return GroupTree()
        cgroup = None
        if self._cgroup:
            # Without one, mark and parents have to do.
            with contextlib.suppress(OSError):
                cgroup = Cgroup(self._cgroup.folder / mark)
        orphans = Orphans(self._family.children, self._family.started) if self._adopts else None
        return MarkedTree(mark, cgroup, orphans)

    def _make_cgroup(self) -> None:
        if self.containment is Containment.CGROUP and self._cgroup is None:
            folder = own_folder()
            with contextlib.suppress(OSError):
                self._cgroup = Cgroup(folder / f"retinue-{self.mark}") if isinstance(folder, Path) else None

    def _call_guardian(self) -> None:
        """Starts the guardian; again, if somebody ended it."""
        if self._guardian:
            if not self._guardian.is_gone():
                return
            self._guardian.close()
            self._family.started.discard(self._guardian.pid)
            self._guardian = None
        if os.name == "nt" or not sys.executable:
            self.unguarded = "If this process is killed, its children run on: there is no guardian here."
            return
        # It carries the marks of the Retinues above us, who may end it, and not ours, whose bearers it ends.
        environ = {name: os.environ[name] for name in (INSTANCE, CHILD) if name in os.environ}
        try:
            self._guardian = Guardian(self.mark, self._cgroup.folder if self._cgroup else None, environ)
        except OSError as error:
            self.unguarded = (
                f"If this process is killed, its children run on: no guardian could be started ({error})."
            )
            return
        self.unguarded = None
        self._family.started.add(self._guardian.pid)
        for pid in self._children:
            self._tell(b"+", pid)

    def _tell(self, sign: bytes, pid: int) -> None:
        if self._guardian:
            self._guardian.tell(sign + str(pid).encode())


def _beneath(name: str, mark: str) -> str:
    """The mark after those this process carries itself: a Retinue inside a Retinue belongs to both."""
    inherited = os.environ.get(name)
    return f"{inherited}:{mark}" if inherited else mark


def _adopt_orphans(*, adopt: bool) -> None:
    """Says whether orphans among our descendants come to this process."""
    import ctypes

    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)
