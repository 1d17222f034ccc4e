"""Runs that delegate, on a pi that does as it is told: what they ask for is counted, told and ended with them."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import anyio
import pytest
from tests.home.told import SPAWN, actual, answers, ends, is_end
from tests.pi_stage import OLD, alive, pi_stage, reported, until_told

from retinue.agents.definition import Agent
from retinue.app import Retinue
from retinue.events import RunEnded, RunQueued, RunStarted, Text, ToolCalled, ToolReturned
from retinue.testing.fake_pi import deed, script
from retinue.types import Code, Mode, Plan, Removed, Task

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]

LEAD = Agent(name="lead", body="You lead.", tools=("read", "bash", "subagent"))
WORKER = Agent(name="worker", body="You work.", tools=("read", "bash", "write"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def opened(home: Path, version: str | None = None, **settings) -> Retinue:
    agents, environ = [LEAD, WORKER], {"TMPDIR": str(home)}
    return pi_stage(home, agents=agents, settings=settings, environ=environ, version=version)


async def led(retinue: Retinue, *deeds, agent: str = "lead", **settings):
    """The result of a run of the lead in which pi does these things."""
    plan = Plan(tasks=(Task(agent=agent, prompt=script(*deeds)),))
    (result,) = await retinue.carry_out(plan, retinue.call("nested", parent_call="toolu_0", **settings))
    return result


def spawn(*deeds, agent: str = "worker", **options):
    """A deed that delegates these deeds."""
    return deed("home", SPAWN, {"agent": agent, "task": script(*deeds)}, **options)


def token_of(retinue: Retinue) -> str:
    """That of the one run that may delegate."""
    (member,) = retinue._orchestrator.household._members.values()
    return member._token.decode()


async def test_a_run_delegates_and_is_answered_and_every_event_says_whose_it_is(home):
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher:
        result = await led(retinue, spawn(deed("say", "I worked.")), deed("say", "Done."))
        events = list(watcher.waiting())
    assert (result.failure, result.text) == (None, "Done.")
    assert answers(events) == ["I worked."]
    queued = [one for one in events if isinstance(one.event, RunQueued)]
    (call,) = [one.event.call for one in events if isinstance(one.event, ToolCalled)]
    lead, worker = (one.origin for one in queued)
    assert (lead.depth, lead.parent_run, lead.parent_tool_use_id) == (1, None, "toolu_0")
    assert (worker.depth, worker.parent_run, worker.parent_tool_use_id) == (2, lead.run, call)
    assert worker.root == lead.root
    assert [one.origin.run for one in events if is_end(one.event)] == [worker.run, lead.run]


async def test_what_a_child_may_have_is_no_more_than_its_parent_has(home):
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, spawn(deed("say", "hi")), deed("say", "Done."))
        runs = actual(watcher.waiting())
    assert runs[1].tools_granted == ("read", "bash", SPAWN, "agent_info")
    assert runs[2].tools_granted == ("read", "bash")
    assert runs[2].tools_removed == (Removed("write", "authority"),)


async def test_depth_ends_at_its_limit_and_the_last_level_has_no_tools_to_delegate(home):
    deepest = spawn(deed("report"), agent="lead")
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, spawn(deepest, deed("say", "two"), agent="lead"), deed("say", "one"))
        events = list(watcher.waiting())
    runs = actual(events)
    assert [SPAWN in runs[depth].tools_granted for depth in (1, 2, 3)] == [True, True, False]
    assert runs[3].tools_removed == (Removed("subagent", "depth"),)
    (told,) = [one.event.text for one in events if isinstance(one.event, Text) and '"configured"' in one.event.text]
    assert '"home"' not in told


async def test_a_run_that_may_not_delegate_has_no_home(home):
    async with opened(home) as retinue:
        plain = await led(retinue, deed("report"), agent="worker")
        single = await retinue.run("lead", script(deed("report")))
    assert '"home"' not in plain.text
    assert '"home"' not in single.text
    assert Removed("subagent", "depth") in single.actual.tools_removed


async def test_a_token_is_in_no_argument_no_environment_no_file_and_no_answer(home):
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(lambda: led(retinue, deed("report"), deed("bash", "env"), deed("hang")))
        reported = await until_told(watcher, lambda event: isinstance(event, Text))
        await until_told(watcher, lambda event: isinstance(event, ToolReturned))
        token = token_of(retinue)
        (pid,) = {one.split()[0] for one in alive(home) if "--mode rpc" in one}
        for name in ("cmdline", "environ"):
            assert token.encode() not in Path("/proc", pid, name).read_bytes()
        retinue.stop_all()
    assert isinstance(reported.event, Text)
    assert '"home": {"socket"' in reported.event.text  # it did know one
    # pi's own record has what it said itself, which was to show its token: that is left out.
    files = [file for file in home.rglob("*") if file.is_file() and "native" not in file.parts]
    assert any(b"agent_info" in file.read_bytes() for file in files)  # its record is among them
    assert [file for file in files if token.encode() in file.read_bytes()] == []


async def test_spawns_are_counted_below_the_root_call_whoever_asks(home):
    two = {"mode": "parallel", "tasks": [{"agent": "worker", "task": "a"}, {"agent": "worker", "task": "b"}]}
    async with opened(home, max_spawns=2) as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, deed("home", SPAWN, two), deed("home", SPAWN, two), deed("say", "Done."))
        events = list(watcher.waiting())
    first, second = answers(events)
    assert first.startswith("=== 1 worker: ok ===")
    assert second.startswith(
        "The agents below this call have started 2 runs and may start 2 (max_spawns); 2 more were"
    )
    assert sum(isinstance(one.event, RunQueued) for one in events) == 3


async def test_the_task_of_an_ancestor_is_not_handed_on(home):
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, deed("home", SPAWN, {"agent": "lead", "task": "{prompt}"}), deed("say", "Done."))
        (answer,) = answers(list(watcher.waiting()))
    assert answer.startswith("lead was already given this task, or nearly the same one, further up.")


async def test_four_slots_are_enough_for_three_levels_of_four_each(home):
    def four(*deeds, agent: str):
        tasks = [{"agent": agent, "task": f"{n} {script(*deeds)}"} for n in range(4)]
        return {"mode": "parallel", "tasks": tasks}

    lowest = four(deed("say", "leaf"), agent="worker")
    middle = four(deed("home", SPAWN, lowest), deed("say", "branch"), agent="lead")
    highest = script(deed("home", SPAWN, middle), deed("say", "root"))
    tasks = tuple(Task(agent="lead", prompt=f"{n} {highest}") for n in range(4))
    told: Counter[tuple[type, int]] = Counter()
    async with opened(home, max_spawns=100, max_concurrency=4) as retinue, retinue.events(deltas=False) as watcher:
        with anyio.fail_after(50):
            results = await retinue.carry_out(Plan(tasks=tasks, mode=Mode.PARALLEL), retinue.call("nested"))
        for one in watcher.waiting():
            told[type(one.event), one.origin.depth] += 1
    assert [result.text for result in results] == ["root"] * 4
    assert [told[RunStarted, depth] for depth in (1, 2, 3)] == [4, 16, 64]
    assert [told[RunEnded, depth] for depth in (1, 2, 3)] == [4, 16, 64]


async def test_stopping_a_run_stops_all_below_it_and_leaves_no_process(home):
    deepest = spawn(deed("bash", "sleep 99"))
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(lambda: led(retinue, deed("ignore", "TERM"), spawn(deepest, agent="lead")))
        waiting = await until_told(watcher, lambda event: isinstance(event, ToolCalled) and event.name == "bash")
        assert waiting.origin.depth == 3
        assert len(retinue._orchestrator.live) == 3
        began = anyio.current_time()
        retinue.stop(retinue._orchestrator.live[0])
        ended = [await until_told(watcher, is_end) for _ in range(2)]
        assert anyio.current_time() - began < 4.0  # the parent itself takes five
        ended.append(await until_told(watcher, is_end))
    assert ends(ended) == [(3, Code.ABORTED), (2, Code.ABORTED), (1, Code.ABORTED)]
    assert alive(home) == []


async def test_cancelling_a_run_signals_its_whole_tree_within_two_seconds(home):
    def watched(level: int):
        """Starts a process beside pi that writes down when it was asked to end."""
        noted = f"trap 'date +%s.%N > {home}/{level}.asked; exit' TERM; : > {home}/{level}.up"
        started = f"until test -e {home}/{level}.up; do sleep 0.01; done"
        return deed("shell", f"({noted}; while :; do sleep 0.05; done) > /dev/null 2>&1 & {started}")

    lowest = spawn(watched(3), deed("bash", "sleep 99"))
    middle = spawn(watched(2), lowest, agent="lead")
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(lambda: led(retinue, watched(1), middle))
        await until_told(watcher, lambda event: isinstance(event, ToolCalled) and event.name == "bash")
        began = time.time()
        retinue.stop(retinue._orchestrator.live[0])
        ended = [await until_told(watcher, is_end) for _ in range(3)]
    assert ends(ended) == [(3, Code.ABORTED), (2, Code.ABORTED), (1, Code.ABORTED)]
    assert all(float((home / f"{level}.asked").read_text()) - began < 2.0 for level in (1, 2, 3))
    assert alive(home) == []


async def test_a_call_that_is_abandoned_ends_its_runs_and_the_parent_goes_on_with_a_slot(home):
    async with opened(home, max_concurrency=1) as retinue, retinue.events(deltas=False) as watcher:
        abandoned, again = spawn(deed("hang"), abandon=True), spawn(deed("say", "again"))
        result = await led(retinue, abandoned, again, deed("say", "Done."))
        events = list(watcher.waiting())
    assert (result.failure, result.text) == (None, "Done.")
    assert answers(events) == ["Aborted", "again"]
    # The first may not even have been begun.
    assert ends(events)[-2:] == [(2, None), (1, None)]
    assert ends(events)[:-2] in ([], [(2, Code.ABORTED)])


async def test_what_runs_below_consume_is_told_apart_and_counts_for_the_budget_above(home):
    workers = [spawn(deed("say", "one")), spawn(deed("say", "two"))]
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher:
        result = await led(retinue, spawn(*workers, deed("say", "middle"), agent="lead"), deed("say", "Done."))
        runs = actual(watcher.waiting())
        bounded = await led(retinue, *workers, spawn(deed("say", "three")), deed("say", "Done."), max_tokens=50)
    assert (result.usage.turns, result.actual.nested_usage.turns) == (2, 5)
    assert result.actual.nested_usage.tokens == 5 * 13
    assert [runs[depth].nested_usage.turns for depth in (2, 3)] == [2, 0]
    assert bounded.failure
    assert (bounded.failure.code, bounded.failure.reason) == (Code.BUDGET, "max_tokens")
    assert bounded.actual.nested_usage.tokens == 2 * 13


async def test_a_pi_that_takes_no_commands_does_without_and_says_so(home):
    async with opened(home, version=OLD) as retinue:
        result = await led(retinue, deed("report"))
    assert reported(result)["configured"]["tools"] == ["read", "bash"]
    assert any(notice.startswith("The agent cannot delegate here") for notice in result.actual.notices)


async def test_several_calls_of_one_message_are_answered_side_by_side(home):
    asked = [{"agent": "worker", "task": script(deed("say", word))} for word in ("one", "two", "three")]
    async with opened(home, max_concurrency=1) as retinue, retinue.events(deltas=False) as watcher:
        result = await led(retinue, deed("homes", SPAWN, *asked), deed("say", "Done."))
        assert answers(watcher.waiting()) == ["one", "two", "three"]
    assert result.text == "Done."


async def test_a_process_that_delegated_serves_the_next_run_and_knows_nothing_of_home(home):
    async with opened(home) as retinue:
        first = reported(await led(retinue, deed("report")))
        second = reported(await led(retinue, deed("report"), agent="worker"))
    assert first["pid"] == second["pid"]
    assert ("home" in first["configured"], "home" in second["configured"]) == (True, False)
