"""Runs on the real pi, both versions, that are told something while they work: it arrives at the model."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest
from tests.support.model_server import script64

from retinue import Agent, Retinue
from retinue.model.events import SteeringDelivered, Text, TextDelta, ToolCalled, ToolReturned

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

WAITS = {"tool": "bash", "args": {"command": "until [ -e go ]; do sleep 0.05; done; echo went"}}
PATIENCE = 60.0


@pytest.fixture
def open_retinue(pi, server, project, tmp_path):
    @asynccontextmanager
    async def opened():
        async with Retinue(
            cwd=project,
            engine="pi",
            agents=[Agent(name="worker", body="You work.", tools=("read", "bash"))],
            environ=pi.environ_in(tmp_path / "home", server.url),
            state=tmp_path / "state",
            settings={"model": "local/scripted-1", "allow_write": True},
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
    task = f"Wait. {script64([WAITS, {'text': 'As you say.'}])}"
    async with open_retinue() as retinue:
        async with at_work(retinue, task, ToolCalled) as (run, results):
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
    assert [request.prompt for request in server.requests][1:] == ["shorter, please"]


async def test_a_process_whose_run_was_steered_serves_the_next(open_retinue, project):
    task = f"Wait. {script64([WAITS, {'text': 'done'}])}"
    pids = f"Which? {script64([{'tool': 'bash', 'args': {'command': 'echo $PPID'}}, {'text': 'done'}])}"
    async with open_retinue() as retinue:

        async def process():
            result = await retinue.run("worker", pids)
            (returned,) = await history(retinue, result.spec.run, ToolReturned)
            return returned.text

        before = await process()
        async with at_work(retinue, task, ToolCalled) as (run, _):
            await retinue.steer(run, "mind the gap")
            (project / "go").touch()
        assert await process() == before
