"""What of a task the offline engine gives to others, and what it does with what they answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.home.told import SPAWN, answers, ends

from retinue.agents.definition import Agent
from retinue.app import Retinue
from retinue.engines.offline.handing import Errand, Handing, divided
from retinue.events import RunQueued, ToolCalled
from retinue.sessions.memory import MemoryStore
from retinue.types import Plan, Removed, Task

LEAD = Agent(name="lead", body="You lead.", tools=("read", "grep", "find", "ls", "subagent"))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("Where is the bus?", Handing((), "Where is the bus?")),
        ("ask explorer: Where is the bus?", Handing((Errand("explorer", "Where is the bus?"),))),
        ("Delegate to reviewer: Review bus.py", Handing((Errand("reviewer", "Review bus.py"),))),
        ("- Please ask `qa.2`: Test it", Handing((Errand("qa.2", "Test it"),))),
        ("ask lead: ask explorer: x", Handing((Errand("lead", "ask explorer: x"),))),
        ("1. ask a: x\n2) ask b: y\n", Handing((Errand("a", "x"), Errand("b", "y")))),
        ("ask a:\n  ask b: x\n  ask c: y", Handing((Errand("a", "ask b: x\nask c: y"),))),
        ("ask a: x\n\n  more of x\nask b: y", Handing((Errand("a", "x\n\nmore of x"), Errand("b", "y")))),
        ("Find the bus.\nask a: x\nAnd the tests?", Handing((Errand("a", "x"),), "Find the bus.\nAnd the tests?")),
        # Nobody is asked anything here.
        ("ask a:", Handing((), "ask a:")),
        ("Why does it ask explorer: twice?", Handing((), "Why does it ask explorer: twice?")),
        ("ask for it", Handing((), "ask for it")),
        ("", Handing()),
    ],
)
def test_a_line_that_asks_somebody_is_an_errand(task, expected):
    assert divided(task) == expected


@given(st.text(alphabet=st.sampled_from(list("ask a:\n\t-1.x`")), max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_task_can_be_divided_and_no_errand_is_empty(task):
    found = divided(task)
    assert all(errand.agent and errand.task.strip() for errand in found.errands)
    assert found.errands or found.rest == "\n".join(task.splitlines()).strip()


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
        (result,) = await retinue.carry_out(plan, retinue.call("nested"))
        return result, list(watcher.waiting())


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
    assert bounded.actual.tools_removed == (Removed("subagent", "depth"),)
    assert answers(events) == []
