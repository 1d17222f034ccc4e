"""Delegation by a scripted Claude Code, by our tool and by its own, to runs of any engine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.claude_setup import claude_stage, deeds, environment
from tests.support.delegation_reports import SPAWN, answers, ends
from tests.support.pi_setup import alive, until_told

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.composition import available_engines
from retinue.engines.base import EngineInfo
from retinue.engines.claude.sdk import NATIVE_DELEGATION_REFUSED
from retinue.engines.scripted import CAPABILITIES, HangStep, RunCallback, Script, ScriptedEngine, Step, reply
from retinue.model.errors import ErrorCode
from retinue.model.events import RunStarted, ToolCalled
from retinue.model.tasks import Plan, Task
from retinue.sessions.memory import MemoryStore

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]

LEAD = Agent(name="lead", body="You lead.", tools=("read", "Task"), engine="claude")
WORKER = Agent(name="worker", body="You work.", tools=("read",), engine="scripted")
OURS = f"mcp__retinue__{SPAWN}"
NATIVE = {"description": "d", "prompt": "x", "subagent_type": "worker"}
SAY = {"say": "Done."}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_retinue(scratch_home: Path) -> Callable[..., Retinue]:
    """Return a factory of Retinues with a lead on Claude Code and a scripted worker."""

    def make_retinue(*steps: Step, **settings: Any) -> Retinue:
        script: Script = steps or (reply("worked: {task}"),)
        kind = EngineInfo(
            name="scripted",
            capabilities=CAPABILITIES,
            make=lambda: ScriptedEngine(*script),
            not_installed_reason=lambda: None,
        )
        kinds = {**available_engines(environment(scratch_home)), "scripted": kind}
        options: dict[str, Any] = {"engines": kinds, "engine": None, "store": MemoryStore()}
        return claude_stage(scratch_home, agents=[LEAD, WORKER], settings=settings, **options)

    return make_retinue


async def run_lead(retinue: Retinue, *given: Any):
    plan = Plan(tasks=(Task(agent="lead", prompt=deeds(*given)),))
    async with retinue.events(deltas=False) as watcher:
        (result,) = await retinue.run_plan(plan, retinue.call("nested"))
        return result, list(watcher.drain())


@pytest.mark.parametrize(
    ("tool", "given"),
    [(OURS, {"agent": "worker", "task": "x"}), ("Agent", NATIVE), ("Task", NATIVE)],
    ids=["ours", "its own", "its own by the older name"],
)
async def test_delegated_result_has_the_text_of_the_nested_toolset(open_retinue, tool, given):
    async with open_retinue() as retinue:
        result, events = await run_lead(retinue, {"delegate": given, "by": tool}, SAY)
    assert (result.failure, result.text, ends(events)) == (None, "Done.", [(2, None), (1, None)])
    assert answers(events) == ["worked: x"]
    (call,) = [one.event for one in events if isinstance(one.event, ToolCalled)]
    assert (call.name, call.args) == (SPAWN, {"agent": "worker", "task": "x"})
    assert {one.origin.parent_tool_use_id for one in events if one.origin.depth == 2} == {call.call}


async def test_native_agent_runs_are_denied(open_retinue):
    async with open_retinue() as retinue:
        _, events = await run_lead(retinue, {"delegate": NATIVE, "by": "Agent", "old": True}, SAY)
    assert (answers(events), ends(events)) == ([NATIVE_DELEGATION_REFUSED], [(1, None)])


async def test_killed_parent_ends_its_child_runs(open_retinue, scratch_home):
    async def kill() -> None:
        (lead,) = {int(one.split()[0]) for one in alive(scratch_home) if "fake-claude" in one}
        os.kill(lead, signal.SIGKILL)

    async with open_retinue(RunCallback(kill), HangStep()) as retinue:
        result, events = await run_lead(retinue, {"delegate": NATIVE, "by": "Agent"}, SAY)
    assert result.failure
    assert result.failure.code is ErrorCode.SIGNALLED
    assert ends(events) == [(2, ErrorCode.ABORTED), (1, ErrorCode.SIGNALLED)]
    assert alive(scratch_home) == []


async def test_stopping_an_unresponsive_parent_ends_its_child_runs(open_retinue, scratch_home):
    results = []

    async def work() -> None:
        results.append(await run_lead(retinue, {"stay": True}, {"delegate": NATIVE, "by": "Agent"}, SAY))

    async with (
        open_retinue(HangStep()) as retinue,
        retinue.events(deltas=False) as watcher,
        anyio.create_task_group() as group,
    ):
        group.start_soon(work)
        for _ in range(2):
            await until_told(watcher, lambda event: isinstance(event, RunStarted))
        retinue.stop(retinue._orchestrator.active_run_ids[0])
    ((result, events),) = results
    assert result.failure
    assert ends(events) == [(2, ErrorCode.ABORTED), (1, ErrorCode.ABORTED)]
    assert alive(scratch_home) == []
