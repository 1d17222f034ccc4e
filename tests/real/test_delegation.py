"""Delegation by the real programs: their tools call Retinue, and another real program answers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.real.programs import Step
from tests.support.delegation_reports import SPAWN, answers, ends, is_end
from tests.support.model_server import script64
from tests.support.pi_setup import alive, until_told

from retinue import Agent, Retinue
from retinue.model.errors import ErrorCode
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunQueued, ToolCalled, ToolDelta, ToolReturned
from retinue.model.tasks import Plan, Task

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

LEAD = Agent(name="lead", body="You lead.", tools=("read", "bash", "Task"))
WORKER = Agent(name="worker", body="You work.", tools=("read", "bash"))


@pytest.fixture
def make_retinue(program, project, tmp_path):
    def make(**settings) -> Retinue:
        return Retinue(
            cwd=project,
            engine=program.engine,
            agents=[LEAD, WORKER],
            environ=program.environ,
            state=tmp_path / "state",
            settings={"model": program.model, **settings},
        )

    return make


@pytest.fixture
def spawn(program):
    def step(agent: str, steps: list[Any]) -> Step:
        asked: Step = program.tool_step(SPAWN, agent=agent, task=script64(steps))
        return {"text": "I ask.", **asked}

    return step


async def run_lead(retinue: Retinue, steps: list[Any]):
    plan = Plan(tasks=(Task(agent="lead", prompt=script64(steps)),))
    (result,) = await retinue.run_plan(plan, retinue.call("nested"))
    return result


def depths(events: list[EventRecord], kind: type) -> list[int]:
    return [one.origin.depth for one in events if isinstance(one.event, kind)]


async def test_program_delegates_three_levels_deep_and_gets_the_answer(make_retinue, program, server, spawn, project):
    lowest = [{"text": "I look.", **program.read_step(project / "a.txt")}, {"text": "It is XYZZY."}]
    middle = [spawn("worker", lowest), {"text": "They say it is XYZZY."}]
    async with make_retinue() as retinue, retinue.events() as watcher:
        result = await run_lead(retinue, [spawn("lead", middle), {"text": "So it is."}])
        events = list(watcher.drain())
    assert (result.failure, result.text) == (None, "So it is.")
    assert answers(events) == ["It is XYZZY.", "They say it is XYZZY."]
    assert depths(events, RunQueued) == [1, 2, 3]
    assert ends(events) == [(3, None), (2, None), (1, None)]
    assert (1 in depths(events, ToolDelta)) is (program.engine == "pi"), "which shows what comes meanwhile"
    calls = {one.event.call: one.origin for one in events if isinstance(one.event, ToolCalled)}
    for one in events:
        if one.origin.depth > 1:
            assert calls[one.origin.parent_tool_use_id].run == one.origin.parent_run
    assert program.tools(SPAWN, "agent_info") <= set(server.requests[0].tools)
    assert not program.tools(SPAWN) & set(server.requests[2].tools), "the worker does not"
    assert result.actual.nested_usage.turns == 4


async def test_refused_delegation_is_a_tool_error_for_the_model(make_retinue, spawn):
    steps = [spawn("nobody", [{"text": "?"}]), {"text": "Then not."}]
    async with make_retinue() as retinue, retinue.events(deltas=False) as watcher:
        result = await run_lead(retinue, steps)
        (answer,) = [one.event for one in watcher.drain() if isinstance(one.event, ToolReturned)]
    assert result.text == "Then not."
    assert answer.is_error
    assert answer.text.startswith("Unknown agent: nobody. Available agents: ")


async def test_cancelling_a_program_ends_the_whole_tree(make_retinue, spawn, program, tmp_path):
    command = program.tool_step("bash", command="tail -f /dev/null", description="Waits.")
    waits = [{"text": "I wait.", **command}, {"text": "?"}]
    async with make_retinue() as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(run_lead, retinue, [spawn("worker", waits), {"text": "?"}])
        await until_told(watcher, lambda event: isinstance(event, ToolCalled) and event.name == "bash")
        began = anyio.current_time()
        retinue.stop(retinue._orchestrator.active_run_ids[0])
        ended = [await until_told(watcher, is_end) for _ in range(2)]
        assert anyio.current_time() - began < 4.0
    assert ends(ended) == [(2, ErrorCode.ABORTED), (1, ErrorCode.ABORTED)]
    assert alive(tmp_path) == []


async def test_delegation_token_is_in_no_file_of_the_program(make_retinue, spawn, program, tmp_path):
    tokens: list[bytes] = []
    async with make_retinue() as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(run_lead, retinue, [spawn("worker", [{"text": "Done."}]), {"text": "Done."}])
        await until_told(watcher, lambda event: isinstance(event, ToolCalled))
        # Claude Code's tools run in this process, so its run has no token.
        tokens += [each._token for each in retinue._orchestrator.delegation._runs.values() if each._token]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any("native" in file.parts for file in files)
    assert [file for file in files if any(token in file.read_bytes() for token in tokens)] == []
    assert len(tokens) == (1 if program.engine == "pi" else 0)
