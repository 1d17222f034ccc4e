"""A long-lived `Retinue`: calls are unlimited, spawns are limited, memory does not grow."""

from __future__ import annotations

import gc
from collections import Counter

import anyio
import pytest
from tests.support.retinue_factory import stage

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.scripted import DelegateStep, HangStep, Script, reply
from retinue.model.errors import ErrorCode
from retinue.model.events import RunQueued
from retinue.model.runs import RunSpec
from retinue.model.tasks import Plan, Task
from retinue.runtime.concurrency import MAX_BEGUN, RunIntake
from retinue.sessions.memory import MemoryRecord, MemoryStore, Session

CALLS = 10_000
CALLERS = 8
LEAD = Agent(name="lead", tools=("read", "subagent"))


class ForgettingStore(MemoryStore):
    """A store that keeps nothing, so that any growth is outside of it."""

    def claim(self, session: str | None = None) -> str:
        return self._new_id()

    async def open_record(self, spec: RunSpec) -> MemoryRecord:
        await anyio.lowlevel.checkpoint()
        return MemoryRecord(Session(spec.session))


async def answers_of(retinue: Retinue, calls: int) -> Counter[str]:
    """Make so many root calls, several at a time; return how often each answer came."""
    answers: Counter[str] = Counter()

    async def make_calls() -> None:
        for _ in range(calls // CALLERS):
            result = await retinue.run("explorer", "Look")
            answers[result.text if result.failure is None else result.failure.message] += 1

    async with anyio.create_task_group() as group:
        for _ in range(CALLERS):
            group.start_soon(make_calls)
    return answers


@pytest.mark.timeout(120)
async def test_ten_thousand_calls_of_one_retinue_are_answered_in_bounded_memory(scratch_home):
    early = CALLS // 5
    async with stage(scratch_home, reply("ok"), store=ForgettingStore()) as retinue:
        answers = await answers_of(retinue, early)
        gc.collect()
        before = len(gc.get_objects())
        answers += await answers_of(retinue, CALLS - early)
        gc.collect()
        grown = len(gc.get_objects()) - before
    assert answers == {"ok": CALLS}
    assert grown < CALLS // 20


async def test_continued_conversation_may_make_more_calls_than_max_spawns(scratch_home):
    options = {"store": None, "state": scratch_home / "state", "root": "c1", "settings": {"max_spawns": 1}}
    for _ in range(2):
        async with stage(scratch_home, reply("ok"), **options) as retinue:
            first = await retinue.run("explorer", "Look")
            again = await retinue.run("explorer", "Look again", session=first.session)
            assert (first.failure, again.failure) == (None, None)


async def test_endless_tree_of_agents_stops_at_64_spawns_per_root_call(scratch_home):
    def delegate_without_end(spec: RunSpec) -> Script:
        depth, task = spec.lineage.depth, spec.task
        more = [{"agent": "lead", "task": f"{task}.{part}"} for part in range(4)]
        return (DelegateStep({"mode": "parallel", "tasks": more}), reply("done")) if depth < 5 else (reply("done"),)

    depths: list[Counter[int]] = []
    settings = {"max_depth": 5}
    async with stage(scratch_home, delegate_without_end, agents=[LEAD], settings=settings) as retinue:
        for number in range(2):
            plan = Plan(tasks=(Task(agent="lead", prompt=f"part {number}"),))
            async with retinue.events(deltas=False) as watcher:
                (result,) = await retinue.run_plan(plan, retinue.call("nested"))
                started = [one.origin.depth for one in watcher.drain() if isinstance(one.event, RunQueued)]
            assert result.failure is None
            depths.append(Counter(started))
    assert [(found[1], found.total() - found[1]) for found in depths] == [(1, 64), (1, 64)]


async def test_two_root_calls_at_once_have_64_spawns_each(scratch_home):
    def delegate_16_tasks_four_times(spec: RunSpec) -> Script:
        if spec.lineage.depth > 1:
            return (reply("done"),)
        calls = [
            DelegateStep({"mode": "parallel", "tasks": [{"agent": "lead", "task": f"{call} {n}"} for n in range(16)]})
            for call in range(4)
        ]
        return (*calls, reply("done"))

    tasks = tuple(Task(agent="lead", prompt=f"root {number}") for number in range(2))
    async with stage(scratch_home, delegate_16_tasks_four_times, agents=[LEAD]) as retinue:
        async with retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
            for task in tasks:
                group.start_soon(retinue.run_plan, Plan(tasks=(task,)), retinue.call("nested"))
        started = Counter(one.origin.depth for one in watcher.drain() if isinstance(one.event, RunQueued))
    assert started == {1: 2, 2: 128}


async def test_a_thousand_calls_at_once_wait_before_they_open_files(scratch_home):
    most_live = 0

    def note_live(spec: RunSpec) -> Script:
        nonlocal most_live
        most_live = max(most_live, len(retinue._orchestrator.active_run_ids))
        return (reply(spec.task),)

    answers: list[str] = []

    async def call(number: int) -> None:
        answers.append((await retinue.run("explorer", str(number))).text)

    async with stage(scratch_home, note_live) as retinue, anyio.create_task_group() as group:
        for number in range(1000):
            group.start_soon(call, number)
    assert sorted(answers, key=int) == [str(number) for number in range(1000)]
    assert most_live == MAX_BEGUN


async def test_waiting_calls_are_stopped_by_stop_all(scratch_home):
    codes: Counter[ErrorCode | None] = Counter()

    async def call() -> None:
        result = await retinue.run("explorer", "Look")
        codes[result.failure.code if result.failure else None] += 1

    async with stage(scratch_home, HangStep()) as retinue:
        async with anyio.create_task_group() as group:
            for _ in range(MAX_BEGUN + 50):
                group.start_soon(call)
            while len(retinue._orchestrator.active_run_ids) < MAX_BEGUN:
                await anyio.lowlevel.checkpoint()
            retinue.stop_all()
        assert codes == {ErrorCode.ABORTED: MAX_BEGUN + 50}
        assert len(await retinue.sessions()) == MAX_BEGUN


async def test_cancelled_waiting_call_leaves_its_place_to_the_next(scratch_home):
    intake, begun = RunIntake(), list[int]()

    async def enter(number: int, runs: int) -> None:
        await intake.enter(runs, 4)
        begun.append(number)

    await intake.enter(3, 4)
    async with anyio.create_task_group() as group:
        with anyio.move_on_after(0):
            await intake.enter(4, 4)
        group.start_soon(enter, 1, 1)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(enter, 2, 9)
        group.start_soon(enter, 3, 1)
        await anyio.wait_all_tasks_blocked()
        assert begun == [1]
        intake.leave(3)
        intake.leave(1)
        await anyio.wait_all_tasks_blocked()
        assert begun == [1, 2]
        intake.leave(9)
    assert begun == [1, 2, 3]
