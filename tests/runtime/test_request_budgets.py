"""Runs that share a budget: requests wait for refunds, in virtual time, and no order of events spends more than it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs
from tests.support.retinue_factory import VIRTUAL_TIME, stage

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.agent_loop import ModelReply, ModelRequest, OnDelta, run_agent_loop
from retinue.engines.base import Emit, EngineInfo
from retinue.engines.compaction import Compactor
from retinue.engines.scripted import CAPABILITIES, WaitStep, reply
from retinue.engines.toolbox import AgentToolbox
from retinue.model.errors import ErrorCode
from retinue.model.events import Text, TextDelta
from retinue.model.results import RunResult, Usage
from retinue.model.runs import RunSpec, ToolUse
from retinue.model.tasks import Plan, Task

LEAD = Agent(name="lead", tools=("read", "subagent"))


class Turn(Struct, frozen=True):
    """One reply of the model: the seconds and tokens it takes, and how many child runs it starts."""

    seconds: int = 0
    output: int = 0
    children: int = 0


class TurnModel:
    """A model whose replies take time, writing a word a second."""

    name = "maker/model"
    max_output_tokens = 2000

    def __init__(self, turns: list[Turn]) -> None:
        self.turns = turns

    async def find_prices(self, input_tokens: int) -> tuple[float, float]:
        return 0.0, 0.0

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        turn = self.turns.pop(0) if self.turns else Turn()
        for _ in range(turn.seconds):
            await anyio.sleep(1)
            await on_delta(TextDelta("word "))
        usage = Usage(input=100, output=min(turn.output, request.max_output_tokens or self.max_output_tokens))
        tasks = [{"agent": "explorer", "task": f"part {number}"} for number in range(turn.children)]
        if tasks and request.tools:
            call = ToolUse(f"call-{len(self.turns)}", "spawn_subagent", {"mode": "parallel", "tasks": tasks})
            return ModelReply(content=(call,), stop_reason="tool_use", usage=usage)
        return ModelReply(content=(Text("Done."),), usage=usage)


class LoopEngine:
    """Runs the agent loop on the turns that a task names."""

    def __init__(self, turns: Mapping[str, list[Turn]]) -> None:
        self.turns = turns

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        model = TurnModel(list(self.turns.get(spec.task, ())))

        async def find_window(_: int) -> None:
            return None

        compactor = Compactor(model, find_window, emit, spec.budget)
        await run_agent_loop(model, spec, AgentToolbox(), emit, compactor=compactor)


def open_stage(home: Path, turns: Mapping[str, list[Turn]], **options: Any) -> Retinue:
    capabilities = structs.replace(CAPABILITIES, steers=False)
    info = EngineInfo(
        name="scripted",
        capabilities=capabilities,
        make=lambda: LoopEngine(turns),
        not_installed_reason=lambda: None,
    )
    return stage(home, engines={"scripted": info}, agents=[LEAD], **options)


def reasons(results: list[RunResult]) -> list[str | None]:
    return [result.failure.reason or result.failure.code if result.failure else None for result in results]


def reserved(retinue: Retinue) -> int:
    conversations = retinue._orchestrator.budgets._conversations.values()
    return sum(each.budget.reserved.requests + len(each.budget.queue) for each in conversations)


@VIRTUAL_TIME
@pytest.mark.parametrize("limit", [{"max_conversation_tokens": 1500}, {"max_conversation_turns": 2}])
async def test_parallel_scripted_runs_exceed_the_budget_by_one_request_at_most(scratch_home, limit):
    answer = reply("ok", usage=Usage(input=900, output=100))
    async with stage(scratch_home, WaitStep(2), answer, settings=limit) as retinue:
        results = await retinue.delegate([("explorer", "Look")] * 4)
        assert reserved(retinue) == 0
    assert sorted(map(str, reasons(list(results)))) == ["None", "None", *map(str, [next(iter(limit))] * 2)]
    assert sum(result.usage.tokens for result in results) == 2000


async def run_in_turn(retinue: Retinue, *tasks: tuple[str, float]) -> list[RunResult]:
    """Start a run a second and return the results in that order; each has a task and a timeout."""
    results: dict[int, RunResult] = {}

    async def run(number: int, task: str, timeout: float) -> None:
        results[number] = await retinue.run("explorer", task, timeout=timeout)

    async with anyio.create_task_group() as group:
        for number, (task, timeout) in enumerate(tasks):
            group.start_soon(run, number, task, timeout)
            await anyio.sleep(1)
    return [results[number] for number in range(len(tasks))]


LONG, SHORT = ("long", 900.0), ("short", 900.0)
LONG_AND_SHORT = {"long": [Turn(seconds=100, output=100)], "short": [Turn(seconds=1, output=100)]}


@VIRTUAL_TIME
async def test_run_that_waits_for_a_budget_is_not_idle_and_goes_on_with_the_refund(scratch_home):
    limits = {"max_conversation_tokens": 3000, "idle_timeout": 10}
    async with open_stage(scratch_home, LONG_AND_SHORT, settings=limits) as retinue:
        results = await run_in_turn(retinue, LONG, SHORT)
        assert reserved(retinue) == 0
    assert [(result.failure, round(result.elapsed)) for result in results] == [(None, 100), (None, 100)]
    assert "The next request waits" in results[1].actual.notices[0]


@VIRTUAL_TIME
async def test_waiting_for_a_budget_counts_for_the_timeout(scratch_home):
    async with open_stage(scratch_home, LONG_AND_SHORT, settings={"max_conversation_tokens": 3000}) as retinue:
        results = await run_in_turn(retinue, LONG, ("short", 50.0))
        assert reserved(retinue) == 0
    assert [result.failure.code if result.failure else None for result in results] == [None, ErrorCode.TIMEOUT]


@VIRTUAL_TIME
async def test_cancelled_run_leaves_the_queue_and_the_next_one_goes_on(scratch_home):
    async with open_stage(scratch_home, LONG_AND_SHORT, settings={"max_conversation_tokens": 3000}) as retinue:

        async def stop_second() -> None:
            await anyio.sleep(10)
            assert reserved(retinue) == 3
            _, second, _ = retinue._orchestrator.active_run_ids
            retinue._orchestrator.stop(second)

        async with anyio.create_task_group() as group:
            group.start_soon(stop_second)
            results = await run_in_turn(retinue, LONG, LONG, SHORT)
        assert reserved(retinue) == 0
    assert reasons(results) == [None, ErrorCode.ABORTED, None]
    assert round(results[2].elapsed) == 99


@VIRTUAL_TIME
async def test_parent_that_waits_for_its_children_holds_nothing(scratch_home):
    turns = {"Lead": [Turn(children=3)], "part 0": [Turn(5, 900)], "part 1": [Turn(5, 900)], "part 2": [Turn(5, 900)]}
    async with open_stage(scratch_home, turns) as retinue:
        call = retinue.call("nested", max_conversation_tokens=14_000)
        (result,) = await retinue.run_plan(Plan(tasks=(Task(agent="lead", prompt="Lead"),)), call)
        assert reserved(retinue) == 0
    assert (result.failure, result.text) == (None, "Done.")
    assert result.actual.nested_usage.tokens == 3 * 1000


@VIRTUAL_TIME
async def test_child_runs_that_spend_all_leave_the_answer_of_their_parent(scratch_home):
    turns = {"Lead": [Turn(output=100, children=3)]} | {f"part {number}": [Turn(5, 9000)] for number in range(3)}
    async with open_stage(scratch_home, turns) as retinue:
        call = retinue.call("nested", max_tokens=8_000)
        (result,) = await retinue.run_plan(Plan(tasks=(Task(agent="lead", prompt="Lead"),)), call)
    assert (result.failure, result.text) == (None, "Done.")
    assert 4_000 < result.actual.nested_usage.tokens < 8_000


@VIRTUAL_TIME
@pytest.mark.parametrize("extension", [0, 20])
async def test_child_runs_in_flight_are_stopped_in_time_for_the_answer_of_their_parent(scratch_home, extension):
    turns = {"Lead": [Turn(children=2), Turn(seconds=3)], "part 0": [Turn(seconds=2000)], "part 1": [Turn(seconds=5)]}
    async with open_stage(scratch_home, turns) as retinue, anyio.create_task_group() as group:

        async def extend() -> None:
            await anyio.sleep(100)
            if extension:
                await retinue.extend(retinue._orchestrator.active_run_ids[0], extension)

        group.start_soon(extend)
        call = retinue.call("nested", timeout=600.0)
        (result,) = await retinue.run_plan(Plan(tasks=(Task(agent="lead", prompt="Lead"),)), call)
    assert (result.failure, result.text) == (None, "Done.")
    assert round(result.elapsed) == 570 + extension + 3
    assert "is nearly over" in result.actual.notices[-1]


TURNS = st.lists(st.builds(Turn, st.integers(0, 5), st.integers(0, 2500), st.integers(0, 3)), max_size=4)


@VIRTUAL_TIME
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    leads=st.lists(TURNS, min_size=1, max_size=3),
    parts=st.lists(TURNS, min_size=3, max_size=3),
    tokens=st.integers(3_000, 40_000),
    own=st.none() | st.integers(2_000, 20_000),
    turn_limit=st.none() | st.integers(1, 15),
    concurrency=st.integers(1, 4),
    stop_after=st.none() | st.integers(0, 20),
)
async def test_no_order_of_runs_spends_more_than_the_budget(
    scratch_home, leads, parts, tokens, own, turn_limit, concurrency, stop_after
):
    turns = {f"lead {number}": each for number, each in enumerate(leads)}
    turns |= {f"part {number}": each for number, each in enumerate(parts)}
    limits = {"max_conversation_tokens": tokens, "max_tokens": own, "max_conversation_turns": turn_limit}
    async with open_stage(scratch_home, turns) as retinue:
        set_limits = {name: value for name, value in limits.items() if value}
        call = retinue.call("nested", max_concurrency=concurrency, **set_limits)
        plan = Plan(tasks=tuple(Task(agent="lead", prompt=f"lead {number}") for number in range(len(leads))))
        async with anyio.create_task_group() as group:
            if stop_after is not None:
                group.start_soon(_stop_first, retinue, stop_after)
            results = await retinue.run_plan(plan, call)
        assert reserved(retinue) == 0
    usages = [(result.usage + result.actual.nested_usage, result) for result in results]
    assert sum(usage.tokens for usage, _ in usages) <= tokens
    assert all(usage.tokens <= (own or tokens) for usage, _ in usages)
    assert sum(usage.turns for usage, _ in usages) <= (turn_limit or 1000)


async def _stop_first(retinue: Retinue, seconds: int) -> None:
    await anyio.sleep(seconds)
    for run in retinue._orchestrator.active_run_ids[:1]:
        retinue._orchestrator.stop(run)
