"""Fixtures for toolset tests: a host that calls tools as a model would, in virtual time."""

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
    """Use a clock that jumps to the next deadline when all tasks wait. Stores that use threads need asyncio."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


OnUpdate = Callable[[ToolResult], object]
"""Receives a partial result."""


class Host:
    """The tools of a toolset, and the specs its engine received."""

    def __init__(self, retinue: Retinue, specs: list[RunSpec], toolset: str = "single") -> None:
        self.retinue = retinue
        self.toolset = retinue.toolset(toolset)
        self.specs = specs

    def call(self, **changes: Any) -> CallContext:
        return self.retinue.call(self.toolset.name, **changes)

    def tools(self) -> tuple[ToolDefinition, ...]:
        return self.toolset.list_tools(self.call())

    async def use(
        self,
        arguments: Any,
        *,
        tool: str = "subagent",
        call: CallContext | None = None,
        update: OnUpdate | None = None,
    ) -> ToolResult:
        """Run the tool as it is registered, or as a host that calls an unregistered one."""
        run = {**self.toolset.handlers, **{known.name: known.run for known in self.tools()}}[tool]

        async def send_update(partial: ToolResult) -> None:
            assert update is not None
            update(partial)

        return await run(arguments, call or self.call(), send_update if update else None)

    async def delegate(self, *tasks: Any, update: OnUpdate | None = None, **more: Any) -> ToolResult:
        """Return the result of `delegate_to_subagents`; a task may be only its name."""
        given = [{"name": task, "prompt": TASK} if isinstance(task, str) else task for task in tasks]
        return await self.use({"tasks": given, **more}, tool="delegate_to_subagents", update=update)

    async def fetch(self, tool: str, session: Any) -> ToolResult:
        """Return the result of `get_subagent_output` or `get_subagent_session`."""
        return await self.use({"sessionId": session}, tool=tool)

    async def ask(self, agent: str = AGENT, task: str = TASK, **how: Any) -> dict[str, Any]:
        """Return the answer to a task as a host receives it."""
        return (await self.use({"agent": agent, "task": task}, **how)).as_json()


Open = Callable[..., AbstractAsyncContextManager[Host]]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """Return an empty repository to work in."""
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def open_host(workplace: Path, scratch_home: Path) -> Open:
    """Return `open_host`; `async with open_host(reply("done")) as host` opens a toolset on the scripted engine."""

    @asynccontextmanager
    async def open_toolset(
        *script: Step | Callable[[RunSpec], Script],
        environ: Mapping[str, str] | None = None,
        store: SessionStore | None = None,
        state: Path | None = None,
        capabilities: EngineCapabilities = CAPABILITIES,
        missing: str | None = None,
        toolset: str = "single",
        **options: Any,
    ) -> AsyncIterator[Host]:
        specs: list[RunSpec] = []
        engine = ScriptedEngine(*script)

        def record_spec(spec: RunSpec) -> Script:
            specs.append(spec)
            return engine.script_for(spec)

        kind = EngineInfo(
            name="scripted",
            capabilities=capabilities,
            make=lambda: ScriptedEngine(record_spec),
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
            yield Host(retinue, specs, toolset)

    return open_toolset


@pytest.fixture
def fanout(open_host: Open) -> Open:
    """Return `fanout`; `async with fanout(reply("done")) as host` opens the tools of the `fanout` toolset."""
    return partial(open_host, toolset="fanout")


@pytest.fixture
def ask(open_host: Open) -> Callable[..., Any]:
    """Return `ask`; `await ask(reply("done"))` is the answer of the `single` tool to a scripted agent."""

    async def ask_agent(
        *script: Step | Callable[[RunSpec], Script], agent: str = AGENT, task: str = TASK, **options: Any
    ) -> dict[str, Any]:
        async with open_host(*script, **options) as host:
            return await host.ask(agent, task)

    return ask_agent


@pytest.fixture
def devkit_config(scratch_home: Path) -> Callable[..., None]:
    """Return a writer of the settings file that `single` reads: `devkit_config(allowWrite=True)`."""
    path = scratch_home / ".pi" / "agent" / "extensions" / "devkit-pi" / "config.json"

    def write(**subagents: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"subagents": subagents}))

    return write


@pytest.fixture
def agent_file() -> Callable[..., Path]:
    """Return a writer of agent files: `agent_file(folder, "scribe", "tools: read, write")`."""

    def write(folder: Path, name: str, *lines: str) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.md"
        path.write_text("\n".join(["---", f"name: {name}", f"description: The {name}.", *lines, "---", "Do it.", ""]))
        return path

    return write
