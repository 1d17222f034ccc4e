"""A `Retinue` that lives long: its calls are not used up, what agents start is bounded, memory does not grow."""

from __future__ import annotations

import gc
from collections import Counter

import anyio
import pytest
from tests.stage import stage

from retinue.agents.definition import Agent
from retinue.app import Retinue
from retinue.engines.scripted import Script, Spawn, say
from retinue.events import RunQueued
from retinue.sessions.memory import MemoryRecord, MemoryStore, Session
from retinue.types import Plan, RunSpec, Task

CALLS = 10_000
CALLERS = 8
LEAD = Agent(name="lead", tools=("read", "subagent"))


class ForgettingStore(MemoryStore):
    """A store that keeps nothing: what grows while it is used grows elsewhere."""

    def claim(self, session: str | None = None) -> str:
        return self._new_id()

    async def begin(self, spec: RunSpec) -> MemoryRecord:
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
    async with stage(scratch_home, say("ok"), store=ForgettingStore()) as retinue:
        answers = await answers_of(retinue, early)
        gc.collect()
        before = len(gc.get_objects())
        answers += await answers_of(retinue, CALLS - early)
        gc.collect()
        grown = len(gc.get_objects()) - before
    assert answers == {"ok": CALLS}
    assert grown < CALLS // 20


async def test_a_conversation_that_is_continued_makes_more_calls_than_max_spawns(scratch_home):
    options = {"store": None, "state": scratch_home / "state", "root": "c1", "settings": {"max_spawns": 1}}
    for _ in range(2):
        async with stage(scratch_home, say("ok"), **options) as retinue:
            first = await retinue.run("explorer", "Look")
            again = await retinue.run("explorer", "Look again", session=first.session)
            assert (first.failure, again.failure) == (None, None)


async def test_a_tree_of_agents_without_end_stops_at_64_spawns_for_each_root_call(scratch_home):
    def delegate_without_end(spec: RunSpec) -> Script:
        depth, task = spec.lineage.depth, spec.task
        more = [{"agent": "lead", "task": f"{task}.{part}"} for part in range(4)]
        return (Spawn({"mode": "parallel", "tasks": more}), say("done")) if depth < 5 else (say("done"),)

    depths: list[Counter[int]] = []
    settings = {"max_depth": 5}
    async with stage(scratch_home, delegate_without_end, agents=[LEAD], settings=settings) as retinue:
        for number in range(2):
            plan = Plan(tasks=(Task(agent="lead", prompt=f"part {number}"),))
            async with retinue.events(deltas=False) as watcher:
                (result,) = await retinue.carry_out(plan, retinue.call("nested"))
                started = [one.origin.depth for one in watcher.waiting() if isinstance(one.event, RunQueued)]
            assert result.failure is None
            depths.append(Counter(started))
    assert [(found[1], found.total() - found[1]) for found in depths] == [(1, 64), (1, 64)]


async def test_two_root_calls_at_once_have_64_spawns_each(scratch_home):
    def delegate_16_tasks_four_times(spec: RunSpec) -> Script:
        if spec.lineage.depth > 1:
            return (say("done"),)
        calls = [
            Spawn({"mode": "parallel", "tasks": [{"agent": "lead", "task": f"{call} {n}"} for n in range(16)]})
            for call in range(4)
        ]
        return (*calls, say("done"))

    tasks = tuple(Task(agent="lead", prompt=f"root {number}") for number in range(2))
    async with stage(scratch_home, delegate_16_tasks_four_times, agents=[LEAD]) as retinue:
        async with retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
            for task in tasks:
                group.start_soon(retinue.carry_out, Plan(tasks=(task,)), retinue.call("nested"))
        started = Counter(one.origin.depth for one in watcher.waiting() if isinstance(one.event, RunQueued))
    assert started == {1: 2, 2: 128}
