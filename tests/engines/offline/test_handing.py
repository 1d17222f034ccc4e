"""What of a task the offline engine gives to others, and what it does with what they answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.delegation_reports import SPAWN, answers, ends

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.offline.handing import DelegatedTask, TaskSplit, split_task
from retinue.model.events import RunQueued, ToolCalled
from retinue.model.runs import RemovedTool
from retinue.model.tasks import Plan, Task
from retinue.sessions.memory import MemoryStore

LEAD = Agent(name="lead", body="You lead.", tools=("read", "grep", "find", "ls", "subagent"))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("Where is the bus?", TaskSplit((), "Where is the bus?")),
        ("ask explorer: Where is the bus?", TaskSplit((DelegatedTask("explorer", "Where is the bus?"),))),
        ("Delegate to reviewer: Review bus.py", TaskSplit((DelegatedTask("reviewer", "Review bus.py"),))),
        ("- Please ask `qa.2`: Test it", TaskSplit((DelegatedTask("qa.2", "Test it"),))),
        ("ask lead: ask explorer: x", TaskSplit((DelegatedTask("lead", "ask explorer: x"),))),
        ("1. ask a: x\n2) ask b: y\n", TaskSplit((DelegatedTask("a", "x"), DelegatedTask("b", "y")))),
        ("ask a:\n  ask b: x\n  ask c: y", TaskSplit((DelegatedTask("a", "ask b: x\nask c: y"),))),
        (
            "ask a: x\n\n  more of x\nask b: y",
            TaskSplit((DelegatedTask("a", "x\n\nmore of x"), DelegatedTask("b", "y"))),
        ),
        (
            "Find the bus.\nask a: x\nAnd the tests?",
            TaskSplit((DelegatedTask("a", "x"),), "Find the bus.\nAnd the tests?"),
        ),
        # Nobody is asked anything here.
        ("ask a:", TaskSplit((), "ask a:")),
        ("Why does it ask explorer: twice?", TaskSplit((), "Why does it ask explorer: twice?")),
        ("ask for it", TaskSplit((), "ask for it")),
        ("", TaskSplit()),
    ],
)
def test_a_line_that_asks_somebody_is_an_errand(task, expected):
    assert split_task(task) == expected


@given(st.text(alphabet=st.sampled_from(list("ask a:\n\t-1.x`")), max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_task_can_be_divided_and_no_errand_is_empty(task):
    found = split_task(task)
    assert all(errand.agent and errand.task.strip() for errand in found.delegated)
    assert found.delegated or found.rest == "\n".join(task.splitlines()).strip()


@pytest.fixture
def opened(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "bus.py").write_text('"""Events to watchers."""\n\n\nclass Bus:\n    pass\n')
    environ = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    def made(**given) -> Retinue:
        return Retinue(
            cwd=tmp_path, engine="offline", agents=[LEAD], environ=environ, store=MemoryStore(), settings=given
        )

    return made


async def led(retinue: Retinue, task: str, agent: str = "lead"):
    """The result of a run that is given this task, and the events of all its tree."""
    async with retinue, retinue.events(deltas=False) as watcher:
        plan = Plan(tasks=(Task(agent=agent, prompt=task),))
        (result,) = await retinue.run_plan(plan, retinue.call("nested"))
        return result, list(watcher.drain())


async def test_it_asks_whom_it_is_told_to_ask_and_passes_the_answer_on(opened):
    result, events = await led(opened(), "ask explorer: Where is the Bus?")
    (answer,) = answers(events)
    assert result.text == f"Rule-based search, not a language model; asked explorer:\n\n{answer}"
    assert "`src/bus.py:4`" in answer
    assert ends(events) == [(2, None), (1, None)]
    assert [one.event.name for one in events if isinstance(one.event, ToolCalled) and one.origin.depth == 1] == [
        SPAWN
    ]


async def test_several_are_asked_at_once(opened):
    result, events = await led(opened(), "ask explorer: Where is the Bus?\nask reviewer: Review bus.py")
    assert "asked explorer, reviewer:\n\n=== 1 explorer: ok ===" in result.text
    assert "=== 2 reviewer: ok ===" in result.text
    assert len(answers(events)) == 1


async def test_what_is_left_it_does_itself(opened):
    result, events = await led(opened(), "Where is the Bus defined?\nask reviewer: Review bus.py")
    (answer,) = answers(events)
    own, _, passed_on = result.text.partition("\n\nBeside that, asked reviewer:\n\n")
    assert "`src/bus.py:4`" in own
    assert passed_on == answer


async def test_a_tree_is_as_deep_as_the_task_says_and_no_deeper_than_allowed(opened):
    task = "ask lead:\n  ask lead:\n    ask lead: ask explorer: Where is the Bus?"
    _, events = await led(opened(max_depth=3), task)
    queued = [one for one in events if isinstance(one.event, RunQueued)]
    assert [one.origin.depth for one in queued] == [1, 2, 3]
    assert [one.origin.parent_run for one in queued] == [None, *(one.origin.run for one in queued[:-1])]
    assert all(code is None for _, code in ends(events))


async def test_a_tree_finishes_with_one_slot(opened):
    below = "ask lead:\n  ask explorer: Where is the Bus?\n  ask reviewer: Review bus.py\nask explorer: What is src?"
    result, events = await led(opened(max_concurrency=1), below)
    assert result.failure is None
    assert sorted(ends(events)) == [(1, None), (2, None), (2, None), (3, None), (3, None)]


async def test_spawns_and_unknown_agents_are_told_as_home_says(opened):
    refused, _ = await led(opened(max_spawns=1), "ask explorer: x\nask explorer: y")
    assert "The agents below this call have started 0 runs and may start 1 (max_spawns); 2 more" in refused.text
    unknown, _ = await led(opened(), "ask nobody: x")
    assert "Unknown agent: nobody. Available agents:" in unknown.text


async def test_an_agent_that_may_not_delegate_takes_the_line_for_a_question(opened):
    result, events = await led(opened(), "ask reviewer: Where is the Bus?", agent="explorer")
    assert "`src/bus.py:4`" in result.text
    assert answers(events) == []
    bounded, events = await led(opened(max_depth=1), "ask reviewer: Where is the Bus?")
    assert bounded.actual.tools_removed == (RemovedTool("subagent", "depth"),)
    assert answers(events) == []
