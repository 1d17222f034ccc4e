"""Let one storage call of a whole run fail, or all from then on, and check what the user is told.

fault = StorageFault(errno.ENOSPC, nth=7, forever=True)
outcome = await run_under_fault(folder, fault)
assert find_lies(outcome) == []
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.support.retinue_factory import stage

from retinue.engines.scripted import call, reply
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded
from retinue.model.results import RunResult
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.store import INTERRUPTED
from retinue.testing.stores import read_all

BY_PATH = ("open", "mkdir", "chmod", "rename", "replace", "unlink", "rmdir", "listdir", "scandir", "stat", "lstat")
BY_DESCRIPTOR = ("write", "ftruncate", "fsync", "fdatasync", "fchmod", "fstat")
ANSWER = "The entry point is main.py"


class StorageFault:
    """Fails the Nth storage call below a folder, or every call from the Nth on."""

    def __init__(self, number: int, *, nth: int, forever: bool) -> None:
        self.calls = 0
        self._number = number
        self._nth = nth
        self._forever = forever
        self._descriptors: set[int] = set()
        self._lock = threading.Lock()

    @property
    def has_struck(self) -> bool:
        return self.calls >= self._nth

    @contextmanager
    def below(self, folder: Path) -> Iterator[None]:
        """Make calls about this folder fail for the time of the block."""
        originals = {name: getattr(os, name) for name in (*BY_PATH, *BY_DESCRIPTOR, "close")}
        failing = {name: self._wrap(originals[name], name, lambda path: _is_below(path, folder)) for name in BY_PATH}
        failing |= {name: self._wrap(originals[name], name, self._descriptors.__contains__) for name in BY_DESCRIPTOR}
        failing["close"] = self._forget(originals["close"])
        for name, replacement in failing.items():
            setattr(os, name, replacement)
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(os, name, original)

    def _wrap(self, original: Any, name: str, concerns: Callable[[Any], bool]) -> Callable[..., Any]:
        @wraps(original)
        def call_or_fail(target: Any = ".", *args: Any, **options: Any) -> Any:
            is_ours = concerns(target)
            if is_ours:
                with self._lock:
                    self.calls += 1
                    fails = self.calls == self._nth or (self._forever and self.calls > self._nth)
                if fails:
                    raise OSError(
                        self._number, os.strerror(self._number), target if isinstance(target, str) else None
                    )
            result = original(target, *args, **options)
            if is_ours and name == "open":
                self._descriptors.add(result)
            return result

        return call_or_fail

    def _forget(self, original: Callable[[int], None]) -> Callable[..., None]:
        def close(descriptor: int) -> None:
            self._descriptors.discard(descriptor)
            original(descriptor)

        return close


def _is_below(path: Any, folder: Path) -> bool:
    if not isinstance(path, str | os.PathLike):
        return False
    text = os.fspath(path)
    return isinstance(text, str) and text.startswith(f"{folder}/") and "sqlite" not in text


class FaultOutcome(Struct, frozen=True):
    """What a run under a storage fault reported, and what a later process reads."""

    result: RunResult
    shown: list[EventRecord]
    stored: list[EventRecord]


async def run_under_fault(home: Path, fault: StorageFault) -> FaultOutcome:
    """Run one agent with a tool call while the fault strikes; then read its session with a new store."""
    state = home / "state"
    shown: list[EventRecord] = []
    with fault.below(state):
        retinue = stage(home, call("read", path="main.py"), reply(ANSWER), store=None, state=state)
        async with retinue, retinue.events(deltas=False) as events:
            result = await retinue.run("explorer", "Find the entry point")
            async for record in events:
                shown.append(record)
                if isinstance(record.event, RunEnded):
                    break
    store = JsonlStore(state)
    await store.recover()
    session = result.session
    return FaultOutcome(result, shown, await read_all(store, session))


def find_lies(outcome: FaultOutcome) -> list[str]:
    """Return what the run reported and is not so."""
    lies: list[str] = []
    if outcome.result.failure or outcome.result.text != ANSWER:
        lies.append(f"the answer was lost: {outcome.result.failure}")
    if outcome.result.actual.saved and outcome.stored != outcome.shown:
        lies.append(f"{len(outcome.shown)} events were shown and reported as saved, {len(outcome.stored)} are stored")
    foreign = [record for record in outcome.stored if record not in outcome.shown and not _is_recovered(record)]
    lies += [f"event {record.seq} is stored and was never shown" for record in foreign]
    return lies


def _is_recovered(record: EventRecord) -> bool:
    return isinstance(record.event, RunEnded) and record.event.failure == INTERRUPTED
