"""Delegation between engines: counts and events are the same for every caller."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.support.delegation_reports import SPAWN, answers, ends
from tests.support.fake_pi import action, encode_script, install_fake_pi
from tests.support.pi_setup import environment, until_told

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.agent_loop import ModelReply, ModelRequest, OnDelta, run_agent_loop
from retinue.engines.base import EngineCapabilities, EngineInfo
from retinue.engines.scripted import CAPABILITIES, DelegateStep, HangStep, Script, ScriptedEngine, reply, spawn
from retinue.engines.toolbox import AgentToolbox
from retinue.model.errors import ErrorCode
from retinue.model.events import RunQueued, RunStarted, Text, ToolReturned
from retinue.model.runs import RemovedTool, RunSpec, ToolUse
from retinue.model.tasks import Plan, Task


def agent(name: str, engine: str, *tools: str) -> Agent:
    return Agent(name=name, engine=engine, tools=("read", *tools))


LEADS = [
    agent("lead", "scripted", "subagent"),
    agent("pilot", "pi", "subagent"),
    agent("looper", "loop", "subagent"),
    agent("ruler", "offline", "subagent"),
]
RULES = "Rule-based search, not a language model"
WORKERS = [agent("worker", "scripted"), agent("pi_worker", "pi")]


class Delegating:
    """A model that delegates its task once, written as `agent: task`, and then repeats the answer."""

    name = "delegating"

    async def reply(self, request: ModelRequest, tell: OnDelta) -> ModelReply:
        last = request.messages[-1]
        if last.role == "tool":
            return ModelReply(content=(Text(f"{last.text}!"),))
        name, _, task = last.text.partition(": ")
        assert [tool.name for tool in request.tools] == [SPAWN, "agent_info"]
        return ModelReply(content=(ToolUse("toolu_1", SPAWN, {"agent": name, "task": task}),))


class LoopEngine:
    async def run(self, spec, emit):
        await run_agent_loop(Delegating(), spec, AgentToolbox(), emit)


def scripts(spec: RunSpec) -> Script:
    name, _, task = spec.task.partition(": ")
    return (spawn(name, task), reply("led")) if spec.agent.name == "lead" else (reply(f"worked: {spec.task}"),)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Retinue]:
    install_fake_pi(tmp_path / "bin")

    def made(script_for: Callable[[RunSpec], Script] = scripts, **settings) -> Retinue:
        from retinue.composition import available_engines

        environ = {**environment(tmp_path), "TMPDIR": str(tmp_path)}
        loop = EngineCapabilities(tools=frozenset({"read"}), delegates=True)
        alone = EngineCapabilities(tools=frozenset({"read"}))
        ours = {
            "scripted": EngineInfo(
                name="scripted",
                capabilities=CAPABILITIES,
                make=lambda: ScriptedEngine(script_for),
                not_installed_reason=lambda: None,
            ),
            "loop": EngineInfo(name="loop", capabilities=loop, make=LoopEngine, not_installed_reason=lambda: None),
            "alone": EngineInfo(name="alone", capabilities=alone, make=LoopEngine, not_installed_reason=lambda: None),
        }
        kinds = {**available_engines(environ), **ours}
        return Retinue(cwd=tmp_path, engines=kinds, agents=[*LEADS, *WORKERS], environ=environ, settings=settings)

    return made


async def led(retinue: Retinue, name: str, task: str):
    plan = Plan(tasks=(Task(agent=name, prompt=task),))
    (result,) = await retinue.run_plan(plan, retinue.call("nested"))
    return result


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "task", "expected"),
    [
        ("lead", "worker: x", ["worked: x"]),
        ("lead", "pi_worker: x", ["ECHO: x"]),
        ("looper", "worker: x", ["worked: x"]),
        ("looper", "lead: pi_worker: x", ["ECHO: x", "led"]),
        ("lead", "looper: worker: x", ["worked: x", "worked: x!"]),
        ("ruler", "ask worker: x", ["worked: x"]),
        ("lead", "ruler: ask pi_worker: x", ["ECHO: x", f"{RULES}; asked pi_worker:\n\nECHO: x"]),
        (
            "pilot",
            encode_script(action("delegate", SPAWN, {"agent": "lead", "task": "worker: x"})),
            ["worked: x", "led"],
        ),
    ],
)
async def test_engines_delegate_to_each_other(opened, name, task, expected):
    async with opened() as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, name, task)
        events = list(watcher.drain())
    assert answers(events) == expected
    assert [depth for depth, _ in ends(events)] == list(range(len(expected) + 1, 0, -1))
    queued = [one.origin for one in events if isinstance(one.event, RunQueued)]
    assert [origin.parent_run for origin in queued] == [None, *(origin.run for origin in queued[:-1])]


async def test_delegated_answer_of_many_lines_reaches_an_in_process_parent_whole(opened):
    long = "\n".join(["a line of text"] * 10_000)
    async with opened(lambda spec: (reply(long),)) as retinue:
        result = await led(retinue, "looper", "worker: x")
    assert result.text == f"{long}!"


async def test_delegated_answer_over_200_kib_is_cut_and_names_where_the_rest_is(opened):
    long = "\n".join(["x" * 1023] * 300)
    async with opened(lambda spec: (reply(long),)) as retinue:
        result = await led(retinue, "looper", "worker: x")
        (worker,) = [one for one in await retinue.sessions() if one.agent == "worker"]
    notice, rest, head = result.text.removesuffix("!").split("\n", 2)
    assert notice == "[TRUNCATED: showing first 201 of 300 lines, 200.0 KB of 300.0 KB]"
    assert rest == f"[Read the remaining output with: retinue sessions output {worker.session[:8]} --start 201]"
    assert long.startswith(head)
    assert len(head) == 200 * 1024


async def test_several_delegated_answers_over_200_kib_name_every_session(opened):
    long = "x" * 150 * 1024
    tasks = [{"agent": "worker", "task": "a"}, {"agent": "worker", "task": "b"}]

    def both(spec: RunSpec) -> Script:
        if spec.agent.name == "lead":
            return DelegateStep({"mode": "parallel", "tasks": tasks}), reply("led")
        return (reply(long),)

    async with opened(both) as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, "lead", "x")
        events = list(watcher.drain())
        ids = {one.task: one.session[:8] for one in await retinue.sessions() if one.agent == "worker"}
    (answer,) = [one.event.text for one in events if isinstance(one.event, ToolReturned)]
    sessions = f"1 worker {ids['a']}, 2 worker {ids['b']}"
    assert answer.split("\n")[:3] == [
        "[TRUNCATED: showing first 5 of 5 lines, 200.0 KB of 300.0 KB]",
        f"[Read each complete answer with: retinue sessions output ID; the IDs: {sessions}]",
        "=== 1 worker: ok ===",
    ]


async def test_whole_prompt_of_a_chain_step_cannot_be_delegated(opened):
    def hands_on(spec: RunSpec) -> Script:
        return (spawn("lead", spec.prompt), reply("led")) if spec.agent.name == "lead" else (reply("found"),)

    async with opened(hands_on) as retinue, retinue.events(deltas=False) as watcher:
        await retinue.chain([("worker", "Look."), ("lead", "Sum up {previous}")])
        events = list(watcher.drain())
    (answer,) = answers(events)
    assert answer.startswith("lead was already given this task, or nearly the same one, by a parent run.")
    assert [depth for depth, _ in ends(events)] == [1, 2, 1]


async def test_engine_without_delegation_reports_the_removed_tools(opened):
    async with opened() as retinue:
        (result,) = await retinue.chain([("lead", "worker: x")], engine="alone")
    assert [(one.tool, one.by) for one in result.actual.tools_removed] == [
        (SPAWN, "engine"),
        ("agent_info", "engine"),
    ]


async def test_run_at_the_last_level_has_no_delegation_tools(opened):
    async with opened(max_depth=2) as retinue, retinue.events(deltas=False) as watcher:
        await led(retinue, "lead", "lead: worker: x")
        events = list(watcher.drain())
    assert answers(events) == [f"Unknown tool: {SPAWN}", "led"]


def block_socket(folder: Path) -> None:
    (folder / f"retinue-{folder.stat().st_uid}").mkdir(mode=0o755)


async def test_run_of_this_process_delegates_without_a_socket(opened, tmp_path):
    block_socket(tmp_path)
    async with opened() as retinue, retinue.events(deltas=False) as watcher:
        result = await led(retinue, "lead", "looper: worker: x")
        events = list(watcher.drain())
    assert (result.failure, answers(events)) == (None, ["worked: x", "worked: x!"])


@pytest.mark.process
async def test_process_without_a_socket_loses_its_delegation_tools_with_a_notice(opened, tmp_path, caplog):
    block_socket(tmp_path)
    async with opened() as retinue:
        result = await led(retinue, "pilot", "worker: x")
    assert result.failure is None
    assert result.actual.tools_removed == (RemovedTool(SPAWN, "home"), RemovedTool("agent_info", "home"))
    assert any(notice.startswith("The agent's delegation tools were left out") for notice in result.actual.notices)
    assert caplog.records


async def test_timeout_of_a_waiting_parent_ends_its_child_runs(opened):
    def waits(spec: RunSpec) -> Script:
        return (spawn("worker", "x"), reply("led")) if spec.agent.name == "lead" else (HangStep(),)

    async with opened(waits) as retinue, retinue.events(deltas=False) as watcher:
        plan = Plan(tasks=(Task(agent="lead", prompt="x y", timeout=1.0),))
        (result,) = await retinue.run_plan(plan, retinue.call("nested", extend_timeout_debounce=0))
        ended = ends(watcher.drain())
    assert result.failure
    assert ended == [(2, ErrorCode.ABORTED), (1, ErrorCode.TIMEOUT)]


async def test_cancelled_caller_ends_the_whole_tree(opened):
    def waits(spec: RunSpec) -> Script:
        return (spawn("worker", "x"), reply("led")) if spec.agent.name == "lead" else (HangStep(),)

    async with opened(waits) as retinue, retinue.events(deltas=False) as watcher:
        async with anyio.create_task_group() as group:
            group.start_soon(led, retinue, "lead", "x y")
            for _ in range(2):
                await until_told(watcher, lambda event: isinstance(event, RunStarted))
            group.cancel_scope.cancel()
        assert ends(watcher.drain()) == [(2, ErrorCode.ABORTED), (1, ErrorCode.ABORTED)]
        assert len(retinue._orchestrator.delegation) == 0


async def test_a_script_in_a_file_delegates(tmp_path):
    play = {
        "agents": {"lead": [{"spawn": {"agent": "worker", "task": "x"}}, {"say": "led"}]},
        "steps": [{"say": "worked: {task}"}],
    }
    environ = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "RETINUE_SCRIPT": json.dumps(play)}
    retinue = Retinue(cwd=tmp_path, agents=[*LEADS, *WORKERS], environ=environ, engine="scripted")
    async with retinue, retinue.events(deltas=False) as watcher:
        assert (await led(retinue, "lead", "go")).text == "led"
        assert answers(list(watcher.drain())) == ["worked: x"]
