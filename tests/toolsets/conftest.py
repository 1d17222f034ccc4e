"""Shared by the tests of surfaces: a host that calls a surface's tools as a model would, in time that costs nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from retinue.client import Retinue
from retinue.engines.base import EngineCapabilities, EngineInfo
from retinue.engines.scripted import CAPABILITIES, Script, ScriptedEngine, Step
from retinue.model.runs import RunSpec
from retinue.model.tasks import CallContext
from retinue.sessions.memory import MemoryStore
from retinue.sessions.store import SessionStore
from retinue.toolsets.base import ToolDefinition, ToolResult

AGENT, TASK = "explorer", "Find auth code"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """A clock that jumps to the next deadline whenever everyone waits. Stores that use threads need asyncio."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


Seen = Callable[[ToolResult], object]
"""Takes a partial result."""


class Host:
    """Has the tools of a surface, and remembers what its engine was told to do."""

    def __init__(self, retinue: Retinue, specs: list[RunSpec], surface: str = "single") -> None:
        self.retinue = retinue
        self.surface = retinue.toolset(surface)
        self.specs = specs

    def call(self, **changes: Any) -> CallContext:
        return self.retinue.call(self.surface.name, **changes)

    def tools(self) -> tuple[ToolDefinition, ...]:
        return self.surface.list_tools(self.call())

    async def use(
        self, arguments: Any, *, tool: str = "subagent", call: CallContext | None = None, update: Seen | None = None
    ) -> ToolResult:
        """Runs the tool as it is registered; where it is not, as a host that calls it all the same."""
        run = {**self.surface.handlers, **{known.name: known.run for known in self.tools()}}[tool]

        async def updated(partial: ToolResult) -> None:
            assert update is not None
            update(partial)

        return await run(arguments, call or self.call(), updated if update else None)

    async def delegate(self, *tasks: Any, update: Seen | None = None, **more: Any) -> ToolResult:
        """The result of a `delegate_to_subagents`; a task may be its name alone."""
        given = [{"name": task, "prompt": TASK} if isinstance(task, str) else task for task in tasks]
        return await self.use({"tasks": given, **more}, tool="delegate_to_subagents", update=update)

    async def fetch(self, tool: str, session: Any) -> ToolResult:
        """The result of `get_subagent_output` or `get_subagent_session`."""
        return await self.use({"sessionId": session}, tool=tool)

    async def ask(self, agent: str = AGENT, task: str = TASK, **how: Any) -> dict[str, Any]:
        """The answer to a task, as a host receives it."""
        return (await self.use({"agent": agent, "task": task}, **how)).as_json()


Open = Callable[..., AbstractAsyncContextManager[Host]]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """An empty repository to work in."""
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def open_host(workplace: Path, scratch_home: Path) -> Open:
    """`async with open_host(say("done")) as host`: the surface over the scripted engine."""

    @asynccontextmanager
    async def opened(
        *script: Step | Callable[[RunSpec], Script],
        environ: Mapping[str, str] | None = None,
        store: SessionStore | None = None,
        state: Path | None = None,
        capabilities: EngineCapabilities = CAPABILITIES,
        missing: str | None = None,
        surface: str = "single",
        **options: Any,
    ) -> AsyncIterator[Host]:
        specs: list[RunSpec] = []
        engine = ScriptedEngine(*script)

        def noted(spec: RunSpec) -> Script:
            specs.append(spec)
            return engine.script_for(spec)

        kind = EngineInfo(
            name="scripted",
            capabilities=capabilities,
            make=lambda: ScriptedEngine(noted),
            not_installed_reason=lambda: missing,
        )
        retinue = Retinue(
            cwd=options.pop("cwd", workplace),
            engine="scripted",
            engines={"scripted": kind},
            environ={"HOME": str(scratch_home), **(environ or {})},
            store=None if state else store or MemoryStore(),
            state=state,
            **options,
        )
        async with retinue:
            yield Host(retinue, specs, surface)

    return opened


@pytest.fixture
def fanout(open_host: Open) -> Open:
    """`async with fanout(say("done")) as host`: the tools of the `fanout` surface."""
    return partial(open_host, surface="fanout")


@pytest.fixture
def ask(open_host: Open) -> Callable[..., Any]:
    """`await ask(say("done"))`: one answer of the `single` tool, the script being what the agent does."""

    async def asked(
        *script: Step | Callable[[RunSpec], Script], agent: str = AGENT, task: str = TASK, **options: Any
    ) -> dict[str, Any]:
        async with open_host(*script, **options) as host:
            return await host.ask(agent, task)

    return asked


@pytest.fixture
def devkit_config(scratch_home: Path) -> Callable[..., None]:
    """Writes the settings file of seed 000's own system: `devkit_config(allowWrite=True)`."""
    path = scratch_home / ".pi" / "agent" / "extensions" / "devkit-pi" / "config.json"

    def write(**subagents: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"subagents": subagents}))

    return write


@pytest.fixture
def agent_file() -> Callable[..., Path]:
    """Writes an agent: `agent_file(folder, "scribe", "tools: read, write")`."""

    def write(folder: Path, name: str, *lines: str) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.md"
        path.write_text("\n".join(["---", f"name: {name}", f"description: The {name}.", *lines, "---", "Do it.", ""]))
        return path

    return write
