"""Delegation by the offline engine: which lines of a task go to other agents, and how their answers are used."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.delegation_reports import SPAWN, answers, ends

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.offline.engine import split_task
from retinue.model.events import RunQueued, ToolCalled
from retinue.model.runs import RemovedTool
from retinue.model.tasks import Plan, Task
from retinue.sessions.memory import MemoryStore

LEAD = Agent(name="lead", body="You lead.", tools=("read", "grep", "find", "ls", "subagent"))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("Where is the bus?", ([], "Where is the bus?")),
        ("ask explorer: Where is the bus?", ([("explorer", "Where is the bus?")], "")),
        ("Delegate to reviewer: Review bus.py", ([("reviewer", "Review bus.py")], "")),
        ("- Please ask `qa.2`: Test it", ([("qa.2", "Test it")], "")),
        ("ask lead: ask explorer: x", ([("lead", "ask explorer: x")], "")),
        ("1. ask a: x\n2) ask b: y\n", ([("a", "x"), ("b", "y")], "")),
        ("ask a:\n  ask b: x\n  ask c: y", ([("a", "ask b: x\nask c: y")], "")),
        (
            "ask a: x\n\n  more of x\nask b: y",
            ([("a", "x\n\nmore of x"), ("b", "y")], ""),
        ),
        (
            "Find the bus.\nask a: x\nAnd the tests?",
            ([("a", "x")], "Find the bus.\nAnd the tests?"),
        ),
        # These name no agent or no task.
        ("ask a:", ([], "ask a:")),
        ("Why does it ask explorer: twice?", ([], "Why does it ask explorer: twice?")),
        ("ask for it", ([], "ask for it")),
        ("", ([], "")),
    ],
)
def test_line_that_names_an_agent_is_delegated(task, expected):
    assert split_task(task) == expected


@given(st.text(alphabet=st.sampled_from(list("ask a:\n\t-1.x`")), max_size=200))
@settings(max_examples=200, deadline=None)
def test_delegated_parts_are_never_empty(task):
    delegated, rest = split_task(task)
    assert all(agent and part.strip() for agent, part in delegated)
    assert delegated or rest == "\n".join(task.splitlines()).strip()


@pytest.fixture
def make_retinue(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "bus.py").write_text('"""Events to watchers."""\n\n\nclass Bus:\n    pass\n')
    environ = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    def make_retinue(**options) -> Retinue:
        return Retinue(
            cwd=tmp_path, engine="offline", agents=[LEAD], environ=environ, store=MemoryStore(), settings=options
        )

    return make_retinue


async def run_lead(retinue: Retinue, task: str, agent: str = "lead"):
    """Run a task and return its result and the events of the whole tree."""
    async with retinue, retinue.events(deltas=False) as watcher:
        plan = Plan(tasks=(Task(agent=agent, prompt=task),))
        (result,) = await retinue.run_plan(plan, retinue.call("nested"))
        return result, list(watcher.drain())


async def test_answer_of_a_delegated_task_is_passed_on(make_retinue):
    result, events = await run_lead(make_retinue(), "ask explorer: Where is the Bus?")
    (answer,) = answers(events)
    assert result.text == f"Rule-based search, not a language model; asked explorer:\n\n{answer}"
    assert "`src/bus.py:4`" in answer
    assert ends(events) == [(2, None), (1, None)]
    assert [one.event.name for one in events if isinstance(one.event, ToolCalled) and one.origin.depth == 1] == [
        SPAWN
    ]


async def test_several_delegated_tasks_run_in_parallel(make_retinue):
    result, events = await run_lead(make_retinue(), "ask explorer: Where is the Bus?\nask reviewer: Review bus.py")
    assert "asked explorer, reviewer:\n\n=== 1 explorer: ok ===" in result.text
    assert "=== 2 reviewer: ok ===" in result.text
    assert len(answers(events)) == 1


async def test_rest_of_the_task_is_answered_by_the_engine_itself(make_retinue):
    result, events = await run_lead(make_retinue(), "Where is the Bus defined?\nask reviewer: Review bus.py")
    (answer,) = answers(events)
    own, _, delegated = result.text.partition("\n\nAlso asked reviewer:\n\n")
    assert "`src/bus.py:4`" in own
    assert delegated == answer


async def test_delegation_tree_is_no_deeper_than_max_depth(make_retinue):
    task = "ask lead:\n  ask lead:\n    ask lead: ask explorer: Where is the Bus?"
    _, events = await run_lead(make_retinue(max_depth=3), task)
    queued = [one for one in events if isinstance(one.event, RunQueued)]
    assert [one.origin.depth for one in queued] == [1, 2, 3]
    assert [one.origin.parent_run for one in queued] == [None, *(one.origin.run for one in queued[:-1])]
    assert all(code is None for _, code in ends(events))


async def test_delegation_tree_finishes_with_one_slot(make_retinue):
    below = "ask lead:\n  ask explorer: Where is the Bus?\n  ask reviewer: Review bus.py\nask explorer: What is src?"
    result, events = await run_lead(make_retinue(max_concurrency=1), below)
    assert result.failure is None
    assert sorted(ends(events)) == [(1, None), (2, None), (2, None), (3, None), (3, None)]


async def test_refused_delegation_is_reported_in_the_answer(make_retinue):
    refused, _ = await run_lead(make_retinue(max_spawns=1), "ask explorer: x\nask explorer: y")
    assert "The child runs of this call have started 0 runs and may start 1 (max_spawns); 2 more" in refused.text
    unknown, _ = await run_lead(make_retinue(), "ask nobody: x")
    assert "Unknown agent: nobody. Available agents:" in unknown.text


async def test_agent_without_delegation_answers_the_line_itself(make_retinue):
    result, events = await run_lead(make_retinue(), "ask reviewer: Where is the Bus?", agent="explorer")
    assert "`src/bus.py:4`" in result.text
    assert answers(events) == []
    bounded, events = await run_lead(make_retinue(max_depth=1), "ask reviewer: Where is the Bus?")
    assert bounded.actual.tools_removed == (RemovedTool("subagent", "depth"),)
    assert answers(events) == []
