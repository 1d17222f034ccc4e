"""`retinue bridge`, and the same calls in process. `python -m benchmarks.bridge_bench WORK N [direct]`.

The extension is this process: it writes and reads lines, so that what is measured is the bridge.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.workload import process_cpu, scratch

TOOL = "delegate_to_subagents"
TASKS: dict[str, Any] = {"tasks": [{"name": "a", "prompt": "look", "profile": "explorer"}]}
"""One agent that answers with one sentence, in a session of its own."""
Figures = dict[str, float]


class BridgeExtension:
    """One bridge process and the messages to and from it."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "retinue", "bridge", "--engine", "scripted"],
            cwd=scratch(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, **message: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, kind: str) -> Any:
        assert self.process.stdout
        while (said := json.loads(self.process.stdout.readline()))["type"] != kind:
            pass
        return said

    def first(self) -> float:
        """Return the seconds from the start to the list of tools."""
        self.ask(type="tools", id="0")
        assert self.answer("tools")["tools"]
        return time.monotonic() - self._started

    def leave(self) -> None:
        self.process.communicate()


def start(extension: BridgeExtension, _: int) -> Figures:
    return {"wall": extension.first()}


def calls(extension: BridgeExtension, count: int) -> Figures:
    """Measure sequential calls with partial results, as the pi extension makes them."""
    extension.first()
    cpu = process_cpu(extension.process.pid)
    for number in range(count):
        extension.ask(type="call", id=str(number), tool=TOOL, arguments=TASKS, partials=True)
        assert not extension.answer("result")["result"].get("isError")
    return {"cpu": (process_cpu(extension.process.pid) - cpu) / count}


def directly(work: str, count: int) -> Figures:
    """Measure the same calls in this process, or its start."""
    import anyio

    from retinue.client import Retinue

    async def asked() -> Figures:
        retinue = Retinue(cwd=Path(scratch()), engine="scripted")
        async with retinue:
            surface = retinue.toolset("fanout")
            assert surface.list_tools(retinue.call("fanout"))
            if work == "start":
                return {}
            first = time.process_time()
            for _ in range(count):
                assert not (await surface.handlers[TOOL](TASKS, retinue.call("fanout"), None)).is_error
            return {"cpu": (time.process_time() - first) / count}

    return anyio.run(asked)


WORKS = {"start": start, "calls": calls}


def main() -> None:
    work, count, *which = sys.argv[1:]
    if which:
        figures = directly(work, int(count))
    else:
        extension = BridgeExtension()
        figures = WORKS[work](extension, int(count))
        extension.leave()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
