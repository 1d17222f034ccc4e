"""The server of our own tools in this process, as Claude Code sees it."""

from __future__ import annotations

import time

import pytest
from mcp import Client

from retinue.engines.claude.sdk import FinalizeState, _tool_server
from retinue.engines.toolbox import AgentToolbox, finalize_tool

ENDLESS = {"type": "string", "pattern": "(.*?,){20}P"}
"""A schema whose pattern takes ages to find that a text does not match."""


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def call_finalize(schema, **arguments):
    finalizing = FinalizeState()
    server = _tool_server(AgentToolbox((finalize_tool(schema),)), finalizing)["instance"]
    async with Client(server) as client:
        result = await client.call_tool("subagent_finalize", arguments)
        (tool,) = (await client.list_tools()).tools
    return result, finalizing.is_done, tool


async def test_output_schema_is_the_type_of_the_result():
    result, is_done, tool = await call_finalize({"type": "integer"}, status="SUCCESS", result=3)
    assert (result.is_error, is_done) == (False, True)
    assert tool.input_schema["properties"]["result"] == {"type": "integer"}
    assert tool.meta == {"anthropic/maxResultSizeChars": 100_000}
    assert tool.annotations.read_only_hint is False


async def test_violation_is_an_error_for_the_model():
    result, is_done, _ = await call_finalize({"type": "integer"}, status="SUCCESS", result="three")
    assert (result.is_error, is_done) == (True, False)
    assert result.content[0].text == (
        "The result does not match its schema:\n$ (type): 'three' is not of type 'integer'"
    )


async def test_pattern_that_takes_endless_time_is_given_up():
    start = time.process_time()
    result, is_done, _ = await call_finalize(ENDLESS, status="SUCCESS", result="1," * 40)
    assert time.process_time() - start < 5
    assert (result.is_error, is_done) == (True, False)
    assert "a pattern took longer than 0.2s to match" in result.content[0].text
