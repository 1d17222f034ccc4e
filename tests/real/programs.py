"""The real programs behind engines: home, environment and tool names of each."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.real.claude_install import claude_environ
from tests.real.pi_install import PiInstall

from retinue import Agent, Retinue
from retinue.model.events import Event, RunEnded
from retinue.model.results import RunResult

Step = dict[str, Any]
"""A step of a script for the model."""


class Program(Struct, frozen=True, kw_only=True):
    """A program whose only model is scripted. Tools have the names of Retinue here, and the program's at the model."""

    engine: str
    model: str
    environ: Mapping[str, str]
    """Its whole environment."""
    agents: Path
    """Folder of the user's agents."""
    has_prompt: Callable[[str, str], bool]
    """Return whether a system prompt is the agent's, not the program's own that contains it."""
    path: str = "path"
    """Name of the path argument of `read`."""
    names: Mapping[str, str] = {}

    def tools(self, *names: str) -> set[str]:
        return {self.names.get(name, name) for name in names}

    def tool_step(self, tool: str, **args: Any) -> Step:
        return {"tool": self.names.get(tool, tool), "args": args}

    def read_step(self, file: Path) -> Step:
        return self.tool_step("read", **{self.path: str(file)})


def pi_program(pi: PiInstall, home: Path, url: str) -> Program:
    return Program(
        engine="pi",
        model="local/scripted-1",
        environ=pi.environ_in(home, url),
        agents=home / "agent" / "subagents",
        has_prompt=str.startswith,
    )


def claude_program(home: Path, url: str) -> Program:
    own = ("ls", "subagent_finalize", "spawn_subagent", "agent_info")
    return Program(
        engine="claude",
        model="scripted-1",
        environ=claude_environ(home, url),
        agents=home / ".pi" / "agent" / "subagents",
        has_prompt=str.endswith,
        path="file_path",
        names={"read": "Read", "bash": "Bash", "grep": "Grep", "find": "Glob", "write": "Write"}
        | {name: f"mcp__retinue__{name}" for name in own},
    )


def worker(**fields: Any) -> Agent:
    return Agent(**{"name": "worker", "body": "You work.", "tools": ("read", "bash"), **fields})


async def run_recorded(retinue: Retinue, work: Callable[[], Awaitable[RunResult]]) -> tuple[RunResult, list[Event]]:
    """Return the result of the work and the events until the end of the run."""
    events: list[Event] = []
    async with retinue.events() as watcher:
        result = await work()
        async for stamped in watcher:
            events.append(stamped.event)
            if isinstance(stamped.event, RunEnded):
                break
    return result, events


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
