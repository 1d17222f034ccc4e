"""What becomes of the runs of each call in flight: one look at the bus for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskStatus
from msgspec import Struct

from retinue.app import Retinue
from retinue.bus import Lagged, Watcher
from retinue.events import RunEnded, RunQueued, Stamped, ToolCalled
from retinue.frontends.event_lines import event_words
from retinue.frontends.wording import SHORT
from retinue.output.frame import one_line

MOST_OF_ONE = 160
"""Characters of what one run does."""
MOST_OF_NAME = 40
MOST_RUNS = 8
"""Told one by one; more are counted."""


class Doing(Struct, kw_only=True):
    """One run as far as it has come."""

    run: str
    session: str
    name: str = ""
    agent: str = ""
    words: str = "queued"
    """What it did last."""
    tools: int = 0
    ended: RunEnded | None = None


Begun = Callable[[Doing], None]
"""Is told the first run of a call once it is recorded."""


class Followed:
    """The runs of one call."""

    def __init__(self, begun: Begun | None = None) -> None:
        self.runs: dict[str, Doing] = {}
        self.changes = 0
        """Grows with all that happens."""
        self._begun = begun
        self._news = anyio.Event()
        self._lookers: set[Followed] = set()

    def take(self, stamped: Stamped) -> None:
        """Takes in an event of one of the runs."""
        origin, event = stamped.origin, stamped.event
        run = self.runs.get(origin.run) or Doing(run=origin.run, session=origin.session)
        match event:
            case RunQueued():
                run.name, run.agent = event.name, event.agent
            case ToolCalled():
                run.tools += 1
            case RunEnded():
                run.ended = event
        if words := event_words(event, origin.session[:SHORT]):
            run.words = words
        self.note(run)

    def note(self, run: Doing) -> None:
        """Takes in how far a run has come."""
        is_first = not self.runs
        self.runs[run.run] = run
        if is_first and self._begun:
            self._begun(run)
        self.changes += 1
        self._news.set()
        for looker in self._lookers:
            looker.note(run)

    @contextmanager
    def seen_by(self, looker: Followed) -> Iterator[None]:
        """Shows another call the runs of this one while the block lasts."""
        self._lookers.add(looker)
        try:
            for run in self.runs.values():
                looker.note(run)
            yield
        finally:
            self._lookers.discard(looker)

    async def news(self) -> None:
        """Returns when something happens."""
        self._news = anyio.Event()
        await self._news.wait()

    def words(self) -> str:
        """What each run is doing, on one line."""
        runs = list(self.runs.values())
        if len(runs) == 1:
            return _told(runs[0])
        working = [_told(run) for run in runs if run.ended is None]
        more = [f"{len(working) - MOST_RUNS} more"] if len(working) > MOST_RUNS else []
        return "; ".join([f"{len(runs) - len(working)} of {len(runs)} done", *working[:MOST_RUNS], *more])

    def report(self) -> list[dict[str, Any]]:
        """What really happened beside what was declared, a run each."""
        return [_report(run) for run in self.runs.values() if run.ended]


def _told(run: Doing) -> str:
    return f"{one_line(run.name, MOST_OF_NAME)}: {one_line(run.words, MOST_OF_ONE)}"


def _report(run: Doing) -> dict[str, Any]:
    """What really happened in a run that has ended."""
    ended = run.ended
    assert ended is not None
    return {
        "run": run.run,
        "session": run.session,
        "name": run.name,
        "agent": run.agent,
        "status": "failed" if ended.failure else "completed",
        "exitCode": ended.exit_code,
        "answer": str(ended.answer),
        "failure": msgspec.to_builtins(ended.failure),
        "usage": msgspec.to_builtins(ended.usage),
        "elapsed": round(ended.elapsed, 3),
        "actual": msgspec.to_builtins(ended.actual),
    }


class Follower:
    """Watches every run of a process and hands what happens to the call that asked for it."""

    def __init__(self, retinue: Retinue) -> None:
        self._retinue = retinue
        self._watcher: Watcher | None = None
        self._calls: dict[str, Followed] = {}

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watches until cancelled; begins once it says `started`."""
        while True:
            async with self._retinue.events(deltas=False) as self._watcher:
                task_status.started()
                task_status = anyio.TASK_STATUS_IGNORED
                try:
                    async for stamped in self._watcher:
                        self._take(stamped)
                except Lagged:  # this process did not get round to it for long: what came meanwhile is in the store
                    continue

    @contextmanager
    def following(self, call: str, begun: Begun | None = None) -> Iterator[Followed]:
        """The runs of the call of this id, while the block lasts."""
        followed = self._calls[call] = Followed(begun)
        try:
            yield followed
        finally:
            del self._calls[call]

    def of(self, call: str) -> Followed:
        """The runs of a call that is being followed."""
        return self._calls[call]

    def catch_up(self) -> None:
        """Takes in what has happened and was not yet looked at: a call that is over wants to know all of it."""
        try:
            for stamped in self._watcher.waiting() if self._watcher else ():
                self._take(stamped)
        except Lagged:
            return

    def _take(self, stamped: Stamped) -> None:
        if followed := self._calls.get(stamped.origin.parent_tool_use_id):
            followed.take(stamped)
