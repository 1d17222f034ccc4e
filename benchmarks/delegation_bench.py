"""Empty runs, delegated over the control socket, and the same plans run directly.

`python -m benchmarks.delegation_bench called|direct N`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
from msgspec import structs

from benchmarks.workload import print_cost, scratch
from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.base import EngineInfo
from retinue.engines.scripted import CAPABILITIES, RunCallback, Script, ScriptedEngine, reply
from retinue.model.runs import CallbackAddress, RunSpec
from retinue.model.tasks import Plan, Task
from retinue.sessions.memory import MemoryStore

LINES = 4
"""Concurrent calls."""
SPAWN = "spawn_subagent"
LEAD = Agent(name="lead", tools=("read", "subagent"))
BY_SOCKET = structs.replace(CAPABILITIES, delegates_by_socket=True)


CLIENT = """
import json, socket, sys, threading

def line(number):
    with socket.socket(socket.AF_UNIX) as home:
        home.connect(address)
        answers = home.makefile("rb")
        home.sendall(json.dumps({"type": "hello", "v": 1, "token": token}).encode() + b"\\n")
        assert b"welcome" in answers.readline()
        for turn in range(count):
            asked = {"agent": "explorer", "task": f"{number} {turn}"}
            order = {"type": "call", "tool": "spawn_subagent", "call": f"{number}-{turn}", "arguments": asked}
            home.sendall(json.dumps(order).encode() + b"\\n")
            assert b'"isError":false' in answers.readline()

address, token = json.load(sys.stdin)
count, lines = map(int, sys.argv[1:])
threads = [threading.Thread(target=line, args=(number,)) for number in range(lines)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


class DelegationBench:
    """A running lead agent, in whose name the benchmark delegates."""

    def __init__(self) -> None:
        kind = EngineInfo(name="bench", capabilities=BY_SOCKET, make=self._engine, not_installed_reason=lambda: None)
        self.retinue = Retinue(
            cwd=scratch(),
            engine="bench",
            engines={"bench": kind},
            agents=[LEAD],
            store=MemoryStore(),
            settings={"max_spawns": 10**9},
            environ={"HOME": scratch(), "TMPDIR": str(Path(scratch()).resolve())},
        )
        self.home: CallbackAddress | None = None
        self._begun, self._over = anyio.Event(), anyio.Event()

    def _engine(self) -> ScriptedEngine:
        def script(spec: RunSpec) -> Script:
            if spec.agent.name != "lead":
                return (reply("done"),)
            self.home = spec.callback
            self._begun.set()
            return RunCallback(self._over.wait), reply("led")

        return ScriptedEngine(script)

    async def called(self, count: int) -> None:
        async with self.retinue, anyio.create_task_group() as group:
            lead = Plan(tasks=(Task(agent="lead", prompt="lead"),))
            group.start_soon(self.retinue.run_plan, lead, self.retinue.call("nested"))
            await self._begun.wait()
            assert self.home is not None
            with print_cost(times=count):
                # From a process of its own, as children are.
                given = json.dumps([self.home.address, self.home.token.reveal()]).encode()
                await anyio.run_process(
                    [sys.executable, "-c", CLIENT, str(count // LINES), str(LINES)], input=given, stderr=None
                )
            self._over.set()

    async def direct(self, count: int) -> None:
        async with self.retinue:
            spawn, call = self.retinue.toolset("nested").handlers[SPAWN], self.retinue.call("nested")

            async def line(number: int) -> None:
                for turn in range(count // LINES):
                    await spawn({"agent": "explorer", "task": f"{number} {turn}"}, call, None)

            with print_cost(times=count):
                async with anyio.create_task_group() as group:
                    for number in range(LINES):
                        group.start_soon(line, number)


if __name__ == "__main__":
    bench = DelegationBench()
    anyio.run({"called": bench.called, "direct": bench.direct}[sys.argv[1]], int(sys.argv[2]))
