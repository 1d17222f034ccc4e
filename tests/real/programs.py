"""The real programs behind engines, each in a home of its own and with its own spelling of the same things."""

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
"""Of a script for the model."""


class Program(Struct, frozen=True, kw_only=True):
    """A program whose only model is the scripted one. Tools have our names here, and its own at the model."""

    engine: str
    model: str
    environ: Mapping[str, str]
    """All that it is given."""
    agents: Path
    """Where it looks for agents of the user's."""
    has_prompt: Callable[[str, str], bool]
    """Whether a system prompt is this agent's, and not the program's own with the agent's somewhere in it."""
    path: str = "path"
    """The argument of `read` that names a file."""
    names: Mapping[str, str] = {}

    def tools(self, *names: str) -> set[str]:
        return {self.names.get(name, name) for name in names}

    def uses(self, tool: str, **args: Any) -> Step:
        return {"tool": self.names.get(tool, tool), "args": args}

    def reads(self, file: Path) -> Step:
        return self.uses("read", **{self.path: str(file)})


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


async def seen(retinue: Retinue, work: Callable[[], Awaitable[RunResult]]) -> tuple[RunResult, list[Event]]:
    """What the work comes to, and the events meanwhile."""
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
