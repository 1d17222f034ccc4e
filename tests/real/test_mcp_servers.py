"""MCP servers of an agent on the real programs: the model sees the granted tools by name, and calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.real.programs import Program, run_recorded
from tests.support.mcp_servers import PIXEL, bad_definition, http_server, stdio_definition
from tests.support.model_server import script64

from retinue import Agent, Retinue
from retinue.model.events import Event, ToolReturned
from retinue.model.results import RunResult

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(120)]


@pytest.fixture
def run_agent(program: Program, project: Path, tmp_path: Path):
    async def run(servers: Any, steps: list[Any], **fields: Any) -> tuple[RunResult, list[Event]]:
        agent = Agent(**{"name": "worker", "body": "You work.", "mcp_servers": servers, **fields})
        settings = {"model": program.model, "allow_write": True}
        async with Retinue(
            cwd=project,
            engine=program.engine,
            agents=[agent],
            environ=program.environ,
            state=tmp_path / "state",
            settings=settings,
        ) as retinue:
            return await run_recorded(retinue, lambda: retinue.run("worker", script64(steps)))

    return run


def answers(events: list[Event]) -> list[tuple[str, str, bool]]:
    return [(event.name, event.text, event.is_error) for event in events if isinstance(event, ToolReturned)]


async def test_model_calls_granted_tools_and_sees_no_others(run_agent, server, project):
    steps = [
        {"text": "I look.", "tool": "mcp__docs__search", "args": {"query": "bus"}},
        {"text": "I ask where.", "tool": "mcp__docs__process", "args": {}},
        {"text": "Done."},
    ]
    result, events = await run_agent(
        {"docs": stdio_definition()}, steps, tools=("read", "mcp__docs__*"), denied_tools=("mcp__docs__write",)
    )
    assert (result.failure, result.text) == (None, "Done.")
    (first, found, _), (_, where, _) = answers(events)
    assert first == "mcp__docs__search"
    assert "found bus" in found
    assert str(project) in where
    offered = {name for name in server.requests[0].tools if name.startswith("mcp__docs")}
    assert offered == {f"mcp__docs__{tool}" for tool in ("search", "variable", "picture", "process", "fail", "die")}
    assert [notice for notice in result.actual.notices if "MCP" in notice] == []
    pid = next(part for part in where.split() if part.isdigit())
    assert not Path(f"/proc/{pid}").exists()


async def test_server_at_an_address_answers_and_its_token_is_shown_nowhere(run_agent, tmp_path, server):
    token = "letmein-1234567890"
    steps = [{"text": "I look.", "tool": "mcp__docs__search", "args": {"query": token}}, {"text": f"It is {token}."}]
    with http_server(token=token) as url:
        servers = {"docs": {"url": url, "headers": {"Authorization": f"Bearer {token}"}}}
        result, events = await run_agent(servers, steps, tools=("mcp__docs__search",))
    assert result.failure is None
    ((_, found, is_error),) = answers(events)
    assert "found" in found and not is_error
    assert token not in found + result.text
    stored = [file for file in (tmp_path / "state").rglob("*.jsonl") if "native" not in file.parts]
    assert stored
    assert not any(token.encode() in file.read_bytes() for file in stored)


async def test_fault_of_a_server_is_reported_and_the_run_completes(run_agent):
    steps = [
        {"text": "I look.", "tool": "mcp__docs__die", "args": {}},
        {"text": "Again.", "tool": "mcp__docs__search", "args": {"query": "bus"}},
        {"text": "Done."},
    ]
    servers = {"docs": stdio_definition(), "bad": bad_definition("hang", startup_timeout_sec=3)}
    result, events = await run_agent(servers, steps)
    assert (result.failure, result.text) == (None, "Done.")
    assert [is_error for _, _, is_error in answers(events)] == [True, True]
    assert sorted(notice for notice in result.actual.notices if "MCP" in notice) == [
        (
            "The MCP server bad could not be started, and its tools are left out: it did not list its tools within 3 "
            "seconds."
        ),
        "The MCP server docs ended during the run: its program ended with exit code 3 (out of luck).",
    ]


async def test_image_of_a_tool_reaches_the_model_where_the_program_sends_it(run_agent, server, program):
    steps = [{"text": "I look.", "tool": "mcp__docs__picture", "args": {}}, {"text": "I see."}]
    result, _ = await run_agent({"docs": stdio_definition()}, steps)
    assert result.text == "I see."
    # pi knows that the scripted model takes no images, and says so to it.
    expected = PIXEL if program.engine == "claude" else "does not support images"
    assert expected in str(server.requests[-1].body)
