"""Trees of runs stopped at random moments: every started run ends and releases its slot."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import pytest
from tests.support.retinue_factory import scripted

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.base import engine_error
from retinue.engines.scripted import DelegateStep, FailEngine, Script, ScriptedEngine, Step, call, fail, reply
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded, RunQueued
from retinue.model.runs import RunSpec
from retinue.model.tasks import Mode, Plan, Task
from retinue.model.tool_names import SPAWN_TOOL
from retinue.runtime.event_bus import EventSubscription
from retinue.sessions.memory import MemoryStore

LEAD = Agent(name="lead", tools=("read", "subagent"), model="big", fallback_models=("small",))
ENDS: tuple[Step, ...] = (*[reply("ok")] * 8, fail("429 rate limit"), FailEngine(engine_error("It broke.")))


def tree(chance: random.Random) -> ScriptedEngine:
    """Leads that delegate several times, as deep as allowed; some fail."""

    def tasks() -> list[dict[str, str]]:
        return [{"agent": "lead", "task": str(chance.random())} for _ in range(chance.randint(1, 4))]

    def script(spec: RunSpec) -> Script:
        asks = [DelegateStep({"mode": chance.choice(["parallel", "chain"]), "tasks": tasks()}) for _ in range(2)]
        chosen: list[Step] = [step for step in asks if SPAWN_TOOL in spec.grant.tools and chance.random() < 0.7]
        return (call("read", path=spec.run, returns="x"), *chosen, chance.choice(ENDS))

    return ScriptedEngine(script)


async def carry_out(retinue: Retinue, watcher: EventSubscription, chance: random.Random) -> list[EventRecord]:
    """Return the events of a call whose runs are stopped at random, until none is active."""
    plan = Plan(
        tasks=tuple(Task(agent="lead", prompt=str(number)) for number in range(3)),
        mode=chance.choice([Mode.PARALLEL, Mode.CHAIN]),
    )
    events: list[EventRecord] = []

    async def meddle() -> None:
        async for record in watcher:
            events.append(record)
            if chance.random() < 0.02 and retinue._orchestrator.active_run_ids:
                retinue.stop(chance.choice(retinue._orchestrator.active_run_ids))

    async with anyio.create_task_group() as group:
        group.start_soon(meddle)
        await retinue.run_plan(plan, retinue.call("nested"))
        group.cancel_scope.cancel()
    return [*events, *watcher.drain()]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("seed", range(12))
async def test_random_stops_leave_only_ended_runs_and_free_slots(tmp_path: Path, seed: int):
    chance = random.Random(seed)
    size = chance.choice([1, 2, 4])
    async with (
        Retinue(
            cwd=tmp_path,
            engine="scripted",
            engines=scripted(tree(chance)),
            agents=[LEAD],
            environ={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
            store=MemoryStore(),
            settings={"max_concurrency": size, "max_spawns": 10**6},
        ) as retinue,
        retinue.events(deltas=False) as watcher,
    ):
        with anyio.fail_after(50):
            events = await carry_out(retinue, watcher, chance)
        orchestrator = retinue._orchestrator
        assert (orchestrator.active_run_ids, len(orchestrator.delegation)) == ((), 0)
        assert [slots.value for slots in orchestrator._slots.values()] == [size]
    begun = {one.origin.run: one.origin for one in events if isinstance(one.event, RunQueued)}
    ended = [one.origin.run for one in events if isinstance(one.event, RunEnded)]
    assert sorted(ended) == sorted(begun), "each placeholder once"
    for place, run in enumerate(ended):
        assert begun[run].parent_run not in ended[:place], "no run ends before those it asked for"
