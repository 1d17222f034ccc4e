"""Trees of runs that are stopped here and there, at any moment: whatever began has ended, and nothing is kept."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import pytest
from tests.stage import scripted

from retinue.agents.definition import Agent
from retinue.app import Retinue
from retinue.bus import Watcher
from retinue.engines.base import engine_error
from retinue.engines.scripted import Raise, Script, ScriptedEngine, Spawn, Step, call, fail, say
from retinue.events import RunEnded, RunQueued, Stamped
from retinue.sessions.memory import MemoryStore
from retinue.types import Mode, Plan, RunSpec, Task

LEAD = Agent(name="lead", tools=("read", "subagent"), model="big", fallback_models=("small",))
ENDS: tuple[Step, ...] = (*[say("ok")] * 8, fail("429 rate limit"), Raise(engine_error("It broke.")))


def tree(chance: random.Random) -> ScriptedEngine:
    """Leads that ask for others, several times, as deep as they may; some fail."""

    def tasks() -> list[dict[str, str]]:
        return [{"agent": "lead", "task": str(chance.random())} for _ in range(chance.randint(1, 4))]

    def script(spec: RunSpec) -> Script:
        asks = [Spawn({"mode": chance.choice(["parallel", "chain"]), "tasks": tasks()}) for _ in range(2)]
        chosen: list[Step] = [step for step in asks if spec.home and chance.random() < 0.7]
        return (call("read", path=spec.run, returns="x"), *chosen, chance.choice(ENDS))

    return ScriptedEngine(script)


async def carry_out(retinue: Retinue, watcher: Watcher, chance: random.Random) -> list[Stamped]:
    """The events of a call of which one run or another is stopped, until nothing lives."""
    plan = Plan(
        tasks=tuple(Task(agent="lead", prompt=str(number)) for number in range(3)),
        mode=chance.choice([Mode.PARALLEL, Mode.CHAIN]),
    )
    events: list[Stamped] = []

    async def meddle() -> None:
        async for stamped in watcher:
            events.append(stamped)
            if chance.random() < 0.02 and retinue._orchestrator.live:
                retinue.stop(chance.choice(retinue._orchestrator.live))

    async with anyio.create_task_group() as group:
        group.start_soon(meddle)
        await retinue.carry_out(plan, retinue.call("nested"))
        group.cancel_scope.cancel()
    return [*events, *watcher.waiting()]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("seed", range(12))
async def test_whatever_is_stopped_all_that_began_has_ended_and_every_slot_is_free(tmp_path: Path, seed: int):
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
        assert (orchestrator.live, len(orchestrator.household)) == ((), 0)
        assert [slots._free.value for slots in orchestrator._slots.values()] == [size]
    begun = {one.origin.run: one.origin for one in events if isinstance(one.event, RunQueued)}
    ended = [one.origin.run for one in events if isinstance(one.event, RunEnded)]
    assert sorted(ended) == sorted(begun), "each of them once"
    for place, run in enumerate(ended):
        assert begun[run].parent_run not in ended[:place], "no run ends before those it asked for"
