"""`retinue bridge`, and the same asked of the surface directly. `python -m benchmarks.on_bridge WORK N [direct]`.

The extension is this process: it writes and reads lines, so that what is measured is the bridge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gauge import scratch

TOOL = "delegate_to_subagents"
TASKS: dict[str, Any] = {"tasks": [{"name": "a", "prompt": "look", "profile": "explorer"}]}
"""One agent that says one sentence, in a session of its own."""
Figures = dict[str, float]


class Extension:
    """One bridge, and the lines between it and us."""

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
        """Seconds from its start until it has told which tools there are."""
        self.ask(type="tools", id="0")
        assert self.answer("tools")["tools"]
        return time.monotonic() - self._started

    def cpu(self) -> float:
        """Seconds of CPU it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def leave(self) -> None:
        self.process.communicate()


def start(extension: Extension, _: int) -> Figures:
    return {"wall": extension.first()}


def calls(extension: Extension, count: int) -> Figures:
    """One after the other, each told of while it runs, as the extension for pi asks for it."""
    extension.first()
    cpu = extension.cpu()
    for number in range(count):
        extension.ask(type="call", id=str(number), tool=TOOL, arguments=TASKS, partials=True)
        assert not extension.answer("result")["result"].get("isError")
    return {"cpu": (extension.cpu() - cpu) / count}


def directly(work: str, count: int) -> Figures:
    """The same, asked of the surface in this process; a start is the whole of it."""
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
        extension = Extension()
        figures = WORKS[work](extension, int(count))
        extension.leave()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
