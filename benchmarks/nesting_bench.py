"""Nested runs that each think and delegate, and as many sequential runs that only think.

`python -m benchmarks.nesting_bench scripted|loop|pi nested|alone LEVELS`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
from tests.support.model_server import script64

from benchmarks.workload import print_cost, scratch
from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.agent_loop import ModelReply, ModelRequest, OnDelta, run_agent_loop
from retinue.engines.base import Emit, Engine, EngineInfo
from retinue.engines.scripted import CAPABILITIES, DelegateStep, Script, ScriptedEngine, ToolCallStep, WaitStep, reply
from retinue.engines.toolbox import AgentToolbox
from retinue.model.events import Text
from retinue.model.runs import RunSpec, ToolUse
from retinue.model.tasks import Plan, Task

TURN = 0.1
"""Seconds per model turn; each run has two: one that delegates or calls a tool, and one that answers."""
SPAWN = "spawn_subagent"
LEAD = Agent(name="lead", tools=("read", "subagent"))
SETTINGS = {"max_spawns": 10**6, "max_depth": 64}

Asks = Callable[[int], str]
"""Return the task of a run with this many runs below it."""


def script(spec: RunSpec) -> Script:
    """Return the steps of a scripted lead, whose task is the number of runs below it."""
    below = int(spec.task)
    asks = (
        DelegateStep({"agent": "lead", "task": str(below - 1)})
        if below
        else ToolCallStep(name="read", args={"path": "a.txt"})
    )
    return WaitStep(TURN), asks, WaitStep(TURN), reply("done")


class DelegatingModel:
    """A model that does the same in the agent loop."""

    name = "thinking"

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        await anyio.sleep(TURN)
        last = request.messages[-1]
        if last.role == "tool":
            return ModelReply(content=(Text("done"),))
        below = int(last.text)
        wanted = (SPAWN, {"agent": "lead", "task": str(below - 1)}) if below else ("read", {"path": "a.txt"})
        return ModelReply(content=(ToolUse("c1", *wanted),))


class LoopEngine:
    async def run(self, spec: RunSpec, emit: Emit) -> None:
        await run_agent_loop(DelegatingModel(), spec, AgentToolbox(), emit)


def make_pi_task(below: int) -> str:
    """Return the task for the model behind a real pi."""
    asks = (SPAWN, {"agent": "lead", "task": make_pi_task(below - 1)}) if below else ("read", {"path": "a.txt"})
    return script64([{"delay": TURN, "tool": asks[0], "args": asks[1]}, {"delay": TURN, "text": "done"}])


@contextmanager
def make_retinue(engine: str) -> Iterator[tuple[Retinue, Asks]]:
    if engine == "pi":
        from benchmarks.pi_bench import MODEL, environment

        with environment() as found:
            environ = {**found, "TMPDIR": scratch()}
            settings = {**SETTINGS, "model": MODEL}
            yield Retinue(cwd=scratch(), engine="pi", agents=[LEAD], environ=environ, settings=settings), make_pi_task
        return
    make: Callable[[], Engine] = LoopEngine if engine == "loop" else lambda: ScriptedEngine(script)
    kind = EngineInfo(name=engine, capabilities=CAPABILITIES, make=make, not_installed_reason=lambda: None)
    environ = {"HOME": scratch(), "TMPDIR": scratch()}
    made = Retinue(
        cwd=scratch(), engine=engine, engines={engine: kind}, agents=[LEAD], environ=environ, settings=SETTINGS
    )
    yield made, str


async def run_task(retinue: Retinue, task: str) -> None:
    plan = Plan(tasks=(Task(agent="lead", prompt=task),))
    (result,) = await retinue.run_plan(plan, retinue.call("nested"))
    assert (result.failure, result.text) == (None, "done"), result


async def main(engine: str, how: str, levels: int) -> None:
    with make_retinue(engine) as (retinue, asks):
        async with retinue:
            for _ in range(2):  # what a program does once; and processes that run already
                await run_task(retinue, asks(levels - 1))
            with print_cost(times=levels):
                for below in [levels - 1] if how == "nested" else [0] * levels:
                    await run_task(retinue, asks(below))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
