"""Trees of a real pi, a real Claude Code and the offline engine are one tree of runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec import structs
from tests.real.claude_install import claude_environ, need_claude
from tests.real.programs import Program, Step, claude_program, pi_program
from tests.support.delegation_reports import SPAWN, answers, ends, is_end
from tests.support.model_server import script64
from tests.support.nested_contract import ROOT, check_delegation
from tests.support.pi_setup import alive, until_told

from retinue import Agent, Retinue
from retinue.model.errors import ErrorCode
from retinue.model.events import RunQueued, ToolCalled
from retinue.model.tasks import Plan, Task

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

DETACHED_PROCESS = """
trap 'date +%s.%N > asked; exit' TERM
: > up
while :; do read -t 1 x < <(tail -f /dev/null); done
"""
"""A process in its own session that records when it is asked to end."""
OFFLINE = Agent(name="ruler", body="You look things up.", tools=("read", "grep", "find", "ls"), engine="offline")


@pytest.fixture
def programs(pi_1_5, server, tmp_path) -> dict[str, Program]:
    """Both programs in one home."""
    need_claude()
    home = tmp_path / "home"
    pi = pi_program(pi_1_5, home, server.url)
    environ = {**claude_environ(home, server.url), **pi.environ}
    return {
        "pi": structs.replace(pi, environ=environ),
        "claude": structs.replace(claude_program(home, server.url), environ=environ),
    }


@pytest.fixture
def vault(tmp_path):
    folder = tmp_path / "vault"
    folder.mkdir()
    return folder


@pytest.fixture
def make_retinue(programs, project, tmp_path, vault) -> Callable[..., Retinue]:
    """Make a Retinue with agents `pi` and `claude` that may delegate, each on the engine of its name."""

    def lead_agents() -> Iterator[Agent]:
        for name, program in programs.items():
            tools = ("read", "bash", "grep", "find", "ls", "Task")
            yield Agent(name=name, body="You lead.", tools=tools, engine=name, model=program.model)

    def make(**settings: Any) -> Retinue:
        return Retinue(
            cwd=project,
            agents=[*lead_agents(), OFFLINE],
            environ=programs["pi"].environ,
            state=tmp_path / "state",
            root=ROOT,
            settings={"vault": str(vault), **settings},
        )

    return make


def spawn_step(program: Program, agent: str, task: str) -> Step:
    return {"text": "I ask.", **program.tool_step(SPAWN, agent=agent, task=task)}


@pytest.mark.parametrize("engines", [["pi", "claude", "offline"], ["claude", "pi", "offline"]])
async def test_nested_programs_are_one_tree_in_events_and_sessions(make_retinue, programs, vault, engines):
    first, second, _ = engines
    middle = script64([spawn_step(programs[second], "ruler", "Where is the secret word?"), {"text": "In a.txt."}])
    highest = script64([spawn_step(programs[first], second, middle), {"text": "They found it in a.txt."}])
    async with make_retinue() as retinue:
        events = await check_delegation(retinue, vault, first, highest, engines=engines)
    found, told = answers(events)
    assert "a.txt:1" in found
    assert told == "In a.txt."


async def test_runs_of_all_programs_share_one_spawn_count(make_retinue, programs):
    again = spawn_step(programs["claude"], "ruler", "Where is the word?")
    middle = script64([spawn_step(programs["claude"], "ruler", "Where is the secret?"), again, {"text": "Found."}])
    plan = Plan(
        tasks=(Task(agent="pi", prompt=script64([spawn_step(programs["pi"], "claude", middle), {"text": "So."}])),)
    )
    async with make_retinue(max_spawns=2) as retinue, retinue.events(deltas=False) as watcher:
        await retinue.run_plan(plan, retinue.call("nested"))
        events = list(watcher.drain())
    assert answers(events)[1].startswith(
        "The child runs of this call have started 2 runs and may start 2 (max_spawns); 1"
    )
    assert sum(isinstance(one.event, RunQueued) for one in events) == 3


@pytest.mark.parametrize(("first", "second"), [("pi", "claude"), ("claude", "pi")])
async def test_cancelling_one_program_ends_another_below_it(make_retinue, programs, first, second, project, tmp_path):
    (project / "away.sh").write_text(DETACHED_PROCESS)
    command = "setsid bash away.sh > /dev/null 2>&1 < /dev/null & tail -f /dev/null"
    waits = {"text": "I wait.", **programs[second].tool_step("bash", command=command, description="Waits.")}
    task = script64([spawn_step(programs[first], second, script64([waits, {"text": "?"}])), {"text": "?"}])
    plan = Plan(tasks=(Task(agent=first, prompt=task),))
    async with make_retinue() as retinue, retinue.events(deltas=False) as watcher, anyio.create_task_group() as group:
        group.start_soon(retinue.run_plan, plan, retinue.call("nested"))
        await until_told(watcher, lambda event: isinstance(event, ToolCalled) and event.name == "bash")
        while not (project / "up").exists():
            await anyio.lowlevel.checkpoint()
        began = time.time()
        retinue.stop(retinue._orchestrator.active_run_ids[0])
        ended = [await until_told(watcher, is_end) for _ in range(2)]
    assert float((project / "asked").read_text()) - began < 2.0, "also what its tools have started elsewhere is asked"
    assert ends(ended) == [(2, ErrorCode.ABORTED), (1, ErrorCode.ABORTED)]
    assert alive(tmp_path) == []
