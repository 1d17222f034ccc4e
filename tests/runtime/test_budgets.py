"""Budgets of a conversation: all its runs count for one budget, in any call and at any depth."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.support.delegation_reports import answers
from tests.support.retinue_factory import scripted, stage

from retinue.agents.agent import Agent
from retinue.engines.scripted import (
    CAPABILITIES,
    DelegateStep,
    RunCallback,
    Script,
    ScriptedEngine,
    ToolCallStep,
    fail,
    reply,
)
from retinue.model.errors import ErrorCode
from retinue.model.events import MessageEnded, RunStarted
from retinue.model.results import Usage
from retinue.model.runs import RunSpec
from retinue.model.tasks import Plan, Task

LOOK = ("explorer", "Look")
LEAD = Agent(name="lead", tools=("read", "subagent"))
STATES_COST = structs.replace(CAPABILITIES, reports_cost=True)
TWENTY = Usage(input=15, output=5, cost=0.02)
SPENT = (
    "This conversation's budget of tokens is spent ({} of {}); the run was not started. Continue without this run, "
    "or raise max_conversation_tokens."
)


def looking(task: str = "x") -> tuple[ToolCallStep, ...]:
    """A message of 20 tokens that calls a tool."""
    return (ToolCallStep(name="read", args={"path": task}, usage=TWENTY),)


ANSWER = reply("ok", usage=TWENTY)


def reasons(results) -> list[str | None]:
    return [result.failure and result.failure.reason for result in results]


@pytest.mark.parametrize(
    ("limit", "spent"),
    [
        ({"max_conversation_tokens": 30}, "tokens is spent (40 of 30)"),
        ({"max_conversation_turns": 2}, "turns is spent (2 of 2)"),
        ({"max_conversation_cost": 0.03}, "cost is spent ($0.0400 of $0.0300)"),
    ],
)
async def test_usage_of_the_first_call_stops_the_second_call_of_a_conversation(scratch_home, limit, spent):
    engines = scripted(ScriptedEngine(*looking(), ANSWER), STATES_COST)
    async with stage(scratch_home, engines=engines, settings=limit) as retinue:
        first, second = await retinue.run(*LOOK), await retinue.run(*LOOK)
    assert first.failure is None  # a final answer is kept even if it cost the last of the budget
    assert second.failure
    assert (second.failure.code, second.usage) == (ErrorCode.BUDGET, Usage())
    assert spent in second.failure.message
    assert second.actual.limits == first.actual.limits


async def test_run_is_stopped_when_the_conversation_budget_is_spent(scratch_home):
    async with stage(scratch_home, *looking(), *looking("y"), ANSWER) as retinue:
        first = await retinue.run(*LOOK, max_conversation_tokens=90)
        second = await retinue.run(*LOOK, max_conversation_tokens=90)
    assert reasons([first, second]) == [None, "max_conversation_tokens"]
    assert second.usage.tokens == 40
    assert second.failure
    assert second.failure.message == (
        "This conversation's budget of tokens is spent (100 of 90) before a final answer; the run was stopped and "
        "its partial output was kept. Resume the session, or raise max_conversation_tokens."
    )


async def test_each_conversation_has_its_own_budget(scratch_home):
    async with stage(scratch_home, *looking(), ANSWER, settings={"max_conversation_tokens": 30}) as retinue:
        mine = retinue.call("nested")
        other = structs.replace(mine, lineage=structs.replace(mine.lineage, root="another"))
        plan = Plan(tasks=(Task(agent="explorer", prompt="Look"),))
        results = [(await retinue.run_plan(plan, call))[0] for call in (mine, other, mine, other)]
    assert reasons(results) == [None, None, "max_conversation_tokens", "max_conversation_tokens"]


async def test_a_call_may_raise_the_budget_for_itself(scratch_home):
    async with stage(scratch_home, *looking(), ANSWER, settings={"max_conversation_tokens": 30}) as retinue:
        results = [await retinue.run(*LOOK), await retinue.run(*LOOK, max_conversation_tokens=100)]
        results.append(await retinue.run(*LOOK))
    assert reasons(results) == [None, None, "max_conversation_tokens"]


async def test_budget_of_a_run_starts_at_zero_for_the_next_run(scratch_home):
    async with stage(scratch_home, *looking(), ANSWER, settings={"max_tokens": 50}) as retinue:
        assert reasons([await retinue.run(*LOOK) for _ in range(3)]) == [None] * 3


async def test_chain_steps_and_parallel_tasks_share_the_conversation_budget(scratch_home):
    async with stage(scratch_home, ANSWER, settings={"max_conversation_tokens": 30, "max_concurrency": 1}) as retinue:
        chain = await retinue.chain([LOOK, LOOK, LOOK, LOOK])
        assert reasons(chain) == [None, None, "max_conversation_tokens"]
        assert chain[-1].failure
        assert chain[-1].failure.message == SPENT.format(40, 30)
    async with stage(scratch_home, ANSWER) as retinue, retinue.events(deltas=False) as watcher:
        at_once = await retinue.delegate([LOOK] * 4, max_conversation_tokens=30, max_concurrency=1)
        started = sum(isinstance(one.event, RunStarted) for one in watcher.drain())
    assert sorted(map(str, reasons(at_once))) == ["None"] * 2 + ["max_conversation_tokens"] * 2
    assert started == 2


async def test_attempts_and_models_count_for_the_budget(scratch_home):
    tries = ScriptedEngine.from_scripts([*looking(), fail("429 rate limit")], [*looking(), ANSWER])
    agent = Agent(name="a", model="m1", fallback_models=("m2",))
    async with stage(scratch_home, engines=scripted(tries), agents=[agent]) as retinue:
        result = await retinue.run("a", "x", max_conversation_tokens=30)
    assert [attempt.reason for attempt in result.actual.attempts] == ["first", "fallback"]
    assert reasons([result]) == ["max_conversation_tokens"]
    assert result.usage.tokens == 40


async def test_child_runs_count_for_the_budget_and_a_spent_budget_refuses_the_next_child(scratch_home):
    three = DelegateStep(
        {"mode": "parallel", "tasks": [{"agent": "explorer", "task": f"part {n}"} for n in range(3)]}
    )

    def script(spec):
        return (three, ANSWER) if spec.agent.name == "lead" else (ANSWER,)

    async with stage(scratch_home, script, agents=[LEAD]) as retinue, retinue.events(deltas=False) as watcher:
        call = retinue.call("nested", max_conversation_tokens=30, max_concurrency=1)
        plan = Plan(tasks=(Task(agent="lead", prompt="x"),))
        results = [(await retinue.run_plan(plan, call))[0] for _ in range(2)]
        (told,) = answers(watcher.drain())
    assert sorted(told.split("\n\n")) == [
        "=== 1 explorer: ok ===\nok",
        "=== 2 explorer: ok ===\nok",
        f"=== 3 explorer: error ===\n{SPENT.format(40, 30)}",
    ]
    assert reasons(results) == ["max_conversation_tokens"] * 2  # the answer of the parent is a request, too
    assert results[0].actual.nested_usage.tokens == 40


async def test_continued_conversation_counts_its_stored_usage(scratch_home):
    options = {"root": "c1", "settings": {"max_conversation_tokens": 100}}
    state = scratch_home / "state"
    async with stage(scratch_home, *looking(), ANSWER, store=None, state=state, **options) as retinue:
        first = await retinue.run(*LOOK)
        await retinue.run(*LOOK, session=first.session)
    async with stage(scratch_home, *looking(), ANSWER, store=None, state=state, **options) as retinue:
        again = [await retinue.run(*LOOK), await retinue.run(*LOOK)]
    assert reasons(again) == [None, "max_conversation_tokens"]
    assert again[1].failure
    assert again[1].failure.message == SPENT.format(120, 100)
    async with stage(scratch_home, ANSWER, store=None, state=state, **{**options, "root": "c2"}) as retinue:
        assert reasons([await retinue.run(*LOOK)]) == [None]


async def test_unknown_cost_is_not_limited(scratch_home):
    async with stage(scratch_home, ANSWER) as retinue:
        result = await retinue.run(*LOOK, max_conversation_cost=1.0)
    assert result.failure
    assert result.failure.code is ErrorCode.UNSUPPORTED
    assert "max_conversation_cost" in result.failure.message


async def test_engine_gets_the_remaining_cost_limit(scratch_home):
    """Claude Code enforces a cost limit itself, so it must get only what other runs have left."""
    told: list[tuple[float | None, float | None]] = []

    def script(spec: RunSpec) -> Script:
        told.append((spec.limits.max_cost, spec.limits.max_conversation_cost))
        if spec.agent.name == "lead":
            return (*looking(), DelegateStep({"agent": "explorer", "task": "x"}), ANSWER)
        return (*looking(), fail("429 rate limit")) if spec.model != "other" else (ANSWER,)

    explorer = Agent(name="explorer", tools=("read",), fallback_models=("other",))
    options = {"agents": [LEAD, explorer], "engines": scripted(ScriptedEngine(script), STATES_COST)}
    limits = {"max_cost": 0.1, "max_conversation_cost": 0.5}
    async with stage(scratch_home, settings=limits, **options) as retinue:
        await retinue.run_plan(Plan(tasks=(Task(agent="lead", prompt="Lead"),)), retinue.call("nested"))
        await retinue.run(*LOOK)
    rounded = [(round(own or 0, 4), round(shared or 0, 4)) for own, shared in told]
    assert rounded == [(0.1, 0.5), (0.08, 0.48), (0.06, 0.46), (0.1, 0.42), (0.08, 0.4)]


async def test_continued_session_counts_its_stored_usage_in_its_conversation(scratch_home):
    options = {"store": None, "state": scratch_home / "state"}
    async with stage(scratch_home, ANSWER, **options) as retinue:
        own = retinue.call("single")
        first = await retinue.run(*LOOK)
        await retinue.run(*LOOK)
    async with stage(scratch_home, ANSWER, **options) as retinue:
        resumed = Plan(tasks=(Task(agent="explorer", prompt="Look", session=first.session),))

        async def again(**settings):
            call = retinue.call("single", **settings)
            call = structs.replace(call, lineage=structs.replace(call.lineage, root=own.lineage.root))
            return (await retinue.run_plan(resumed, call))[0]

        results = [await again(), await again(max_conversation_tokens=50)]
        assert reasons(results) == [None, "max_conversation_tokens"]
        assert results[1].failure
        assert results[1].failure.message == SPENT.format(60, 50)


async def test_runs_of_a_session_under_another_conversation_are_not_counted(scratch_home):
    options = {"store": None, "state": scratch_home / "state"}
    async with stage(scratch_home, ANSWER, root="c1", **options) as retinue:
        first = await retinue.run(*LOOK)
    for _ in range(2):
        async with stage(scratch_home, ANSWER, root="c2", **options) as retinue:
            result = await retinue.run(*LOOK, session=first.session, max_conversation_tokens=30)
            assert result.failure is None


async def test_session_continued_by_another_conversation_still_counts_for_the_first(scratch_home):
    options = {"store": None, "state": scratch_home / "state"}
    async with stage(scratch_home, ANSWER, root="c1", **options) as retinue:
        first = await retinue.run(*LOOK)
    async with stage(scratch_home, ANSWER, root="c2", **options) as retinue:
        await retinue.run(*LOOK, session=first.session)
    for root in ("c1", "c2"):
        async with stage(scratch_home, ANSWER, root=root, **options) as retinue:
            assert reasons([await retinue.run(*LOOK, max_conversation_tokens=10)]) == ["max_conversation_tokens"]


async def test_message_that_arrives_while_a_run_is_stopped_counts_for_the_conversation(scratch_home):
    async def stop() -> None:
        retinue._orchestrator.stop_all()

    message = MessageEnded(stop_reason="tool_use", usage=TWENTY)
    async with stage(scratch_home, RunCallback(stop), message) as retinue:
        stopped = await retinue.run(*LOOK)
        result = await retinue.run(*LOOK, max_conversation_tokens=10)
    assert stopped.usage.tokens == 20
    assert result.failure
    assert result.failure.message == SPENT.format(20, 10)
