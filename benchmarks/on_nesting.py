"""Runs below one another, each of which thinks and delegates; and as many that only think, one after the other.

`python -m benchmarks.on_nesting scripted|loop|pi nested|alone LEVELS`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
from tests.support.model_server import script64

from benchmarks.gauge import gauged, scratch
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
"""Seconds a model thinks; each run has two turns: it delegates or calls a tool, and it answers."""
SPAWN = "spawn_subagent"
LEAD = Agent(name="lead", tools=("read", "subagent"))
SETTINGS = {"max_spawns": 10**6, "max_depth": 64}

Asks = Callable[[int], str]
"""The task of a run with so many below it."""


def script(spec: RunSpec) -> Script:
    """What a scripted lead does; its task is how many stand below it."""
    below = int(spec.task)
    asks = (
        DelegateStep({"agent": "lead", "task": str(below - 1)})
        if below
        else ToolCallStep(name="read", args={"path": "a.txt"})
    )
    return WaitStep(TURN), asks, WaitStep(TURN), reply("done")


class Thinking:
    """A model that does the same in the agent loop."""

    name = "thinking"

    async def reply(self, request: ModelRequest, tell: OnDelta) -> ModelReply:
        await anyio.sleep(TURN)
        last = request.messages[-1]
        if last.role == "tool":
            return ModelReply(content=(Text("done"),))
        below = int(last.text)
        wanted = (SPAWN, {"agent": "lead", "task": str(below - 1)}) if below else ("read", {"path": "a.txt"})
        return ModelReply(content=(ToolUse("c1", *wanted),))


class LoopEngine:
    async def run(self, spec: RunSpec, emit: Emit) -> None:
        await run_agent_loop(Thinking(), spec, AgentToolbox(), emit)


def on_pi(below: int) -> str:
    """The same for the model behind a real pi."""
    asks = (SPAWN, {"agent": "lead", "task": on_pi(below - 1)}) if below else ("read", {"path": "a.txt"})
    return script64([{"delay": TURN, "tool": asks[0], "args": asks[1]}, {"delay": TURN, "text": "done"}])


@contextmanager
def opened(engine: str) -> Iterator[tuple[Retinue, Asks]]:
    if engine == "pi":
        from benchmarks.on_pi import MODEL, environment

        with environment() as found:
            environ = {**found, "TMPDIR": scratch()}
            settings = {**SETTINGS, "model": MODEL}
            yield Retinue(cwd=scratch(), engine="pi", agents=[LEAD], environ=environ, settings=settings), on_pi
        return
    make: Callable[[], Engine] = LoopEngine if engine == "loop" else lambda: ScriptedEngine(script)
    kind = EngineInfo(name=engine, capabilities=CAPABILITIES, make=make, not_installed_reason=lambda: None)
    environ = {"HOME": scratch(), "TMPDIR": scratch()}
    made = Retinue(
        cwd=scratch(), engine=engine, engines={engine: kind}, agents=[LEAD], environ=environ, settings=SETTINGS
    )
    yield made, str


async def done(retinue: Retinue, task: str) -> None:
    plan = Plan(tasks=(Task(agent="lead", prompt=task),))
    (result,) = await retinue.run_plan(plan, retinue.call("nested"))
    assert (result.failure, result.text) == (None, "done"), result


async def main(engine: str, how: str, levels: int) -> None:
    with opened(engine) as (retinue, asks):
        async with retinue:
            for _ in range(2):  # what a program does once; and processes that run already
                await done(retinue, asks(levels - 1))
            with gauged(times=levels):
                for below in [levels - 1] if how == "nested" else [0] * levels:
                    await done(retinue, asks(below))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
