"""Slots of waiting runs: released meanwhile, and acquired again before they work."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.support.retinue_factory import scripted

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.scripted import HangStep, RunCallback, Script, ScriptedEngine, fail, reply
from retinue.model.runs import RunSpec
from retinue.model.tasks import Plan, Task
from retinue.sessions.memory import MemoryStore

LEAD = Agent(name="lead", tools=("read", "subagent"), model="big", fallback_models=("small",))


class Stage:
    """A lead whose first model fails while it waits for a worker; later attempts record when they work."""

    def __init__(self) -> None:
        self.worker_began = anyio.Event()
        self.at_work = 0
        self.most_at_work = 0

    def script(self, spec: RunSpec) -> Script:
        if spec.task == "wait":
            return RunCallback(self._began), HangStep()
        if spec.agent.name == "lead" and spec.model == "big":
            return RunCallback(lambda: self._ask_and_leave(spec)), fail("429 rate limit")
        return RunCallback(self._work), reply("worked")

    async def _began(self) -> None:
        self.worker_began.set()

    async def _ask_and_leave(self, spec: RunSpec) -> None:
        assert spec.delegation
        async with anyio.create_task_group() as group:
            asked = {"agent": "explorer", "task": "wait"}
            group.start_soon(spec.delegation.call, "spawn_subagent", "toolu_1", asked)
            await self.worker_began.wait()
            group.cancel_scope.cancel()

    async def _work(self) -> None:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        await anyio.wait_all_tasks_blocked()
        self.at_work -= 1


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_next_attempt_of_a_run_without_its_slot_waits_for_one(tmp_path: Path):
    stage = Stage()
    retinue = Retinue(
        cwd=tmp_path,
        engine="scripted",
        engines=scripted(ScriptedEngine(stage.script)),
        agents=[LEAD],
        environ={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        store=MemoryStore(),
        settings={"max_concurrency": 1},
    )
    async with retinue, anyio.create_task_group() as group:

        async def others() -> None:
            await stage.worker_began.wait()
            await retinue.delegate([("explorer", str(number)) for number in range(4)], max_concurrency=1)

        group.start_soon(others)
        plan = Plan(tasks=(Task(agent="lead", prompt="lead"),))
        (result,) = await retinue.run_plan(plan, retinue.call("nested"))
    assert (result.text, len(result.actual.attempts)) == ("worked", 2)
    assert stage.most_at_work == 1
