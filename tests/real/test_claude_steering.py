"""Steering on the real Claude Code: messages to running agents reach the model."""

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
REPLY_TIMEOUT = 60.0


@pytest.fixture
def open_retinue(server, project, tmp_path):
    need_claude()

    @asynccontextmanager
    async def open_context():
        async with Retinue(
            cwd=project,
            engine="claude",
            agents=[Agent(name="worker", body="You work.", tools=("read", "bash"))],
            environ=claude_environ(tmp_path / "home", server.url),
            state=tmp_path / "state",
            settings={"model": "scripted-1", "allow_write": True},
        ) as retinue:
            yield retinue

    return open_context


@asynccontextmanager
async def start_run(retinue, task, kind):
    """Start a run; yield its id once it has emitted such an event, and the list that gets its result."""
    results = []

    async def work():
        results.append(await retinue.run("worker", task))

    async with anyio.create_task_group() as group:
        async with retinue.events() as events:
            group.start_soon(work)
            with anyio.fail_after(REPLY_TIMEOUT):
                async for stamped in events:
                    if isinstance(stamped.event, kind):
                        break
        yield stamped.origin.run, results


async def history(retinue, run, *kinds):
    return [stamped.event async for stamped in retinue.history(run) if isinstance(stamped.event, kinds)]


async def test_steering_during_a_tool_call_is_in_the_next_request_of_claude(open_retinue, server, project):
    task = f"Wait. {script64([{'tool': 'Bash', 'args': WAITS}, {'text': 'As you say.'}])}"
    async with open_retinue() as retinue:
        async with start_run(retinue, task, ToolCalled) as (run, results):
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


async def test_steering_during_an_answer_continues_the_claude_run(open_retinue, server):
    slow = {"text": "word " * 30, "tps": 30}
    task = f"Talk. {script64([slow, {'text': 'Shorter.'}])}"
    async with open_retinue() as retinue:
        async with start_run(retinue, task, TextDelta) as (run, results):
            await retinue.steer(run, "shorter, please")
        events = await history(retinue, run, SteeringDelivered, Text)
    (result,) = results
    assert (result.failure, result.text) == (None, "Shorter.")
    assert events == [Text("word " * 30), SteeringDelivered("shorter, please"), Text("Shorter.")]
    assert server.requests[1].prompt == "shorter, please"
