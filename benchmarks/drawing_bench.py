"""The cost of the live view: CPU per second of drawing 16 busy agents on 200×60, over the same work undrawn.

`python -m benchmarks.drawing_bench SECONDS`
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TextIO

import anyio

from benchmarks.workload import scratch
from retinue.client import Retinue
from retinue.engines.base import Emit, EngineCapabilities, EngineInfo
from retinue.model.events import MessageEnded, Text, TextDelta, ToolCalled, ToolReturned
from retinue.model.runs import RunSpec
from retinue.tui.event_view import run_view
from retinue.tui.live_view import LiveView

AGENTS = 16
LINES = 1_000
"""Lines per second of all agents together."""
SIZE = {"COLUMNS": "200", "LINES": "60"}
PACE = 0.05


class BusyEngine:
    """Emits lines at a fixed rate, some as tool calls, most as deltas, for a fixed time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        start, number = time.monotonic(), 0
        while (passed := time.monotonic() - start) < self._seconds:
            while number < passed * LINES / AGENTS:
                number += 1
                await self._emit_line(number, emit)
            await anyio.sleep(PACE)
        await emit(Text("done"))
        await emit(MessageEnded(stop_reason="stop"))

    async def _emit_line(self, number: int, emit: Emit) -> None:
        if number % 5 == 0:
            await emit(ToolCalled(f"c{number}", "ls", {"path": f"src/{number}"}))
            await emit(ToolReturned(f"c{number}", "ls", "a.py\nb.py\nlib/"))
        else:
            await emit(TextDelta(f"line {number} of what a model writes, as long as lines of prose are\n"))


async def cost(seconds: float, screen: TextIO, *, drawn: bool) -> float:
    """Return the CPU seconds per second of 16 running agents."""
    kind = EngineInfo(
        name="bench",
        capabilities=EngineCapabilities(tools=frozenset({"read", "grep", "find", "ls"})),
        make=lambda: BusyEngine(seconds),
        not_installed_reason=lambda: None,
    )
    settings = {"max_concurrency": AGENTS, "looping_tool_count": 0}
    retinue = Retinue(
        cwd=scratch(), state=f"{scratch()}/{drawn}", engine="bench", engines={"bench": kind}, settings=settings
    )
    tasks = [("explorer", f"task {number}") for number in range(AGENTS)]
    async with retinue:
        before, start = time.process_time(), time.monotonic()
        if drawn:
            async with retinue.events() as events, anyio.create_task_group() as group:
                group.start_soon(run_view, events, LiveView(screen, 15))
                results = await retinue.delegate(tasks)
                group.cancel_scope.cancel()
        else:
            results = await retinue.delegate(tasks)
        assert all(result.failure is None for result in results)
        return (time.process_time() - before) / (time.monotonic() - start)


async def main(seconds: float, screen: TextIO) -> None:
    os.environ.update(SIZE)
    await cost(0.2, screen, drawn=True)
    plain, drawn = await cost(seconds, screen, drawn=False), await cost(seconds, screen, drawn=True)
    print(json.dumps({"plain": plain, "drawn": drawn, "cpu": max(drawn - plain, 0.0001)}))


if __name__ == "__main__":
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        anyio.run(main, float(sys.argv[1]), nowhere)
