"""Warm pi processes: starting one costs most of a second, a fresh session in one that runs a few hundredths.

A process serves another run only if that agrees on everything a process cannot change, and only after its last run
settled cleanly and left nothing behind. It is ended after some runs, when it has grown, and when it was idle long.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from retinue.beside import Beside
from retinue.engines.base import EngineError, engine_error
from retinue.engines.child import child
from retinue.engines.pi.conversation import Conversation
from retinue.engines.pi.cores import Cores
from retinue.engines.pi.launch import Key, Launch
from retinue.engines.processes.keeper import Keeper
from retinue.types import FOREVER

LOOK = 0.05
"""Seconds between two looks at whether the cores have anything to do."""
ENDING = 12.0
"""Seconds in which the tree of a dismissed process has ended, whatever it does."""


class Bounds(Struct, frozen=True, kw_only=True):
    """How many processes there are, and for how long."""

    runs: int = 50
    """After which a process is replaced."""
    memory_bytes: int = 600 << 20
    """Beyond which a process is replaced."""
    idle: float = 60.0
    """Seconds a process waits for its next run."""
    most_idle: int = 8
    """Processes that wait: each holds as much memory as a browser window."""
    starts: int = 0
    """Processes that start at once; as many are there before a run waits for one that is busy. 0: one per core."""
    turn: float = 5.0
    """Seconds for which one that does not begin keeps others from starting."""
    unused: float = 0.4
    """Share of the cores' time: where more is nobody's, runs wait for models: another is started. 1: never."""
    patience: float = 0.25
    """Seconds without one becoming free or beginning after which another is started for a run that waits."""


class Pool:
    """The processes of one engine."""

    def __init__(self, keeper: Keeper, bounds: Bounds | None = None) -> None:
        self._keeper = keeper
        self._bounds = bounds or Bounds()
        self._group: TaskGroup | None = None
        self._idle: list[_Lodger] = []
        self._live: dict[Key, int] = {}
        """Processes there are, and those about to be started."""
        self._enough = self._bounds.starts or os.cpu_count() or 1
        self._starts = anyio.Semaphore(self._enough)
        self._starting = 0
        self._moved = anyio.Event()
        """A process became free, or one that was starting has begun."""

    async def keep(self, *, task_status: TaskStatus[None]) -> None:
        """Lives until cancelled; then ends every process."""
        async with anyio.create_task_group() as self._group:
            task_status.started()
            await anyio.sleep_forever()

    @asynccontextmanager
    async def lent(self, launch: Launch, *, reuse: bool = True) -> AsyncIterator[Conversation]:
        """A process for one run. One that is not clean afterwards has ended, tree and all, when the block is left.

        Raises:
            EngineError: none could be started.
        """
        lodger = await self._taken(launch, reuse=reuse)
        try:
            yield lodger.conversation
        finally:
            with anyio.CancelScope(shield=True):
                if reuse and lodger.is_fit():
                    self._give_back(lodger)
                else:
                    await lodger.end()

    async def _taken(self, launch: Launch, *, reuse: bool) -> _Lodger:
        if reuse and (lodger := self._found(launch) or await self._awaited(launch)):
            return lodger
        return await self._started(launch, reuse=reuse)

    def _found(self, launch: Launch) -> _Lodger | None:
        for number in range(len(self._idle) - 1, -1, -1):
            lodger = self._idle[number]
            if lodger.key == launch.key and not lodger.is_leaving:
                del self._idle[number]
                lodger.idle_since = None
                return lodger
        return None

    async def _awaited(self, launch: Launch) -> _Lodger | None:
        """A process that becomes free, as long as that is quicker than starting; None: one more is to be started."""
        cores, quiet = Cores(self._bounds.unused), anyio.current_time()
        while self._live.get(launch.key, 0) >= self._enough:
            # Those that start use the cores, and serve several short runs in the time it takes to start one.
            patience = self._bounds.turn if self._starting else self._bounds.patience
            with anyio.move_on_after(min(LOOK, patience)) as scope:
                await self._moved.wait()
            if lodger := self._found(launch):
                return lodger
            if not scope.cancelled_caught:
                quiet = anyio.current_time()
            elif anyio.current_time() - quiet >= patience or (not self._starting and cores.are_idle()):
                break
        return None

    def _move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    def _give_back(self, lodger: _Lodger) -> None:
        lodger.idle_since = anyio.current_time()
        self._idle.append(lodger)
        if len(self._idle) > self._bounds.most_idle:
            self._idle.pop(0).leave()
        self._move()

    async def _started(self, launch: Launch, *, reuse: bool) -> _Lodger:
        assert self._group is not None
        lodger: _Lodger | None = None
        self._count(launch.key, 1)
        try:
            async with self._starts:
                # While it waited for its turn to start one, another may have become free.
                if reuse and (found := self._found(launch)):
                    return found
                lodger = _Lodger(launch, self._bounds)
                self._group.start_soon(self._lodge, lodger)
                await self._begin(lodger)
        finally:
            if lodger is None:
                self._count(launch.key, -1)
        await _until_begun(lodger)
        if lodger.error:
            await lodger.end()
            raise lodger.error
        return lodger

    async def _begin(self, lodger: _Lodger) -> None:
        self._starting += 1
        try:
            await _until_begun(lodger, within=self._bounds.turn)
        finally:
            self._starting -= 1
            self._move()

    async def _lodge(self, lodger: _Lodger) -> None:
        """The life of one process."""
        try:
            await lodger.live(self._keeper)
        finally:
            self._count(lodger.key, -1)
            if lodger in self._idle:
                self._idle.remove(lodger)
            self._move()

    def _count(self, key: Key, change: int) -> None:
        self._live[key] = self._live.get(key, 0) + change
        if not self._live[key]:
            del self._live[key]


class _Lodger:
    """A process with its place in the pool."""

    def __init__(self, launch: Launch, bounds: Bounds) -> None:
        self.key = launch.key
        self.begun = anyio.Event()
        self.error: EngineError | None = None
        self.idle_since: float | None = None
        self._launch = launch
        self._bounds = bounds
        self._is_gone = False
        self._life = anyio.CancelScope()
        self._ended = anyio.Event()
        self._conversation: Conversation | None = None

    @property
    def is_leaving(self) -> bool:
        """Whether it is gone, or about to be."""
        return self._is_gone or self._life.cancel_called

    @property
    def conversation(self) -> Conversation:
        assert self._conversation is not None
        return self._conversation

    async def live(self, keeper: Keeper) -> None:
        try:
            with self._life:
                async with child(self._launch.conversing(), keeper) as process:
                    self._conversation = Conversation(process, self._launch.session)
                    await self._conversation.ready()
                    self.begun.set()
                    await self._stay()
        except EngineError as error:
            self.error = error
        except OSError as error:
            self.error = engine_error(f"The pi process failed: {error}.")
        finally:
            self.begun.set()
            self._ended.set()

    def leave(self) -> None:
        """Begins to end it."""
        self._life.cancel()

    async def end(self) -> None:
        """Returns when nothing of it is left; bounded."""
        self.leave()
        with anyio.move_on_after(ENDING, shield=True):
            await self._ended.wait()

    def is_fit(self) -> bool:
        """Whether it may serve another run."""
        conversation, bounds = self.conversation, self._bounds
        return (
            conversation.is_clean
            and conversation.runs < bounds.runs
            and not self.is_leaving
            and _memory_bytes(conversation.child.pid) < bounds.memory_bytes
        )

    async def _stay(self) -> None:
        """Until it was idle for long, or somebody ends it."""
        async with Beside(self._note_end):
            while True:
                since = anyio.current_time() if self.idle_since is None else self.idle_since
                await anyio.sleep_until(since + self._bounds.idle)
                if since == self.idle_since:
                    self.leave()

    async def _note_end(self) -> None:
        await self.conversation.child.wait()
        self._is_gone = True
        # Whoever has it must first read what it wrote; he ends it then.
        if self.idle_since is not None:
            self.leave()


async def _until_begun(lodger: _Lodger, within: float = FOREVER) -> None:
    """Returns when it has begun, or could not, or the time is over; ends it if nobody waits for it any more."""
    try:
        with anyio.move_on_after(within):
            await lodger.begun.wait()
    except anyio.get_cancelled_exc_class():
        await lodger.end()
        raise


def _memory_bytes(pid: int) -> int:
    """What the process holds, where the system says so."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
