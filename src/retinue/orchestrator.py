"""A plan carried out: slots, chain and parallel, the record of every run, and the hold others have on it."""

from __future__ import annotations

from collections import Counter

import anyio
from msgspec import structs

from retinue.agents.roster import Roster
from retinue.attempts import Recall, Tally, attempt
from retinue.bus import Bus, Watcher
from retinue.events import Notice, RunEnded, RunQueued, RunStarted
from retinue.guards.watch import guards_for
from retinue.output.sanitise import Masker
from retinue.places.base import Place
from retinue.planner import Planned, Planner
from retinue.prompting.compose import chained, first_step
from retinue.recorder import Recorder
from retinue.results import RunResult
from retinue.sessions.store import RunRecord, SessionStore
from retinue.sessions.transcript import messages
from retinue.settings import Settings
from retinue.supervise import Reins
from retinue.types import Call, Code, Failure, Message, Mode, Plan, Refused, RunSpec, refused

LAST_WORDS = 5.0
"""Seconds to write down the end of a run whose caller is gone."""

ABORTED = Failure(Code.ABORTED, "Stopped before it was done; what it had was kept. Resume the session to go on.")


class Slots:
    """How many runs work at once. Others wait in the order they came, and waiting costs them no timeout."""

    def __init__(self, size: int) -> None:
        self._free = anyio.Semaphore(size, fast_acquire=True)

    def seat(self) -> Seat:
        return Seat(self._free)


class Seat:
    """One run's claim on a slot. Giving back a slot it does not hold does nothing."""

    def __init__(self, free: anyio.Semaphore) -> None:
        self._free = free
        self.is_held = False

    def take_at_once(self) -> bool:
        try:
            self._free.acquire_nowait()
        except anyio.WouldBlock:
            return False
        self.is_held = True
        return True

    async def take(self) -> None:
        await self._free.acquire()
        self.is_held = True

    def give(self) -> None:
        if self.is_held:
            self.is_held = False
            self._free.release()


class Orchestrator:
    """The one place where runs are begun, counted, stopped and written down."""

    def __init__(
        self, planner: Planner, place: Place, store: SessionStore, bus: Bus, masker: Masker, slots: Slots
    ) -> None:
        self._planner = planner
        self._place = place
        self._store = store
        self._bus = bus
        self._masker = masker
        self._slots = slots
        self._reins: dict[str, Reins] = {}
        self._spawned: Counter[str] = Counter()

    def admit(self, call: Call) -> Settings:
        """The settings of a call that may dispatch at all; see `Planner.admit`."""
        return self._planner.admit(call)

    def roster(self, call: Call) -> Roster:
        """Who can be called from where the call is made."""
        return self._planner.roster(call)

    def watch(self, *, deltas: bool = True) -> Watcher:
        """The events of all runs from now on."""
        return self._bus.watch(deltas=deltas)

    def masked(self, text: str) -> str:
        """The text without secrets: for words that leave without ever standing in a record."""
        masked, _ = self._masker.mask(text)
        return masked

    @property
    def live(self) -> tuple[str, ...]:
        """Ids of the runs that have not ended."""
        return tuple(self._reins)

    async def carry_out(self, plan: Plan, call: Call) -> tuple[RunResult, ...]:
        """Carries the plan out and returns a result per run, in the order of its tasks.

        A chain stops at its first failure: then there are fewer results than tasks.

        Raises:
            Refused: the whole call was refused; nothing was started.
        """
        settings = self._planner.admit(call)
        planned = await self._planner.plan(plan, call, settings)
        self._count(call.lineage.root, len(planned), settings.max_spawns)
        if plan.mode is Mode.CHAIN:
            return await self._chain(planned)
        return await self._parallel(planned)

    def stop(self, run: str, failure: Failure = ABORTED) -> bool:
        """Stops a live run; whether there was one of this id."""
        reins = self._reins.get(run)
        if reins is None:
            return False
        reins.stop(failure)
        return True

    def stop_all(self, failure: Failure = ABORTED) -> int:
        for reins in self._reins.values():
            reins.stop(failure)
        return len(self._reins)

    def _count(self, root: str, runs: int, limit: int) -> None:
        if self._spawned[root] + runs > limit:
            raise refused(
                Code.SPAWN_LIMIT,
                f"This conversation has started {self._spawned[root]} runs and may start {limit} (max_spawns); "
                f"{runs} more were refused and nothing was started. Do the rest without delegating.",
            )
        self._spawned[root] += runs

    async def _parallel(self, planned: list[Planned]) -> tuple[RunResult, ...]:
        if len(planned) == 1:
            return (await self._run(planned[0]),)
        results: dict[int, RunResult] = {}

        async def one(number: int, task: Planned) -> None:
            results[number] = await self._run(task)

        async with anyio.create_task_group() as group:
            for number, task in enumerate(planned):
                group.start_soon(one, number, task)
        return tuple(results[number] for number in range(len(planned)))

    async def _chain(self, planned: list[Planned]) -> tuple[RunResult, ...]:
        first_task = planned[0].spec.task
        results: list[RunResult] = []
        for step in planned:
            if results:
                before = results[-1]
                source = f"step {len(results)} ({before.spec.agent.name})"
                prompt = chained(step.spec.prompt, previous=before.text, source=source, first_task=first_task)
            else:
                prompt = first_step(step.spec.prompt)
            results.append(await self._run(structs.replace(step, spec=structs.replace(step.spec, prompt=prompt))))
            if results[-1].failure:
                break
        return tuple(results)

    async def _run(self, planned: Planned) -> RunResult:
        spec = _identified(planned.spec, self._store)
        try:
            record = await self._store.begin(spec)
        except Refused as lost:  # another process took the session since it was planned
            return RunResult(spec=spec, failure=lost.failure, exit_code=1)
        reins = self._reins[spec.run] = Reins()
        recorder = Recorder(spec, record, self._bus, self._masker)
        tally = Tally(spec)
        try:
            return await self._ended(recorder, record, await self._work(planned.failure, tally, recorder, reins))
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(LAST_WORDS, shield=True):
                await self._ended(recorder, record, tally.result(ABORTED))
            raise
        finally:
            del self._reins[spec.run]
            with anyio.move_on_after(LAST_WORDS, shield=True):
                await record.release()

    async def _work(self, failure: Failure | None, tally: Tally, recorder: Recorder, reins: Reins) -> RunResult:
        """The run from its acceptance to its last attempt."""
        queued = _queued(tally.spec)
        if failure:
            await recorder.note(queued)
            return tally.result(failure)
        seat = self._slots.seat()
        try:
            await self._wait_for(seat, recorder, queued, reins)
            if not seat.is_held or reins.failure:
                return tally.result(reins.failure)
            tally.start()
            for notice in tally.spec.notices:
                await recorder.note(Notice("agent", notice))
            watch = guards_for(tally.spec.limits, anyio.current_time())
            failure = await attempt(tally, self._place.carry, recorder.note, watch, reins, self._recall(tally.spec))
        finally:
            seat.give()
        return tally.result(failure)

    async def _wait_for(self, seat: Seat, recorder: Recorder, queued: RunQueued, reins: Reins) -> None:
        """Returns with the run started on its slot, or stopped while it waited for one."""
        if seat.take_at_once():
            await recorder.begin(queued)
            return
        await recorder.note(queued)
        with reins.hold():
            await seat.take()
        if seat.is_held and not reins.failure:
            await recorder.note(RunStarted())

    def _recall(self, spec: RunSpec) -> Recall:
        async def recall() -> tuple[Message, ...]:
            return messages([stamped async for stamped in self._store.events(spec.session)])

        return recall

    async def _ended(self, recorder: Recorder, record: RunRecord, result: RunResult) -> RunResult:
        """Writes the end of the run down and returns its result as it leaves: masked, with what really happened."""
        ended = recorder.masked(
            RunEnded(
                text=result.text,
                answer=result.answer,
                failure=result.failure,
                exit_code=result.exit_code,
                usage=result.usage,
                elapsed=result.elapsed,
                finalized=result.finalized,
                actual=result.actual,
            )
        )
        task = recorder.masked(_queued(result.spec)).task
        actual = structs.replace(ended.actual, masks=recorder.masks, saved=recorder.saved)
        await recorder.note(structs.replace(ended, actual=actual))
        return structs.replace(
            result,
            spec=structs.replace(result.spec, task=task),
            text=ended.text,
            failure=ended.failure,
            finalized=ended.finalized,
            session_file=record.file,
            actual=structs.replace(actual, saved=recorder.saved),
        )


def _identified(spec: RunSpec, store: SessionStore) -> RunSpec:
    """The spec with ids of its own: a session's first run has the session's id, later ones have theirs."""
    if spec.resumes:
        return structs.replace(spec, run=store.claim(spec.session))
    run = store.claim()
    return structs.replace(spec, run=run, session=run)


def _queued(spec: RunSpec) -> RunQueued:
    return RunQueued(
        name=spec.name,
        agent=spec.agent.name,
        task=spec.task,
        cwd=spec.cwd,
        surface=spec.surface,
        engine=spec.engine,
        model=spec.model,
        timeout=spec.limits.timeout,
        tools=spec.grant.tools,
        resumes=spec.resumes,
        layer=spec.agent.layer,
        digest=spec.agent.digest,
        provider=spec.agent.provider,
        thinking=spec.agent.thinking,
    )
