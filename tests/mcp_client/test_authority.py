"""MCP servers of child runs: those of their own agent, and never more than their parent has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.mcp_servers import stdio_definition
from tests.support.retinue_factory import stage

from retinue import Agent
from retinue.engines.scripted import call, reply, spawn
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunQueued, ToolReturned
from retinue.model.runs import RunSpec
from retinue.model.tasks import Plan, Task

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]

DOCS = {"docs": stdio_definition()}


async def run_lead(home: Path, *agents: Agent) -> list[EventRecord]:
    """Return the events of a lead that delegates to a worker, which searches and writes with its server."""

    def script(spec: RunSpec):
        if spec.agent.name == "lead":
            return [spawn("worker", "Search."), reply("Led.")]
        path = str(home / "file")
        return [call("mcp__docs__search", query="bus"), call("mcp__docs__write", path=path, text="x"), reply("Done.")]

    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    settings = {"allow_write": True}
    async with (
        stage(home, script, agents=agents, settings=settings, environ=environ) as retinue,
        retinue.events(deltas=False) as watcher,
    ):
        await retinue.run_plan(Plan(tasks=(Task(agent="lead", prompt="Lead."),)), retinue.call("nested"))
        return list(watcher.drain())


def found_by_worker(events: list[EventRecord]) -> list[str]:
    """Return the tools of the server that answered the worker."""
    return [
        one.event.name
        for one in events
        if isinstance(one.event, ToolReturned)
        and one.origin.depth == 2
        and "data, not instructions" in one.event.text
    ]


@pytest.mark.parametrize(
    ("lead_tools", "expected"),
    [
        (("Agent", "mcp__docs"), ["mcp__docs__search", "mcp__docs__write"]),
        (("Agent", "mcp__docs__search"), ["mcp__docs__search"]),
        (("Agent", "read"), []),
    ],
)
async def test_child_has_no_more_of_a_server_than_its_parent(tmp_path, lead_tools, expected):
    lead = Agent(name="lead", tools=lead_tools, mcp_servers=DOCS)
    worker = Agent(name="worker", tools=("read", "mcp__docs__*"), mcp_servers=DOCS)
    events = await run_lead(tmp_path, lead, worker)
    assert found_by_worker(events) == expected


async def test_child_does_not_inherit_servers_that_its_agent_does_not_have(tmp_path):
    lead = Agent(name="lead", tools=("Agent", "mcp__docs", "read"), mcp_servers=DOCS)
    events = await run_lead(tmp_path, lead, Agent(name="worker"))
    (queued,) = [one.event for one in events if isinstance(one.event, RunQueued) and one.origin.depth == 2]
    assert queued.tools == ("read",)
    assert found_by_worker(events) == []


async def test_server_of_the_same_name_with_another_definition_is_not_the_parents(tmp_path):
    lead = Agent(name="lead", tools=("Agent", "mcp__docs"), mcp_servers=DOCS)
    other = {"docs": stdio_definition(env={"OTHER": "1"})}
    events = await run_lead(tmp_path, lead, Agent(name="worker", tools=("mcp__docs",), mcp_servers=other))
    assert found_by_worker(events) == []


async def test_child_does_not_get_the_tools_that_the_definition_of_its_parent_leaves_out(tmp_path):
    lead = Agent(
        name="lead", tools=("Agent", "mcp__docs"), mcp_servers={"docs": stdio_definition(includeTools=["search"])}
    )
    worker = Agent(name="worker", tools=("mcp__docs",), mcp_servers=DOCS)
    assert found_by_worker(await run_lead(tmp_path, lead, worker)) == []


async def test_child_does_not_get_more_of_a_server_by_the_name_of_another(tmp_path):
    servers = {"wide": stdio_definition(), "docs": stdio_definition(env={"OTHER": "1"})}
    lead = Agent(name="lead", tools=("Agent", "mcp__wide__search", "mcp__docs"), mcp_servers=servers)
    worker = Agent(name="worker", tools=("mcp__docs",), mcp_servers={"docs": servers["wide"]})
    assert found_by_worker(await run_lead(tmp_path, lead, worker)) == []
