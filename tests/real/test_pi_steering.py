"""Steering on both versions of the real pi: messages to running agents reach the model."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest
from tests.support.model_server import script64

from retinue import Agent, Retinue
from retinue.model.events import SteeringDelivered, Text, TextDelta, ToolCalled, ToolReturned

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

WAITS = {"tool": "bash", "args": {"command": "until [ -e go ]; do sleep 0.05; done; echo went"}}
REPLY_TIMEOUT = 60.0


@pytest.fixture
def open_retinue(pi, server, project, tmp_path):
    @asynccontextmanager
    async def open_context():
        async with Retinue(
            cwd=project,
            engine="pi",
            agents=[Agent(name="worker", body="You work.", tools=("read", "bash"))],
            environ=pi.environ_in(tmp_path / "home", server.url),
            state=tmp_path / "state",
            settings={"model": "local/scripted-1", "allow_write": True},
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


async def test_steering_during_a_tool_call_is_in_the_next_request_of_pi(open_retinue, server, project):
    task = f"Wait. {script64([WAITS, {'text': 'As you say.'}])}"
    async with open_retinue() as retinue:
        async with start_run(retinue, task, ToolCalled) as (run, results):
            await retinue.steer(run, "/skill: is no command; mind the gap")
            (project / "go").touch()
        events = await history(retinue, run, ToolCalled, ToolReturned, SteeringDelivered, Text)
        again = await retinue.run("worker", f"Alone? {script64([{'text': 'Alone.'}])}")
    (result,) = results
    assert (result.failure, result.text, result.actual.notices) == (None, "As you say.", ())
    first, second, third = server.requests
    assert "mind the gap" not in str(first.body)
    assert [message.role for message in second.messages[-2:]] == ["tool", "user"]
    assert second.prompt.strip() == "/skill: is no command; mind the gap"
    assert [type(event) for event in events] == [ToolCalled, ToolReturned, SteeringDelivered, Text]
    assert events[2] == SteeringDelivered("/skill: is no command; mind the gap")
    assert again.text == "Alone."
    assert "mind the gap" not in str(third.body)


async def test_steering_during_an_answer_continues_the_pi_run(open_retinue, server):
    slow = {"text": "word " * 30, "tps": 30}
    task = f"Talk. {script64([slow, {'text': 'Shorter.'}])}"
    async with open_retinue() as retinue:
        async with start_run(retinue, task, TextDelta) as (run, results):
            await retinue.steer(run, "shorter, please")
        events = await history(retinue, run, SteeringDelivered, Text)
    (result,) = results
    assert (result.failure, result.text) == (None, "Shorter.")
    assert events == [Text("word " * 30), SteeringDelivered("shorter, please"), Text("Shorter.")]
    assert [request.prompt for request in server.requests][1:] == ["shorter, please"]


async def test_pi_process_is_reused_after_a_steered_run(open_retinue, project):
    task = f"Wait. {script64([WAITS, {'text': 'done'}])}"
    pids = f"Which? {script64([{'tool': 'bash', 'args': {'command': 'echo $PPID'}}, {'text': 'done'}])}"
    async with open_retinue() as retinue:

        async def process():
            result = await retinue.run("worker", pids)
            (returned,) = await history(retinue, result.spec.run, ToolReturned)
            return returned.text

        before = await process()
        async with start_run(retinue, task, ToolCalled) as (run, _):
            await retinue.steer(run, "mind the gap")
            (project / "go").touch()
        assert await process() == before
