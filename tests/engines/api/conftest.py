"""The api engine on the scripted model server, once per provider API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.support.model_server import ModelServer, Script, ScriptedCall, ScriptedTurn

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.api.engine import ApiEngine
from retinue.engines.api.providers import configure_providers
from retinue.engines.base import Completion
from retinue.guards.budget import Budget, BudgetGuard
from retinue.model.agents import AgentProfile
from retinue.model.events import Event
from retinue.model.providers import ProviderSettings
from retinue.runtime.budgets import RunRequestBudget
from retinue.sessions.memory import MemoryStore
from retinue.testing.engines import make_run_spec

MODELS: Mapping[str, str] = {
    "openai-chat": "ollama/scripted-1",
    "openai-responses": "openai/scripted-1",
    "anthropic": "anthropic/scripted-1",
    "gemini": "google/scripted-1",
}
"""A model for each API."""


def environment(url: str) -> dict[str, str]:
    """Return variables that send every provider's requests to the server."""
    return {
        "OLLAMA_HOST": url,
        "OPENAI_API_KEY": "sk-openai-test",
        "OPENAI_BASE_URL": f"{url}/v1",
        "ANTHROPIC_API_KEY": "sk-ant-test",
        "ANTHROPIC_BASE_URL": url,
        "GEMINI_API_KEY": "gemini-test",
        "GOOGLE_GEMINI_BASE_URL": url,
    }


@asynccontextmanager
async def open_engine(windows: Mapping[str, int] | None = None) -> AsyncIterator[ApiEngine]:
    """Open an engine with these context windows in the user's settings."""
    settings = ProviderSettings(context_window=dict(windows or {}))
    providers = configure_providers({model.partition("/")[0]: settings for model in MODELS.values()})
    engine = ApiEngine(providers=providers)
    async with anyio.create_task_group() as group:
        await group.start(lambda *, task_status: engine.run_background(task_status=task_status))
        try:
            yield engine
        finally:
            group.cancel_scope.cancel()


class ScriptedProvider:
    """The api engine and the model server behind it."""

    def __init__(self, engine: ApiEngine, server: ModelServer, folder: Path) -> None:
        self.engine = engine
        self.server = server
        self.folder = folder

    async def run(self, model: str, prompt: str = "Go.", **changes: Any) -> list[Event]:
        """Run a task on a model and return its events."""
        events: list[Event] = []
        fields = {"agent": AgentProfile(name="scout"), "environment": environment(self.server.url), **changes}
        spec = make_run_spec(self.folder, task=prompt, model=model, engine="api", **fields)
        guard = BudgetGuard(budget := Budget(spec.limits))

        async def emit(event: Event | Completion) -> None:
            if not isinstance(event, Completion):
                events.append(event)
                guard.observe(event, 0.0)

        await self.engine.run(replace(spec, budget=RunRequestBudget(budget)), emit)
        return events


@asynccontextmanager
async def open_provider(
    script: Script | None, folder: Path, windows: Mapping[str, int] | None = None
) -> AsyncIterator[ScriptedProvider]:
    async with ModelServer(script) as server, open_engine(windows) as engine:
        yield ScriptedProvider(engine, server, folder)


LOOK = ScriptedTurn(text="I will look.", tools=(ScriptedCall(tool="read", args={"path": "a.txt"}),))
"""A turn that reads a file; `open_retinue` makes it."""
PLAIN = Agent(name="plain", tools=())
READER = Agent(name="reader", tools=("read",))
WRITER = Agent(name="writer", tools=("read", "write"))
LEAD = Agent(name="lead", tools=("read", "subagent"))


@asynccontextmanager
async def open_retinue(
    script: Script, home: Path, model: str, **settings: Any
) -> AsyncIterator[tuple[Retinue, ModelServer]]:
    (home / "a.txt").write_text("hello\n")
    async with ModelServer(script) as server:
        environ = {"HOME": str(home), **environment(server.url)}
        retinue = Retinue(
            cwd=home,
            environ=environ,
            store=MemoryStore(),
            engine="api",
            agents=[PLAIN, READER, WRITER, LEAD],
            settings={"model": model, **settings},
        )
        async with retinue:
            yield retinue, server


@pytest.fixture(params=MODELS.items(), ids=list(MODELS))
def model(request: pytest.FixtureRequest) -> str:
    """A model of each API."""
    return str(request.param[1])
