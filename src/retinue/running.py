"""The runs of this process that have not ended, and what others may do to them: stop, steer, extend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from retinue.engines.base import NOT_AT_WORK
from retinue.events import DeadlineExtended
from retinue.output.frame import plain
from retinue.places.base import Place
from retinue.sessions.store import SessionStore, State
from retinue.supervise import Record, Reins, Told
from retinue.types import Code, Failure, Refused, RunSpec, refused

LONGEST = 24 * 3600.0
"""Seconds a run may be given at once."""
MOST_TOLD = 1000
TOLD_CHARS = 16 * 2**20
"""Texts that are said to one run, and of all of them together: they are kept until it ends."""
SHORT = 8
"""Digits of an id, as it is said."""


class Held(Struct, frozen=True):
    """A run, and the hold others have on it."""

    spec: RunSpec
    reins: Reins
    record: Record


class Running:
    """By their ids, in the order they were begun; whoever steers or extends one may say its first 8 digits only."""

    def __init__(self, place: Place, store: SessionStore) -> None:
        self._place = place
        self._store = store
        self._runs: dict[str, Held] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    @contextmanager
    def held(self, spec: RunSpec, reins: Reins, record: Record) -> Iterator[None]:
        """A block in which the run is one of these."""
        self._runs[spec.run] = Held(spec, reins, record)
        try:
            yield
        finally:
            del self._runs[spec.run]

    def stop(self, run: str, failure: Failure) -> bool:
        """Stops a run; whether there was one of this id."""
        held = self._runs.get(run)
        if held:
            held.reins.stop(failure)
        return held is not None

    def stop_all(self, failure: Failure) -> None:
        for held in self._runs.values():
            held.reins.stop(failure)

    async def steer(self, run: str, text: str) -> None:
        """Says something to the agent of a run while it works; returns once its engine has taken it.

        Raises:
            Refused: nothing was said: `invalid_input`, `unsupported`, or the run is not at work.
        """
        held = self._runs.get(run) or await self._found(run)
        said = _checked(text, held.spec.limits.max_task_bytes)
        if held.reins.is_queued:
            raise refused(Code.CONFLICT, f"{_named(run)} {NOT_BEGUN}", "queued")
        all_told = held.reins.told
        if len(all_told) >= MOST_TOLD or sum(len(each.text) for each in all_told) + len(said) > TOLD_CHARS:
            raise refused(Code.CONFLICT, f"{_named(run)} {TOLD_ENOUGH}", "told_enough")
        told = Told(said)
        all_told.append(told)  # it stays there if nobody waits any longer: its agent may be given it all the same
        failure = await self._place.steer(held.spec, said)
        if not failure and not told.is_heard and held.spec.run not in self._runs:
            failure = NOT_AT_WORK  # what was said in vain has been told by now, and this was not among it
        if failure:
            all_told.remove(told)
            raise Refused(failure)
        told.is_taken = True

    async def extend(self, run: str, seconds: float) -> float:
        """Gives a run that works so many seconds more, beyond its ceiling, too; the timeout that holds then.

        Raises:
            Refused: its time is as it was: `invalid_input`, or the run is not at work.
        """
        if not 0 < seconds <= LONGEST:
            raise refused(Code.INVALID_INPUT, f"A run is given more than 0 and at most {LONGEST:g} seconds at once")
        held = self._runs.get(run) or await self._found(run)
        if held.reins.is_queued:
            raise refused(Code.CONFLICT, f"{_named(run)} {NOT_COUNTED}", "queued")
        timeout = held.reins.extend(float(seconds))
        if timeout is None:
            raise refused(Code.CONFLICT, f"{_named(run)} {ENDING}", "ending")
        await held.record(DeadlineExtended(float(seconds), timeout))
        return timeout

    async def _found(self, run: str) -> Held:
        """The run that these first digits name.

        Raises:
            Refused: none of these is: it has ended, is at work elsewhere, or never was.
        """
        session = await self._store.find(run)
        summary = await self._store.summary(session) if session else None
        if summary is None:
            raise refused(Code.SESSION_NOT_FOUND, f'There is no run "{run}". `retinue watch` shows what runs.')
        latest = summary.latest
        if latest.state in {State.QUEUED, State.RUNNING} and latest.run.startswith(run):
            if held := self._runs.get(latest.run):
                return held
            raise refused(Code.SESSION_BUSY, f"{_named(run)} {ELSEWHERE}")
        raise refused(Code.CONFLICT, f"{_named(run)} has ended. Resume its session to go on.", "ended")


NOT_BEGUN = "waits for a slot: its agent has not begun, and nothing was said to it. Try again once it has started."
NOT_COUNTED = "waits for a slot, which costs it no time. Try again once it has started."
TOLD_ENOUGH = "has been told as much as is kept for one run. Give the rest to the next run of its session."
ENDING = "is being stopped: no time helps it any more. Resume its session to go on."
ELSEWHERE = "is carried out by another process; `retinue steer` and `retinue extend` reach it there."


def _named(run: str) -> str:
    return f"Run {run[:SHORT]}"


def _checked(text: str, most_bytes: int) -> str:
    """The text as an agent is given it: without what is no text."""
    said = plain(text).strip()
    if not said:
        raise refused(Code.INVALID_INPUT, "The text is empty: say what the agent should know")
    if (size := len(said.encode())) > most_bytes:
        raise refused(
            Code.INVALID_INPUT,
            f"The text has {size} bytes; the limit is {most_bytes} (max_task_bytes). Put long material into a file "
            "and name the file.",
        )
    return said
