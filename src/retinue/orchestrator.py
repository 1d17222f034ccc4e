"""A plan carried out: slots, chain and parallel, the record of every run, and the hold others have on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import anyio
from msgspec import Struct, structs

from retinue.accounts import Accounts
from retinue.agents.roster import Roster
from retinue.attempts import Tally, attempt
from retinue.bus import Bus, Watcher
from retinue.checks import busy_session
from retinue.engines.base import Emit
from retinue.events import Notice, RunEnded, RunQueued, RunStarted, Steered
from retinue.guards.budget import NOT_STARTED, Purse
from retinue.guards.spawns import SpawnCount
from retinue.guards.watch import guards_for
from retinue.home import Household, Member, Share, knowing_prompt, new_token
from retinue.output.frame import one_line
from retinue.output.sanitise import Masker
from retinue.places.base import Place
from retinue.planner import Admission, Planned, Planner
from retinue.prompting.compose import step_prompt, with_files
from retinue.recorder import Recorder, shown_spec
from retinue.results import RunResult, exit_code
from retinue.running import Running
from retinue.secret import Secret
from retinue.sessions.store import Events, RunRecord, SessionStore, SessionSummary
from retinue.sessions.transcript import recalled
from retinue.slots import MAX_BEGUN, Intake, Seat, Slots
from retinue.supervise import Carry, Reins
from retinue.tool_names import is_delegation
from retinue.types import Call, Code, Failure, Home, Mode, Plan, Refused, Removed, RunSpec

LAST_WORDS = 5.0
"""Seconds to write down the end of a run whose caller is gone."""

CLOSING = 10.0
"""Seconds the last runs have to end when everything closes: as long as a stubborn process tree takes."""

Begun = Callable[[Sequence[RunSpec]], None]
"""Is told the runs of a plan, in the order of its tasks, before the first of them starts."""

NO_HOME = (
    "The agent's tools to delegate were left out: there is no socket by which it could reach this process. One needs "
    "a private folder with a short path in XDG_RUNTIME_DIR or TMPDIR."
)

UNHEARD = "The run ended before its agent was given what it was told: {}"
QUOTED = 200
"""Characters of what was said to an agent in vain."""

ABORTED = Failure(Code.ABORTED, "Stopped before it was done; what it had was kept. Resume the session to go on.")


NOT_BEGUN = Failure(Code.ABORTED, "The call was stopped before it started.")


class _Standing(Struct, frozen=True):
    """Where a run stands among others: what it shares, what it spends, and as what it delegates."""

    share: Share
    purse: Purse
    below: Call | None


class Orchestrator:
    """The one place where runs are begun, counted, stopped and written down."""

    def __init__(self, planner: Planner, place: Place, store: SessionStore, bus: Bus, masker: Masker) -> None:
        self._planner = planner
        self._place = place
        self._store = store
        self._bus = bus
        self._masker = masker
        self._slots: dict[int, Slots] = {}
        self._intake = Intake()
        self._calls: set[Reins] = set()
        self.running = Running(place, store)
        """The runs that have not ended, for whoever stops, steers or extends them."""
        self._call_ended = anyio.Event()
        self.accounts = Accounts(store)
        self._own_spawns = SpawnCount()
        """Of calls by the agent below which this whole process runs, if it does."""
        self.household = Household()
        """The runs that may delegate at this moment."""

    def admit(self, call: Call) -> Admission:
        """What holds for a call that may dispatch at all; see `Planner.admit`."""
        return self._planner.admit(call)

    def roster(self, call: Call) -> Roster:
        """Who can be called from where the call is made."""
        return self._planner.roster(call)

    def masked(self, text: str) -> str:
        """The text as it may leave."""
        return self._masker.mask(text)[0]

    def watch(self, *, deltas: bool = True) -> Watcher:
        """The events of all runs from now on."""
        return self._bus.watch(deltas=deltas)

    @property
    def live(self) -> tuple[str, ...]:
        """Ids of the runs that have not ended."""
        return tuple(self.running)

    async def session(self, name: str) -> SessionSummary | None:
        """The session that an id, or a prefix of at least 8 digits, of it or of one of its runs names.

        Raises:
            Refused: `storage`: there is one, and it cannot be read.
        """
        session = await self._store.find(name)
        return await self._store.summary(session) if session else None

    def history(self, session: str, *, run: str | None = None) -> Events:
        """The events of a session, or of one of its runs, from the first."""
        return self._store.events(session, run=run)

    async def end_of(self, session: str) -> RunEnded | None:
        """How the latest run of a session ended; None if it has not. Its cost does not grow with the session.

        Raises:
            Refused: `storage`.
        """
        last = await self._store.tail(session, 1)
        return last[0].event if last and isinstance(last[0].event, RunEnded) else None

    async def carry_out(self, plan: Plan, call: Call, begun: Begun | None = None) -> tuple[RunResult, ...]:
        """Carries the plan out and returns a result per run, in the order of its tasks.

        A chain stops at its first failure: then there are fewer results than tasks, and `begun` hears of none.

        Raises:
            Refused: the whole call was refused; nothing was started.
        """
        admitted = self._planner.admit(call)
        planned = await self._planner.plan(plan, admitted)
        root = call.lineage.root
        if not self.accounts.knows(root) or any(task.spec.resumes for task in planned):
            await self.accounts.go_on(root)
        parent = self.household.member(call.lineage.parent_run)
        share = self._share(call, admitted, parent)
        if share.is_counted:
            share.spawns.add(len(planned), admitted.settings.max_spawns)
        with self.accounts.kept(root):
            if parent:
                async with parent.waiting():
                    return await self._begun(plan, planned, share, begun)
            max_begun = max(MAX_BEGUN, 2 * admitted.settings.max_concurrency)
            return await self._begun(plan, planned, share, begun, max_begun)

    def _share(self, call: Call, admitted: Admission, parent: Member | None) -> Share:
        if parent:
            return structs.replace(parent.share, is_counted=True)
        slots, is_counted = self._slots_of(admitted.settings.max_concurrency), call.lineage.depth > 0
        return Share(slots, self._own_spawns if is_counted else SpawnCount(), is_counted)

    def stop(self, run: str, failure: Failure = ABORTED) -> bool:
        """Stops a live run; whether there was one of this id."""
        return self.running.stop(run, failure)

    def stop_all(self, failure: Failure = ABORTED) -> int:
        """Stops every call: its live runs, and those it has not begun; how many were live."""
        for reins in self._calls:
            reins.stop(failure)
        self.running.stop_all(failure)
        return len(self.running)

    async def close(self) -> None:
        """Stops what is left and waits until it has ended; bounded."""
        self.stop_all()
        with anyio.move_on_after(CLOSING, shield=True):
            while self._calls:
                self._call_ended = anyio.Event()
                await self._call_ended.wait()

    def _slots_of(self, size: int) -> Slots:
        if size not in self._slots:
            self._slots[size] = Slots(size)
        return self._slots[size]

    async def _begun(
        self, plan: Plan, planned: list[Planned], share: Share, begun: Begun | None, max_begun: int | None = None
    ) -> tuple[RunResult, ...]:
        """Carry the plan out; a root call waits until no more than `max_begun` runs have begun with its own."""
        hold, entered = Reins(), 0
        self._calls.add(hold)
        try:
            if max_begun is not None:
                with hold.hold():
                    await self._intake.enter(len(planned), max_begun)
                    entered = len(planned)
                if hold.failure:
                    raise Refused(NOT_BEGUN)
            if plan.mode is Mode.CHAIN:
                return await self._chain(planned, share, hold)
            return await self._parallel(planned, share, hold, begun)
        finally:
            if entered:
                self._intake.leave(entered)
            self._calls.discard(hold)
            self._call_ended.set()

    async def _parallel(
        self, planned: list[Planned], share: Share, hold: Reins, begun: Begun | None
    ) -> tuple[RunResult, ...]:
        planned = [
            structs.replace(task, spec=_identified(task.spec, self._store)) if task.is_recorded else task
            for task in planned
        ]
        if begun:
            begun([task.spec for task in planned])
        if len(planned) == 1:
            return (await self._run(planned[0], planned[0].spec.prompt, share, hold),)
        results: dict[int, RunResult] = {}

        async def one(number: int, task: Planned) -> None:
            results[number] = await self._run(task, task.spec.prompt, share, hold)

        async with anyio.create_task_group() as group:
            for number, task in enumerate(planned):
                group.start_soon(one, number, task)
        return tuple(results[number] for number in range(len(planned)))

    async def _chain(self, planned: list[Planned], share: Share, hold: Reins) -> tuple[RunResult, ...]:
        first, waiting = planned[0].spec, [*planned]
        results: list[RunResult] = []
        try:
            while waiting and not (results and (results[-1].failure or hold.failure)):
                step = waiting.pop(0)
                try:
                    prompt = step_prompt(step.spec.prompt, first.task, results)
                except ValueError as error:
                    prompt = step.spec.prompt
                    step = structs.replace(step, failure=Failure(Code.INVALID_INPUT, str(error), "prompt_size"))
                identified = structs.replace(step, spec=_identified(step.spec, self._store))
                results.append(await self._run(identified, prompt, share, hold))
        finally:
            share.give_back(len(waiting))
        return tuple(results)

    async def _run(self, planned: Planned, prompt: str, share: Share, hold: Reins) -> RunResult:
        """One run from its acceptance to its recorded end; whoever is cancelled meanwhile leaves an ended run."""
        if planned.failure and not planned.spec.run:
            share.give_back(1)
            return self._refused(planned.spec, planned.failure)
        spec, below, prompt = planned.spec, planned.below, with_files(planned.blocks(), prompt)
        if prompt is not spec.prompt:
            spec = structs.replace(spec, prompt=prompt)
            below = below and knowing_prompt(below, spec)
        try:
            record = await self._store.begin(spec)
        except Refused as lost:  # another took the session since it was planned
            share.give_back(1)
            is_busy = lost.failure.code is Code.SESSION_BUSY
            why = busy_session(planned.asked_session) if is_busy else lost.failure
            return self._refused(structs.replace(spec, run=""), why)
        reins = Reins(hold.failure)
        if below and not planned.failure:
            spec = self._at_home(spec)
        masker = self._masker.plus(secret.reveal() for secret in _secrets(spec))
        recorder, tally = Recorder(spec, record, self._bus, masker), Tally(spec)
        standing = _Standing(share, self._purse(spec), below)
        queued = recorder.masked(RunQueued.of(spec))
        cancelled: BaseException | None = None
        with self.running.held(spec, reins, recorder.note):
            try:
                if planned.failure:
                    await recorder.keep(queued)
                failure = planned.failure or await self._work(tally, recorder, queued, reins, standing)
            except anyio.get_cancelled_exc_class() as error:
                cancelled, failure = error, reins.failure or ABORTED
        if reins.timeout:
            tally.extend(reins.timeout, reins.extension)
        for told in reins.unheard:
            # Masked first: a secret that is cut or put on one line is not known for one any more.
            quoted = one_line(recorder.masked(Steered(told.text)).text, QUOTED)
            tally.note(await recorder.note(Notice("steer_missed", UNHEARD.format(quoted))))
        result = recorder.result(tally.result(failure, standing.purse.nested), queued)
        with anyio.move_on_after(LAST_WORDS, shield=True):
            try:
                await recorder.keep(RunEnded.of(result))
            finally:
                await record.release()
        if cancelled:
            raise cancelled
        return _kept(result, record)

    def _refused(self, spec: RunSpec, failure: Failure) -> RunResult:
        """The result of a task that was not started and left nothing behind."""
        shown = shown_spec(spec, *map(self.masked, (spec.name, spec.agent.name, spec.task)))
        shown_failure = structs.replace(failure, message=self.masked(failure.message))
        return RunResult(spec=shown, failure=shown_failure, exit_code=exit_code(failure))

    async def _work(
        self, tally: Tally, recorder: Recorder, queued: RunQueued, reins: Reins, standing: _Standing
    ) -> Failure | None:
        """The run from its place in the queue to its last attempt; why it failed."""
        seat = standing.share.slots.seat()
        try:
            if failure := await _seated(seat, recorder, queued, reins, standing.purse):
                return failure
            tally.start()
            for notice in tally.spec.notices:
                await recorder.note(Notice("planning", notice))
            watch = guards_for(tally.spec.limits, anyio.current_time(), standing.purse)
            reins.begin(watch)
            carry = self._carry(tally.spec, standing, seat)
            recall = partial(recalled, self._store, tally.spec.session)
            return await attempt(tally, carry, recorder.note, watch, reins, recall)
        finally:
            seat.give()

    def _at_home(self, spec: RunSpec) -> RunSpec:
        """The spec with where it calls home; where it cannot, without the tools that would."""
        if address := self.household.address():
            return structs.replace(spec, home=Home(address, new_token()))
        tools = tuple(tool for tool in spec.grant.tools if not is_delegation(tool))
        taken = tuple(Removed(tool, "home") for tool in spec.grant.tools if is_delegation(tool))
        grant = structs.replace(spec.grant, tools=tools, removed=(*spec.grant.removed, *taken))
        return structs.replace(spec, grant=grant, notices=(*spec.notices, NO_HOME))

    def _purse(self, spec: RunSpec) -> Purse:
        parent = self.household.member(spec.lineage.parent_run)
        return Purse(spec.limits, parent.purse if parent else self.accounts.purse(spec.lineage.root))

    def _carry(self, spec: RunSpec, standing: _Standing, seat: Seat) -> Carry:
        """How an attempt at the run is carried out: by its place, within the household if the run may delegate."""
        below, home, purse = standing.below, spec.home, standing.purse
        if (below is None or home is None) and not purse.bounds_money:
            return self._place.carry

        async def carry(attempted: RunSpec, emit: Emit) -> None:
            work = partial(self._place.carry, structs.replace(attempted, limits=purse.left(attempted.limits)), emit)
            if below is None or home is None:
                await work()
            else:
                if not seat.is_held:  # the attempt before gave it away, and ended before it had one again
                    await seat.take()
                await self.household.host(Member(spec.run, home.token, below, seat, standing.share, purse), work)

        return carry


async def _seated(seat: Seat, recorder: Recorder, queued: RunQueued, reins: Reins, purse: Purse) -> Failure | None:
    """Why the run is not to work: it was stopped, or nothing is left to spend. None: it is started on its slot."""
    failure = reins.failure or purse.overspent(NOT_STARTED)
    if not failure and seat.take_at_once():
        await recorder.begin(queued)
        return reins.failure
    await recorder.keep(queued)
    if not failure:
        with reins.hold():
            await seat.take()
        failure = reins.failure or purse.overspent(NOT_STARTED)
    if not failure:
        await recorder.note(RunStarted())
    return failure or reins.failure


def _identified(spec: RunSpec, store: SessionStore) -> RunSpec:
    """The spec with ids of its own: a session's first run has the session's id, later ones have theirs."""
    if spec.resumes:
        return structs.replace(spec, run=store.claim(spec.session))
    run = store.claim()
    return structs.replace(spec, run=run, session=run)


def _secrets(spec: RunSpec) -> tuple[Secret, ...]:
    return (*spec.secrets.values(), *([spec.home.token] if spec.home else ()))


def _kept(result: RunResult, record: RunRecord) -> RunResult:
    """The result with whether all of it is in the store, and if not, why."""
    actual = structs.replace(result.actual, saved=record.fault is None)
    if record.fault and record.fault.message not in actual.notices:
        actual = structs.replace(actual, notices=(*actual.notices, record.fault.message))
    return structs.replace(result, actual=actual)
