"""MCP servers of an agent on the api engine, over every provider API."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.engines.api.conftest import MODELS, environment
from tests.support.mcp_servers import PIXEL, stdio_definition
from tests.support.model_server import ModelServer, script64

from retinue import Agent, Retinue
from retinue.model.events import ToolReturned

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
async def test_model_calls_granted_tools_and_sees_images(tmp_path, model):
    steps: list[Any] = [
        {"text": "I look.", "tool": "mcp__docs__search", "args": {"query": "bus"}},
        {"text": "I want a picture.", "tool": "mcp__docs__picture", "args": {}},
        {"text": "Done."},
    ]
    tools = ("read", "mcp__docs__search", "mcp__docs__picture")
    agent = Agent(name="worker", body="You work.", tools=tools, mcp_servers={"docs": stdio_definition()})
    async with ModelServer() as server:
        environ = {**environment(server.url), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        settings = {"model": model, "allow_write": True}
        async with (
            Retinue(cwd=tmp_path, engine="api", agents=[agent], environ=environ, settings=settings) as retinue,
            retinue.events() as watcher,
        ):
            result = await retinue.run("worker", script64(steps))
            returned = [one.event for one in watcher.drain() if isinstance(one.event, ToolReturned)]
    assert (result.failure, result.text) == (None, "Done.")
    assert "found bus" in returned[0].text
    assert set(server.requests[0].tools) == set(tools)
    assert PIXEL in str(server.requests[-1].body)
