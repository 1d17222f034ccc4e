"""The real pi, both versions, that delegates: its tools call home, and a real pi below it answers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.home.told import SPAWN, answers, ends, is_end
from tests.pi_stage import alive, until_told

from retinue import Agent, Retinue
from retinue.events import RunQueued, Stamped, ToolCalled, ToolDelta, ToolReturned
from retinue.testing.model_server import script64
from retinue.types import Code, Plan, Task

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

LEAD = Agent(name="lead", body="You lead.", tools=("read", "bash", "Task"))
WORKER = Agent(name="worker", body="You work.", tools=("read", "bash"))


@pytest.fixture
def opened(pi, server, project, tmp_path):
    def made(**settings) -> Retinue:
        return Retinue(
            cwd=project,
            engine="pi",
            agents=[LEAD, WORKER],
            environ=pi.environ_in(tmp_path / "home", server.url),
            state=tmp_path / "state",
            settings={"model": "local/scripted-1", **settings},
        )

    return made


def spawn(agent: str, steps: list[Any]) -> dict[str, Any]:
    return {"text": "I ask.", "tool": SPAWN, "args": {"agent": agent, "task": script64(steps)}}


async def led(retinue: Retinue, steps: list[Any]):
    plan = Plan(tasks=(Task(agent="lead", prompt=script64(steps)),))
    (result,) = await retinue.carry_out(plan, retinue.call("nested"))
    return result


def depths(events: list[Stamped], kind: type) -> list[int]:
    return [one.origin.depth for one in events if isinstance(one.event, kind)]


async def test_the_real_pi_delegates_three_levels_deep_and_is_answered(opened, server, tmp_path):
    read = {"text": "I look.", "tool": "read", "args": {"path": "a.txt"}}
    lowest = [read, {"text": "It is XYZZY."}]
    middle = [spawn("worker", lowest), {"text": "They say it is XYZZY."}]
    async with opened() as retinue, retinue.events() as watcher:
        result = await led(retinue, [spawn("lead", middle), {"text": "So it is."}])
        events = list(watcher.waiting())
    assert (result.failure, result.text) == (None, "So it is.")
    assert answers(events) == ["It is XYZZY.", "They say it is XYZZY."]
    assert depths(events, RunQueued) == [1, 2, 3]
    assert ends(events) == [(3, None), (2, None), (1, None)]
    assert 1 in depths(events, ToolDelta)  # partial results on their way
    calls = {one.event.call: one.origin for one in events if isinstance(one.event, ToolCalled)}
    for one in events:
        if one.origin.depth > 1:
            assert calls[one.origin.parent_tool_use_id].run == one.origin.parent_run
    first = server.requests[0]
    assert {SPAWN, "agent_info"} <= set(first.tools)
    assert SPAWN not in server.requests[2].tools  # the worker


async def test_the_real_pi_tells_its_model_what_was_refused(opened, server):
    steps = [spawn("nobody", [{"text": "?"}]), {"text": "Then not."}]
    async with opened() as retinue, retinue.events(deltas=False) as watcher:
        result = await led(retinue, steps)
        (answer,) = [one.event for one in watcher.waiting() if isinstance(one.event, ToolReturned)]
    assert result.text == "Then not."
    assert answer.is_error
    assert answer.text.startswith("Unknown agent: nobody. Available agents: ")


async def test_stopping_a_real_pi_ends_the_whole_tree(opened, tmp_path):
    waits = [{"text": "I wait.", "tool": "bash", "args": {"command": "sleep 99"}}, {"text": "?"}]
    async with opened() as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(led, retinue, [spawn("worker", waits), {"text": "?"}])
        await until_told(watcher, lambda event: isinstance(event, ToolCalled) and event.name == "bash")
        retinue.stop(retinue._orchestrator.live[0])
        ended = [await until_told(watcher, is_end) for _ in range(2)]
    assert ends(ended) == [(2, Code.ABORTED), (1, Code.ABORTED)]
    assert alive(tmp_path) == []


async def test_a_token_is_in_no_file_of_a_real_pi(opened, tmp_path):
    tokens: list[bytes] = []
    async with opened() as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(led, retinue, [spawn("worker", [{"text": "Done."}]), {"text": "Done."}])
        await until_told(watcher, lambda event: isinstance(event, ToolCalled))
        tokens += [member._token for member in retinue._orchestrator.household._members.values()]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any("native" in file.parts for file in files)
    assert [file for file in files if any(token in file.read_bytes() for token in tokens)] == []
    assert len(tokens) == 1
