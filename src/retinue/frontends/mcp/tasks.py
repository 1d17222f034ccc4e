"""Calls that outlast their requests: begun, asked after and cancelled by id, as the protocol's tasks are.

Knows nothing of the protocol's own types: `sdk` puts them around what stands here.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from retinue.frontends.mcp.answers import CANCELLED, COMPLETED, FAILED, FIRST_LOOK, WORKING, Answer, Tell
from retinue.frontends.mcp.task_files import Kept, TaskFiles

BROKE = "Something unexpected went wrong. What its agents had is in their sessions: `retinue sessions list`."

Work = Callable[[Tell], Awaitable[Answer]]


class Working:
    """A call this server carries out."""

    def __init__(self) -> None:
        now = time.time()
        self.kept = Kept(id=os.urandom(16).hex(), created=now, updated=now)
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()

    async def tell(self, _: float, words: str) -> None:
        self.become(words=words)

    def become(self, **what: object) -> None:
        self.kept = structs.replace(self.kept, updated=time.time(), **what)


class Tasks:
    """The tasks of one client. What is not done when the group ends is interrupted."""

    def __init__(self, folder: Path, group: TaskGroup) -> None:
        self._files = TaskFiles(folder)
        self._group = group
        self._working: dict[str, Working] = {}
        self._files.forget_old()

    async def begin(self, work: Work) -> Kept | Answer:
        """Begins work; returns its answer if it has one at once, else what it is known by, and goes on.

        Raises:
            OSError: it cannot be recorded; nothing goes on.
        """
        working = Working()
        self._group.start_soon(self._carry_out, work, working)
        try:
            with anyio.move_on_after(FIRST_LOOK):
                await working.over.wait()
            if answer := working.kept.answer:
                return answer
            self._files.begin(working.kept)
        except BaseException:
            working.scope.cancel()  # nobody would ever know its id
            raise
        self._working[working.kept.id] = working
        if working.over.is_set():
            self._record(working)
        return working.kept

    def find(self, id_: str) -> Kept | None:
        """A task as far as it has come; None if there is none of this id."""
        if working := self._working.get(id_):
            return working.kept
        return self._files.find(id_)

    def cancel(self, id_: str) -> None:
        """Stops a task; one that is done already, or carried out by another server, stays as it is."""
        if working := self._working.get(id_):
            working.scope.cancel()

    async def _carry_out(self, work: Work, working: Working) -> None:
        try:
            with working.scope:
                working.become(state=COMPLETED, answer=await work(working.tell), words="")
            if working.scope.cancelled_caught:
                working.become(state=CANCELLED, words="")
        except Exception:  # one call that breaks must not end those of all others
            logging.getLogger(__name__).exception("a task broke")
            working.become(state=FAILED, words=BROKE)
        finally:
            working.over.set()
            if working.kept.state == WORKING:
                self._files.leave(working.kept.id)
        if working.kept.id in self._working:
            self._record(working)

    def _record(self, working: Working) -> None:
        """Writes down what came of it. What cannot be written is told from memory as long as this server lives."""
        with suppress(OSError):
            self._files.end(working.kept)
            del self._working[working.kept.id]
