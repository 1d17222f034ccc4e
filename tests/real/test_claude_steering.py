"""Runs on the real Claude Code that are told something while they work: it arrives at the model."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest
from tests.real.claude_install import claude_environ, need_claude
from tests.support.model_server import script64

from retinue import Agent, Retinue
from retinue.model.events import SteeringDelivered, Text, TextDelta, ToolCalled, ToolReturned

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

WAITS = {"command": "until [ -e go ]; do sleep 0.05; done; echo went", "description": "Waits."}
PATIENCE = 60.0


@pytest.fixture
def open_retinue(server, project, tmp_path):
    need_claude()

    @asynccontextmanager
    async def opened():
        async with Retinue(
            cwd=project,
            engine="claude",
            agents=[Agent(name="worker", body="You work.", tools=("read", "bash"))],
            environ=claude_environ(tmp_path / "home", server.url),
            state=tmp_path / "state",
            settings={"model": "scripted-1", "allow_write": True},
        ) as retinue:
            yield retinue

    return opened


@asynccontextmanager
async def at_work(retinue, task, kind):
    """The id of a run once such an event has happened in it, and where its result will be."""
    results = []

    async def work():
        results.append(await retinue.run("worker", task))

    async with anyio.create_task_group() as group:
        async with retinue.events() as events:
            group.start_soon(work)
            with anyio.fail_after(PATIENCE):
                async for stamped in events:
                    if isinstance(stamped.event, kind):
                        break
        yield stamped.origin.run, results


async def history(retinue, run, *kinds):
    return [stamped.event async for stamped in retinue.history(run) if isinstance(stamped.event, kinds)]


async def test_the_models_next_request_has_what_was_said_while_a_tool_ran(open_retinue, server, project):
    task = f"Wait. {script64([{'tool': 'Bash', 'args': WAITS}, {'text': 'As you say.'}])}"
    async with open_retinue() as retinue:
        async with at_work(retinue, task, ToolCalled) as (run, results):
            await retinue.steer(run, "/clear is no command; mind the gap")
            (project / "go").touch()
        events = await history(retinue, run, ToolCalled, ToolReturned, SteeringDelivered, Text)
    (result,) = results
    assert (result.failure, result.text, result.actual.notices) == (None, "As you say.", ())
    first, second = server.requests
    assert "mind the gap" not in str(first.body)
    assert "/clear is no command; mind the gap" in str(second.body)
    assert [type(event) for event in events] == [ToolCalled, ToolReturned, SteeringDelivered, Text]
    assert events[2] == SteeringDelivered("/clear is no command; mind the gap")


async def test_a_run_that_is_told_something_while_it_answers_goes_on(open_retinue, server):
    slow = {"text": "word " * 30, "tps": 30}
    task = f"Talk. {script64([slow, {'text': 'Shorter.'}])}"
    async with open_retinue() as retinue:
        async with at_work(retinue, task, TextDelta) as (run, results):
            await retinue.steer(run, "shorter, please")
        events = await history(retinue, run, SteeringDelivered, Text)
    (result,) = results
    assert (result.failure, result.text) == (None, "Shorter.")
    assert events == [Text("word " * 30), SteeringDelivered("shorter, please"), Text("Shorter.")]
    assert server.requests[1].prompt == "shorter, please"
