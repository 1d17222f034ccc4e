"""Delegation on a scripted pi: child runs are counted, recorded and ended with their parent."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import anyio
import pytest
from tests.support.delegation_reports import SPAWN, actual, answers, ends, is_end
from tests.support.fake_pi import action, encode_script
from tests.support.pi_setup import OLD, alive, pi_stage, reported, until_told

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.model.errors import ErrorCode
from retinue.model.events import RunEnded, RunQueued, RunStarted, Text, ToolCalled, ToolReturned
from retinue.model.runs import RemovedTool
from retinue.model.tasks import Mode, Plan, Task

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
    """Return the result of a run of the lead in which pi performs these actions."""
    plan = Plan(tasks=(Task(agent=agent, prompt=encode_script(*deeds)),))
    (result,) = await retinue.run_plan(plan, retinue.call("nested", parent_call="toolu_0", **settings))
    return result


def spawn(*deeds, agent: str = "worker", **options):
    """Return an action that delegates these actions."""
    return action("delegate", SPAWN, {"agent": agent, "task": encode_script(*deeds)}, **options)


def token_of(retinue: Retinue) -> str:
    """Return the token of the one run that may delegate."""
    (member,) = retinue._orchestrator.delegation._runs.values()
    return member._token.decode()


async def test_delegated_run_is_answered_and_its_events_name_their_run(home):
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher:
        result = await led(retinue, spawn(action("say", "I worked.")), action("say", "Done."))
        events = list(watcher.drain())
    assert (result.failure, result.text) == (None, "Done.")
    assert answers(events) == ["I worked."]
    queued = [one for one in events if isinstance(one.event, RunQueued)]
    (call,) = [one.event.call for one in events if isinstance(one.event, ToolCalled)]
    lead, worker = (one.origin for one in queued)
    assert (lead.depth, lead.parent_run, lead.parent_tool_use_id) == (1, None, "toolu_0")
    assert (worker.depth, worker.parent_run, worker.parent_tool_use_id) == (2, lead.run, call)
    assert worker.root == lead.root
    assert [one.origin.run for one in events if is_end(one.event)] == [worker.run, lead.run]


async def test_child_run_gets_no_more_tools_than_its_parent(home):
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, spawn(action("say", "hi")), action("say", "Done."))
        runs = actual(watcher.drain())
    assert runs[1].tools_granted == ("read", "bash", SPAWN, "agent_info")
    assert runs[2].tools_granted == ("read", "bash")
    assert runs[2].tools_removed == (RemovedTool("write", "authority"),)


async def test_depth_ends_at_its_limit_and_the_last_level_has_no_tools_to_delegate(home):
    deepest = spawn(action("report"), agent="lead")
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, spawn(deepest, action("say", "two"), agent="lead"), action("say", "one"))
        events = list(watcher.drain())
    runs = actual(events)
    assert [SPAWN in runs[depth].tools_granted for depth in (1, 2, 3)] == [True, True, False]
    assert runs[3].tools_removed == (RemovedTool("subagent", "depth"),)
    (told,) = [one.event.text for one in events if isinstance(one.event, Text) and '"configured"' in one.event.text]
    assert '"home"' not in told


async def test_run_that_may_not_delegate_has_no_callback(home):
    async with opened(home) as retinue:
        plain = await led(retinue, action("report"), agent="worker")
        single = await retinue.run("lead", encode_script(action("report")))
    assert '"home"' not in plain.text
    assert '"home"' not in single.text
    assert RemovedTool("subagent", "depth") in single.actual.tools_removed


async def test_a_token_is_in_no_argument_no_environment_no_file_and_no_answer(home):
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(lambda: led(retinue, action("report"), action("bash", "env"), action("hang")))
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


async def test_spawns_above_the_limit_of_a_root_call_are_refused(home):
    two = {"mode": "parallel", "tasks": [{"agent": "worker", "task": "a"}, {"agent": "worker", "task": "b"}]}
    async with opened(home, max_spawns=2) as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, action("delegate", SPAWN, two), action("delegate", SPAWN, two), action("say", "Done."))
        events = list(watcher.drain())
    first, second = answers(events)
    assert first.startswith("=== 1 worker: ok ===")
    assert second.startswith(
        "The child runs of this call have started 2 runs and may start 2 (max_spawns); 2 more were"
    )
    assert sum(isinstance(one.event, RunQueued) for one in events) == 3


async def test_task_of_an_ancestor_cannot_be_delegated(home):
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, action("delegate", SPAWN, {"agent": "lead", "task": "{prompt}"}), action("say", "Done."))
        (answer,) = answers(list(watcher.drain()))
    assert answer.startswith("lead was already given this task, or nearly the same one, by a parent run.")


async def test_four_slots_are_enough_for_three_levels_of_four_each(home):
    def four(*deeds, agent: str):
        tasks = [{"agent": agent, "task": f"{n} {encode_script(*deeds)}"} for n in range(4)]
        return {"mode": "parallel", "tasks": tasks}

    lowest = four(action("say", "leaf"), agent="worker")
    middle = four(action("delegate", SPAWN, lowest), action("say", "branch"), agent="lead")
    highest = encode_script(action("delegate", SPAWN, middle), action("say", "root"))
    tasks = tuple(Task(agent="lead", prompt=f"{n} {highest}") for n in range(4))
    told: Counter[tuple[type, int]] = Counter()
    async with opened(home, max_spawns=100, max_concurrency=4) as retinue, retinue.events(deltas=False) as watcher:
        with anyio.fail_after(50):
            results = await retinue.run_plan(Plan(tasks=tasks, mode=Mode.PARALLEL), retinue.call("nested"))
        for one in watcher.drain():
            told[type(one.event), one.origin.depth] += 1
    assert [result.text for result in results] == ["root"] * 4
    assert [told[RunStarted, depth] for depth in (1, 2, 3)] == [4, 16, 64]
    assert [told[RunEnded, depth] for depth in (1, 2, 3)] == [4, 16, 64]


async def test_stopping_a_run_stops_its_child_runs_and_leaves_no_process(home):
    deepest = spawn(action("bash", "sleep 99"))
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(lambda: led(retinue, action("ignore", "TERM"), spawn(deepest, agent="lead")))
        waiting = await until_told(watcher, lambda event: isinstance(event, ToolCalled) and event.name == "bash")
        assert waiting.origin.depth == 3
        assert len(retinue._orchestrator.active_run_ids) == 3
        began = anyio.current_time()
        retinue.stop(retinue._orchestrator.active_run_ids[0])
        ended = [await until_told(watcher, is_end) for _ in range(2)]
        assert anyio.current_time() - began < 4.0  # the parent itself takes five
        ended.append(await until_told(watcher, is_end))
    assert ends(ended) == [(3, ErrorCode.ABORTED), (2, ErrorCode.ABORTED), (1, ErrorCode.ABORTED)]
    assert alive(home) == []


async def test_cancelling_a_run_signals_its_whole_tree_within_two_seconds(home):
    def watched(level: int):
        """Start a process beside pi that records when it gets a stop signal."""
        noted = f"trap 'date +%s.%N > {home}/{level}.asked; exit' TERM; : > {home}/{level}.up"
        started = f"until test -e {home}/{level}.up; do sleep 0.01; done"
        return action("shell", f"({noted}; while :; do sleep 0.05; done) > /dev/null 2>&1 & {started}")

    lowest = spawn(watched(3), action("bash", "sleep 99"))
    middle = spawn(watched(2), lowest, agent="lead")
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(lambda: led(retinue, watched(1), middle))
        await until_told(watcher, lambda event: isinstance(event, ToolCalled) and event.name == "bash")
        began = time.time()
        retinue.stop(retinue._orchestrator.active_run_ids[0])
        ended = [await until_told(watcher, is_end) for _ in range(3)]
    assert ends(ended) == [(3, ErrorCode.ABORTED), (2, ErrorCode.ABORTED), (1, ErrorCode.ABORTED)]
    assert all(float((home / f"{level}.asked").read_text()) - began < 2.0 for level in (1, 2, 3))
    assert alive(home) == []


async def test_abandoned_call_ends_its_runs_and_the_parent_continues_with_a_slot(home):
    async with opened(home, max_concurrency=1) as retinue, retinue.events(deltas=False) as watcher:
        abandoned, again = spawn(action("hang"), abandon=True), spawn(action("say", "again"))
        result = await led(retinue, abandoned, again, action("say", "Done."))
        events = list(watcher.drain())
    assert (result.failure, result.text) == (None, "Done.")
    assert answers(events) == ["Aborted", "again"]
    # The first may not even have been begun.
    assert ends(events)[-2:] == [(2, None), (1, None)]
    assert ends(events)[:-2] in ([], [(2, ErrorCode.ABORTED)])


async def test_usage_of_child_runs_is_reported_apart_and_counts_for_the_parent_budget(home):
    workers = [spawn(action("say", "one")), spawn(action("say", "two"))]
    async with opened(home) as retinue, retinue.events(deltas=False) as watcher:
        result = await led(retinue, spawn(*workers, action("say", "middle"), agent="lead"), action("say", "Done."))
        runs = actual(watcher.drain())
        bounded = await led(retinue, *workers, spawn(action("say", "three")), action("say", "Done."), max_tokens=50)
    assert (result.usage.turns, result.actual.nested_usage.turns) == (2, 5)
    assert result.actual.nested_usage.tokens == 5 * 13
    assert [runs[depth].nested_usage.turns for depth in (2, 3)] == [2, 0]
    assert bounded.failure
    assert (bounded.failure.code, bounded.failure.reason) == (ErrorCode.BUDGET, "max_tokens")
    assert bounded.actual.nested_usage.tokens == 2 * 13


async def test_old_pi_runs_without_delegation_and_reports_it(home):
    async with opened(home, version=OLD) as retinue:
        result = await led(retinue, action("report"))
    assert reported(result)["configured"]["tools"] == ["read", "bash"]
    assert any(notice.startswith("The agent cannot delegate") for notice in result.actual.notices)


async def test_several_delegation_calls_of_one_message_are_all_answered(home):
    asked = [{"agent": "worker", "task": encode_script(action("say", word))} for word in ("one", "two", "three")]
    async with opened(home, max_concurrency=1) as retinue, retinue.events(deltas=False) as watcher:
        result = await led(retinue, action("delegate_all", SPAWN, *asked), action("say", "Done."))
        assert answers(watcher.drain()) == ["one", "two", "three"]
    assert result.text == "Done."


async def test_reused_process_has_no_delegation_of_its_previous_run(home):
    async with opened(home) as retinue:
        first = reported(await led(retinue, action("report")))
        second = reported(await led(retinue, action("report"), agent="worker"))
    assert first["pid"] == second["pid"]
    assert ("home" in first["configured"], "home" in second["configured"]) == (True, False)
